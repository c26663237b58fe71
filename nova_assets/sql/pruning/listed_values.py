"""Datasets whose values decide which partitions a query reads, as in ``day IN (SELECT day FROM calendar WHERE open)``.

The rows of such a dataset take the place of its partitions in a pruning run. Everything else follows: conditions of the
subquery keep some of the rows, and the values that are left prune the partitions of other datasets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime

from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from nova_assets.model.partition_rule import FewRows
from nova_assets.model.schema import Schema
from nova_assets.sql.evaluation.operand import Value
from nova_assets.sql.pruning.indexed_rows import IndexedRows
from nova_assets.sql.pruning.pruning_run import iter_scan_numbers
from nova_assets.sql.query.resolved_query import Query


def datasets_with_listed_values(query: Query, root: Scope, partition_columns: frozenset[str]) -> frozenset[str]:
    """The datasets in subqueries that list values of partition columns (``IN``), if only their newest state is read.

    Args:
        partition_columns: lower-case names of the partition columns of all datasets.
    """
    listed = {query.scans[number].dataset for number in _listing_scans(root, partition_columns)}
    read_otherwise = {scan.dataset for scan in query.scans if scan.mode not in ("all", "whole")}
    return frozenset(listed - read_otherwise)


def _listing_scans(root: Scope, partition_columns: frozenset[str]) -> Iterator[int]:
    for scope in root.traverse():
        for inner in scope.subquery_scopes:
            parent = inner.expression.find_ancestor(exp.In, exp.Select)
            if isinstance(parent, exp.In) and _has_only(parent.this, partition_columns):
                yield from iter_scan_numbers(inner)


def _has_only(tested: exp.Expr, partition_columns: frozenset[str]) -> bool:
    columns = {column.name.lower() for column in tested.find_all(exp.Column)}
    return bool(columns) and columns <= partition_columns


def index_data_rows(rows: FewRows, schema: Schema) -> IndexedRows:
    """The rows of a dataset, with those columns whose values are compared as Spark compares them."""
    names = {name.lower(): name for name in (rows[0] if rows else ())}
    columns = {f.name.lower(): f.type.name for f in schema.fields if f.name.lower() in names}
    known = [
        column
        for column, type_ in columns.items()
        if type_ in _IS_VALUE and all(_IS_VALUE[type_](row[names[column]]) for row in rows)
    ]
    return IndexedRows([{column: _as_value(row[names[column]]) for column in known} for row in rows])


def _is_whole_number(value: Value) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool))


def _is_moment(value: Value) -> bool:
    return value is None or (isinstance(value, datetime) and value.tzinfo is not None)


def _is_date(value: Value) -> bool:
    return value is None or (isinstance(value, date) and not isinstance(value, datetime))


_IS_VALUE: Mapping[str, Callable[[Value], bool]] = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), _is_whole_number),
    "string": lambda value: value is None or isinstance(value, str),
    "boolean": lambda value: value is None or isinstance(value, bool),
    "date": _is_date,
    "timestamp": _is_moment,
}
"""Spark type -> whether a Python value is a value of it, for types that are compared as Spark compares them."""


def _as_value(value: Value) -> Value:
    return value.astimezone(UTC) if isinstance(value, datetime) else value
