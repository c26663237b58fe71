"""The text of a query, and where in it something is: what an error shows, with a caret."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlglot import exp

from nova_assets.errors import SqlError

Span = tuple[int, int]
"""Of characters: the first, and the one after the last."""


@dataclass(frozen=True, slots=True)
class Text:
    """A query as its author wrote it.

    Args:
        name: of the file, or of the task that it was given to.
        sql: all of it.
    """

    name: str
    sql: str

    def error(
        self,
        what: str,
        at: exp.Expr | Iterable[exp.Expr] | Span | None,
        *,
        expected: object = None,
        next: str | None = None,
        of_values: bool = False,
    ) -> SqlError:
        """An error that shows the line and points at a place in it.

        Args:
            at: what is meant: a part of the query, several, or a stretch of its characters; None for its beginning.
            of_values: it is the values of a scope or partition that are at fault, and not the query for all of them.
        """
        found = at if isinstance(at, tuple) and at and isinstance(at[0], int) else span(at)  # type: ignore[arg-type]
        if found is None:
            begin = len(self.sql) - len(self.sql.lstrip())
            found = (begin, begin + 1) if begin < len(self.sql) else (0, 0)
        line, column = self._place(found[0])
        return SqlError(
            f"{self.name}:{line}:{column}: {what}",
            expected=expected,
            next=next,
            file=self.name,
            line=line,
            column=column,
            snippet=self._shown(found),
            of_values=of_values,
        )

    def part(self, of: Span) -> str:
        return self.sql[of[0] : of[1]]

    def _place(self, at: int) -> tuple[int, int]:
        """Line and column, counted from 1."""
        before = self.sql[:at]
        return before.count("\n") + 1, at - (before.rfind("\n") + 1) + 1

    def _shown(self, of: Span) -> str:
        """The line where a stretch begins, with what belongs to it underlined."""
        begin, end = of
        first = self.sql.rfind("\n", 0, begin) + 1
        last = self.sql.find("\n", begin)
        line = self.sql[first : last if last >= 0 else len(self.sql)]
        number = f"{self._place(begin)[0]:>5} | "
        blank = "".join(c if c == "\t" else " " for c in line[: begin - first])
        width = max(1, min(end, first + len(line)) - begin)
        return f"{number}{line.rstrip()}\n{' ' * (len(number) - 2)}| {blank}{'^' * width}"


def span(node: exp.Expr | Iterable[exp.Expr] | None) -> Span | None:
    """Where parts of a query are in its text, or what is closest around them; None where the parser does not say."""
    if node is None:
        return None
    nodes = [node] if isinstance(node, exp.Expr) else list(node)
    places = [n.meta for part in nodes for n in part.walk() if n.meta.get("start") is not None]
    if not places:  # it is what is around it, then
        around = nodes[0].parent if nodes else None
        return None if around is None else span(around)
    return min(m["start"] for m in places), max(m["end"] for m in places) + 1
