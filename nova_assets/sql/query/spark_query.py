"""A query as Spark is given it: its author's own text, with a frame in place of each dataset that it reads.

Nothing is written anew by a parser, so what runs is what was written. Values are never put into the text: they are
parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from nova_assets.sql.parse.dialect import DIALECT, end_of
from nova_assets.sql.query.query import Query, Scan
from nova_assets.sql.query.table_function_calls import Call
from nova_assets.sql.text import Span, Text

QUERY = "nova_query"


@dataclass(frozen=True)
class Runnable:
    """What is run.

    Args:
        sql: with ``{scan_0}`` where the first scan's frame goes, as ``SparkSession.sql`` takes it.
        frames: the name of each scan's frame.
        datasets: the dataset that each frame is of.
        variables: the names of the parameters.
        calls: the name of the frame that a call gives -> the texts of the queries that it takes, by their places.
    """

    sql: str
    frames: Mapping[int, str]
    variables: tuple[str, ...]
    datasets: Mapping[str, str] = field(default_factory=dict)
    calls: Mapping[str, Mapping[Span, str]] = field(default_factory=dict)

    @property
    def shown(self) -> str:
        """The text for a person, with names of datasets."""
        return self.sql.format(**self.datasets)


def runnable(query: Query, begin: int = 0, columns: Sequence[tuple[str, str]] = ()) -> Runnable:
    """A query as it is run.

    Args:
        begin: where in its text it begins, after its head.
        columns: further columns that are the same in every row: name and type, each from the parameter of that name
            with ``partition_`` before it.
    """
    put = [(place, f":{name}") for place, name in query.bare]
    found = _of(query.text, query.scans, tuple(query.variables), begin, put, query.calls)
    if not columns:
        return found
    named = ", ".join(f"CAST(:partition_{c} AS {type_}) AS {_quoted(c)}" for c, type_ in columns)
    sql = f"SELECT {QUERY}.*, {named} FROM (\n{found.sql}\n) AS {QUERY}"
    return replace(found, sql=sql, variables=(*found.variables, *(f"partition_{c}" for c, _ in columns)))


def runnable_text(text: Text, tree: exp.Query, scans: Sequence[Scan]) -> Runnable:
    """A query of whose datasets nothing is known, as it is run."""
    return _of(text, scans, tuple(dict.fromkeys(p.name for p in tree.find_all(exp.Placeholder))), 0, [])


def _of(
    text: Text,
    scans: Sequence[Scan],
    variables: tuple[str, ...],
    begin: int,
    put: Sequence[tuple[Span, str]],
    calls: Sequence[Call] = (),
) -> Runnable:
    frames = {s.number: f"scan_{s.number}" for s in scans}
    made = {c.number: f"call_{c.number}" for c in calls}
    instead = [
        *put,
        *((s.place, _as_frame(frames[s.number], s.dataset, s.has_alias)) for s in scans),
        *((c.place, _as_frame(made[c.number], c.function, c.has_alias)) for c in calls),
    ]
    inner = {made[c.number]: {a: _spliced(text.sql[: a[1]], a[0], instead).strip() for a in c.queries} for c in calls}
    sql = _spliced(text.sql[: end_of(text)], begin, instead).strip()
    shown = {frames[s.number]: _called(s) for s in scans} | {made[c.number]: text.part(c.place) for c in calls}
    return Runnable(sql, frames, variables, shown, inner)


def _called(scan: Scan) -> str:
    return scan.dataset if scan.mode == "all" else f"{scan.mode.upper()}({scan.dataset})"


def _as_frame(frame: str, name: str, has_alias: bool) -> str:
    """A frame under the name by which the query knows the dataset, or what a function gives."""
    return f"{{{frame}}}" if has_alias else f"{{{frame}}} AS {_quoted(name)}"


def _quoted(name: str) -> str:
    return exp.to_identifier(name, quoted=True).sql(DIALECT)


def _spliced(text: str, begin: int, put: Sequence[tuple[Span, str]]) -> str:
    """A text from some place on, with some of its stretches replaced, and not what lies within these; braces of its own
    stay what they are."""
    found, at = [], begin
    for (first, end), instead in sorted(put):
        if at <= first and end <= len(text):
            found += [_escaped(text[at:first]), instead]
            at = end
    return "".join([*found, _escaped(text[at:])])


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
