"""SELECTs of the delta that a channel takes, from the change of a query's result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nova_assets.model.merge import MergeModel, Multiset
from nova_assets.model.schema import DELETED
from nova_assets.sql.incremental.expressions import column_of
from nova_assets.sql.incremental.operator_sql import (
    REPETITIONS,
    WEIGHT,
    column_list,
    output_list,
    quote_column,
)

RESULT = "nova_result"
"""Relation with the change of the result, added up: each different row once, with its weight."""


def select_delta(merge: MergeModel, names: Mapping[str, str]) -> str:
    """SELECT of the delta that a channel takes.

    Args:
        merge: merge model of the channel.
        names: column of the result's change -> name of the channel's column.
    """
    if isinstance(merge, Multiset):
        return _select_multiset_delta(names)
    if merge.key:
        columns = {name.lower(): column for column, name in names.items()}
        return _select_keyed_delta(names, [columns[k.lower()] for k in merge.key])
    return _select_growth(names)


def _select_keyed_delta(names: Mapping[str, str], key: Sequence[str]) -> str:
    """SELECT of the delta that a keyed channel takes: added rows, and deletions of keys that no added row has.

    Args:
        names: column of the result's change -> name of the channel's column.
        key: columns of the change that identify a row.
    """
    columns = output_list((name, column_of(column)) for column, name in names.items())
    same_key = " AND ".join(f"removed.{quote_column(k)} <=> added.{quote_column(k)}" for k in key)
    return (
        f"SELECT {columns}, FALSE AS {DELETED} FROM {RESULT} LATERAL VIEW {REPETITIONS} WHERE {WEIGHT} > 0 "
        f"UNION ALL SELECT {columns}, TRUE AS {DELETED} FROM {RESULT} AS removed WHERE {WEIGHT} < 0 "
        f"AND NOT EXISTS (SELECT 1 FROM {RESULT} AS added WHERE added.{WEIGHT} > 0 AND {same_key})"
    )


def _select_multiset_delta(names: Mapping[str, str]) -> str:
    """SELECT of the delta that a ``Multiset`` channel takes. ``names`` as for ``select_keyed_delta``."""
    columns = output_list((name, column_of(column)) for column, name in names.items())
    repetitions = f"explode(array_repeat(0, CAST(ABS({WEIGHT}) AS INT))) nova_rows AS nova_row"
    return f"SELECT {columns}, {WEIGHT} < 0 AS {DELETED} FROM {RESULT} LATERAL VIEW {repetitions}"


def select_missing_rows(names: Mapping[str, str], stored: str, conditions: Sequence[str] = ()) -> str:
    """SELECT of removed rows that are stored less often than they are removed. ``names`` as for ``select_keyed_delta``.

    Args:
        stored: frame of the stored rows.
        conditions: conditions that each removed row fulfils, by which Spark skips stored rows.
    """
    removed = f"(SELECT * FROM {RESULT} WHERE {WEIGHT} < 0) AS removed"
    is_equal = " AND ".join(
        f"removed.{quote_column(column)} <=> stored.{quote_column(name)}" for column, name in names.items()
    )
    columns = ", ".join(f"stored.{quote_column(name)}" for name in names.values())
    found = (
        f"SELECT {columns}, COUNT(*) AS nova_count FROM {{{stored}}} AS stored LEFT SEMI JOIN {removed} ON {is_equal}"
    )
    found += f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return (
        f"SELECT 1 FROM {removed} LEFT JOIN ({found} GROUP BY {columns}) AS stored ON {is_equal} "
        f"WHERE COALESCE(nova_count, 0) < -{WEIGHT} LIMIT 1"
    )


def select_delta_once(merge: MergeModel, names: Mapping[str, str]) -> str:
    """SELECT of the delta that a channel takes. It reads the change of the result once, because rounded numbers may
    differ each time they are computed. ``names`` as for ``select_delta``.
    """
    if isinstance(merge, Multiset):
        return _select_multiset_delta(names)
    columns = output_list((name, column_of(column)) for column, name in names.items())
    key = {k.lower() for k in merge.key}
    key_columns = column_list(column for column, name in names.items() if name.lower() in key)
    is_replaced = f"MAX({WEIGHT} > 0) OVER (PARTITION BY {key_columns}) AS nova_is_replaced"
    return (
        f"SELECT {columns}, {WEIGHT} < 0 AS {DELETED} FROM (SELECT *, {is_replaced} FROM {RESULT}) "
        f"WHERE {WEIGHT} > 0 OR NOT nova_is_replaced"
    )


def _select_growth(names: Mapping[str, str]) -> str:
    """SELECT of the rows that an append-only channel takes. A removed row is an error when Spark computes it. ``names``
    as for ``select_keyed_delta``.
    """
    columns = output_list((name, column_of(column)) for column, name in names.items())
    count = f"IF({WEIGHT} > 0, {WEIGHT}, raise_error('a row of the result was removed'))"
    return f"SELECT {columns} FROM {RESULT} LATERAL VIEW explode(array_repeat(0, CAST({count} AS INT))) t AS nova_row"


def added_up_difference(rows_now: str, rows_before: str, columns: Sequence[str]) -> str:
    """Change from one result to another, added up.

    Spark fails to plan some correlated subqueries below a UNION, so this is a join of counted rows.
    """

    def counted(rows: str, name: str) -> str:
        names = column_list(columns)
        return f"(SELECT {names}, COUNT(*) AS nova_rows_{name} FROM {rows} GROUP BY {names}) AS {name}"

    values = _newest_values("nova_rows_now IS NOT NULL", columns)
    weight = "COALESCE(nova_rows_now, 0L) - COALESCE(nova_rows_before, 0L)"
    return (
        f"SELECT {values}, {weight} AS {WEIGHT} FROM {counted(rows_now, 'now')} "
        f"FULL JOIN {counted(rows_before, 'before')} ON {_all_equal(columns, '<=>')} WHERE {weight} <> 0"
    )


def select_keyed_difference(rows_now: str, rows_before: str, columns: Sequence[str], key: Sequence[str]) -> str:
    """SELECT of the delta that leads a keyed channel from one result to another. No key is null or repeated.

    Args:
        rows_now, rows_before: relations with the columns.
    """
    values = _newest_values("nova_is_now", columns)
    return (
        f"SELECT {values}, nova_is_now IS NULL AS {DELETED} "
        f"FROM (SELECT {column_list(columns)}, TRUE AS nova_is_now FROM {rows_now}) AS now "
        f"FULL JOIN (SELECT {column_list(columns)}, TRUE AS nova_is_before FROM {rows_before}) AS before "
        f"ON {_all_equal(key, '=')} "
        f"WHERE nova_is_now IS NULL OR nova_is_before IS NULL OR NOT ({_all_equal(columns, '<=>')})"
    )


def _newest_values(is_now: str, columns: Sequence[str]) -> str:
    """The columns of a SELECT from ``now`` if a condition is true, and otherwise from ``before``."""
    names = map(quote_column, columns)
    return ", ".join(f"IF({is_now}, now.{name}, before.{name}) AS {name}" for name in names)


def _all_equal(columns: Sequence[str], comparison: str) -> str:
    """Condition for ``now`` and ``before`` to have the same values in columns."""
    return " AND ".join(f"now.{quote_column(c)} {comparison} before.{quote_column(c)}" for c in columns)
