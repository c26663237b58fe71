"""A query as Spark is given it: its author's own text, with a frame in place of each dataset that it reads.

Nothing is written anew by a parser, so what runs is what was written. Values are never put into the text: they are
parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from nova_assets.sql.parse.dialect import DIALECT, statement_end
from nova_assets.sql.query.query import Query
from nova_assets.sql.query.scans import Scan
from nova_assets.sql.query.table_function_calls import TableFunctionCall
from nova_assets.sql.text import Span, SqlText

INNER_QUERY_ALIAS = "nova_query"


@dataclass(frozen=True)
class RunnableSql:
    """What is run.

    Args:
        sql: with ``{scan_0}`` where the first scan's frame goes, as ``SparkSession.sql`` takes it.
        frame_by_scan: the name of each scan's frame.
        display_name_by_frame: the dataset that each frame is of.
        variables: the names of the parameters.
        query_texts_by_call: the name of the frame that a call gives -> the texts of the queries that it takes, by
            their places.
    """

    sql: str
    frame_by_scan: Mapping[int, str]
    variables: tuple[str, ...]
    display_name_by_frame: Mapping[str, str] = field(default_factory=dict)
    query_texts_by_call: Mapping[str, Mapping[Span, str]] = field(default_factory=dict)

    @property
    def display_sql(self) -> str:
        """The text for a person, with names of datasets."""
        return self.sql.format(**self.display_name_by_frame)


def make_runnable(query: Query, query_start: int = 0, partition_columns: Sequence[tuple[str, str]] = ()) -> RunnableSql:
    """A query as it is run.

    Args:
        query_start: where in its text it begins, after its head.
        partition_columns: further columns that are the same in every row: name and type, each from the parameter of
            that name with ``partition_`` before it.
    """
    replacements = [(place, f":{name}") for place, name in query.bare_variables]
    found = _build_runnable(query.text, query.scans, tuple(query.variables), query_start, replacements, query.calls)
    if not partition_columns:
        return found
    named = ", ".join(f"CAST(:partition_{c} AS {type_}) AS {_quote_identifier(c)}" for c, type_ in partition_columns)
    sql = f"SELECT {INNER_QUERY_ALIAS}.*, {named} FROM (\n{found.sql}\n) AS {INNER_QUERY_ALIAS}"
    return replace(found, sql=sql, variables=(*found.variables, *(f"partition_{c}" for c, _ in partition_columns)))


def make_runnable_from_text(text: SqlText, tree: exp.Query, scans: Sequence[Scan]) -> RunnableSql:
    """A query of whose datasets nothing is known, as it is run."""
    return _build_runnable(text, scans, tuple(dict.fromkeys(p.name for p in tree.find_all(exp.Placeholder))), 0, [])


def _build_runnable(
    text: SqlText,
    scans: Sequence[Scan],
    variables: tuple[str, ...],
    query_start: int,
    variable_replacements: Sequence[tuple[Span, str]],
    calls: Sequence[TableFunctionCall] = (),
) -> RunnableSql:
    frames = {s.number: f"scan_{s.number}" for s in scans}
    call_frames = {c.number: f"call_{c.number}" for c in calls}
    replacements = [
        *variable_replacements,
        *((s.place, _frame_reference(frames[s.number], s.dataset, s.has_alias)) for s in scans),
        *((c.call_span, _frame_reference(call_frames[c.number], c.function, c.has_alias)) for c in calls),
    ]
    inner = {
        call_frames[c.number]: {a: _replace_spans(text.sql[: a[1]], a[0], replacements).strip() for a in c.query_spans}
        for c in calls
    }
    sql = _replace_spans(text.sql[: statement_end(text)], query_start, replacements).strip()
    shown = {frames[s.number]: _scan_text(s) for s in scans} | {
        call_frames[c.number]: text.substring(c.call_span) for c in calls
    }
    return RunnableSql(sql, frames, variables, shown, inner)


def _scan_text(scan: Scan) -> str:
    return scan.dataset if scan.mode == "all" else f"{scan.mode.upper()}({scan.dataset})"


def _frame_reference(frame_name: str, dataset: str, has_alias: bool) -> str:
    """A frame under the name by which the query knows the dataset, or what a function gives."""
    return f"{{{frame_name}}}" if has_alias else f"{{{frame_name}}} AS {_quote_identifier(dataset)}"


def _quote_identifier(name: str) -> str:
    return exp.to_identifier(name, quoted=True).sql(DIALECT)


def _replace_spans(text: str, start: int, replacements: Sequence[tuple[Span, str]]) -> str:
    """A text from some place on, with some of its stretches replaced, and not what lies within these; braces of its own
    stay what they are."""
    found, at = [], start
    for (first, end), instead in sorted(replacements):
        if at <= first and end <= len(text):
            found += [_escape_braces(text[at:first]), instead]
            at = end
    return "".join([*found, _escape_braces(text[at:])])


def _escape_braces(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
