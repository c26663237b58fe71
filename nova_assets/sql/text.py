"""SQL texts and positions in them, for error messages that underline the place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from nova_assets.errors import SqlError

Span = tuple[int, int]
"""Character range: the first character, and the one after the last."""


@dataclass(frozen=True, slots=True)
class SqlText:
    """A SQL text as its author wrote it.

    Args:
        name: name of the file or of the task that contains the text.
        sql: the complete text.
    """

    name: str
    sql: str

    def error(
        self,
        message: str,
        location: exp.Expr | Iterable[exp.Expr] | Span | None,
        *,
        expected: object = None,
        next: str | None = None,
        of_values: bool = False,
    ) -> SqlError:
        """An error that shows the line and underlines a place in it.

        Args:
            location: one or several nodes of the query, or a character range. None means the beginning of the text.
            of_values: whether the error concerns the values of one scope or partition, rather than the query itself.
        """
        is_span = isinstance(location, tuple) and location and isinstance(location[0], int)
        found_span: Any = location if is_span else span_of(location)  # type: ignore[arg-type]
        if found_span is None:
            begin = len(self.sql) - len(self.sql.lstrip())
            found_span = (begin, begin + 1) if begin < len(self.sql) else (0, 0)
        line, column = self._line_and_column(found_span[0])
        return SqlError(
            f"{self.name}:{line}:{column}: {message}",
            expected=expected,
            next=next,
            file=self.name,
            line=line,
            column=column,
            snippet=self._underlined_line(found_span),
            of_values=of_values,
        )

    def substring(self, part_span: Span) -> str:
        return self.sql[part_span[0] : part_span[1]]

    def _line_and_column(self, offset: int) -> tuple[int, int]:
        """Line and column, counted from 1."""
        before = self.sql[:offset]
        return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1

    def _underlined_line(self, marked_span: Span) -> str:
        """The line in which a span begins, with the span underlined."""
        begin, end = marked_span
        first = self.sql.rfind("\n", 0, begin) + 1
        last = self.sql.find("\n", begin)
        line = self.sql[first : last if last >= 0 else len(self.sql)]
        number = f"{self._line_and_column(begin)[0]:>5} | "
        blank = "".join(c if c == "\t" else " " for c in line[: begin - first])
        width = max(1, min(end, first + len(line)) - begin)
        return f"{number}{line.rstrip()}\n{' ' * (len(number) - 2)}| {blank}{'^' * width}"


def span_of(node: exp.Expr | Iterable[exp.Expr] | None) -> Span | None:
    """The span of some nodes, or of the nearest enclosing node that has a position. None if the parser recorded no
    position.
    """
    if node is None:
        return None
    nodes = [node] if isinstance(node, exp.Expr) else list(node)
    places = [n.meta for part in nodes for n in part.walk() if n.meta.get("start") is not None]
    if not places:  # fall back to the enclosing node
        around = nodes[0].parent if nodes else None
        return None if around is None else span_of(around)
    return min(m["start"] for m in places), max(m["end"] for m in places) + 1


def span_of_tokens(*tokens: Token) -> Span:
    """The span from the first to the last of some tokens."""
    return int(tokens[0].start), int(tokens[-1].end) + 1


def depth_change(token: Token) -> int:
    """By how many levels of parentheses the text after a token is deeper than the text before it."""
    return {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(token.token_type, 0)


def closing_index(tokens: Sequence[Token], opening: int = 0) -> int | None:
    """Index of the parenthesis that closes the one at ``opening``. None if it is not closed."""
    depth = 0
    for n in range(opening, len(tokens)):
        depth += depth_change(tokens[n])
        if depth == 0:
            return n
    return None
