"""Scans: the places where a query reads a dataset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from sqlglot import exp
from sqlglot.optimizer.scope import traverse_scope

from nova_assets.sql.query.table_function_calls import (
    is_table_function,
)
from nova_assets.sql.text import Span, SqlText, span_of

Mode = Literal["all", "new", "old", "whole"]


READ_MODES: Mapping[str, Mode] = {"NEW": "new", "OLD": "old", "WHOLE": "whole"}


_SCAN_KEY = "nova_scan"


@dataclass(frozen=True)
class Scan:
    """A place in a query where a dataset is read.

    Args:
        number: position among the scans of the query.
        dataset: the dataset's name.
        mode: the read mode. ``whole`` reads all partitions, regardless of the conditions on partition columns.
        span: span of the dataset's name in the text, including ``NEW(...)`` but not the alias.
        has_alias: whether the query gives the dataset an alias.
    """

    number: int
    dataset: str
    mode: Mode
    span: Span = (0, 0)
    has_alias: bool = False


def mark_scans(text: SqlText, tree: exp.Query) -> tuple[Scan, ...]:
    """Find the scans of a query and mark their nodes in the tree. Needs no schemas.

    Raises:
        SqlError: a source cannot be a dataset.
    """
    scans: list[Scan] = []
    for scope in traverse_scope(tree):
        cte_names = {name.lower() for name in scope.cte_sources}
        for table in scope.tables:
            if table.name.lower() in cte_names and not isinstance(table.this, exp.Anonymous):
                continue
            if is_table_function(table, READ_MODES):
                continue
            if _SCAN_KEY not in table.meta:
                scans.append(_parse_scan(text, table, len(scans)))
                table.meta[_SCAN_KEY] = scans[-1].number
    return tuple(scans)


def _parse_scan(text: SqlText, table: exp.Table, number: int) -> Scan:
    if table.args.get("db") is not None:
        raise text.error(
            f"{table.sql('spark')} is not the name of a dataset", table, expected="a name without a database"
        )
    if not isinstance(table.this, exp.Func):
        return Scan(number, table.name, "all", span_of(table.this) or (0, 0), bool(table.alias))
    call = table.this
    mode = READ_MODES.get(call.name.upper()) if isinstance(call, exp.Anonymous) else None
    if mode is None:
        raise text.error(
            f"{call.sql('spark')} is not a dataset",
            table,
            expected="a dataset, NEW(dataset), OLD(dataset), WHOLE(dataset), or a function of your own",
        )
    inner = call.expressions
    if len(inner) != 1 or not isinstance(inner[0], exp.Column) or inner[0].table:
        raise text.error(f"{call.name.upper()}(...) takes one dataset", table, expected=f"{call.name.upper()}(orders)")
    begin, end = span_of(call) or (0, 0)
    place = (begin, text.sql.index(")", end) + 1)
    return Scan(number, inner[0].name, mode, place, bool(table.alias))


def scan_number(table: exp.Expr) -> int | None:
    """Number of the scan that a table node represents. None for other nodes."""
    return table.meta.get(_SCAN_KEY)
