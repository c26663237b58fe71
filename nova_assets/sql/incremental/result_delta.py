"""The change of a query's result (the relation ``nova_result``), and the delta that a channel takes from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nova_assets.model.merge import MergeModel, Multiset
from nova_assets.model.schema import DELETED
from nova_assets.sql.incremental.maintenance_sql import RESULT, MaintenanceSql, can_be_added_up
from nova_assets.sql.incremental.operator_sql import (
    KEY,
    REPETITIONS,
    WEIGHT,
    column_list,
    frozen_column,
    output_list,
    quote_column,
    select_with_weight,
    sum_weights,
    to_sql,
)
from nova_assets.sql.incremental.operators import Filter, GroupedOperator, Projection, column_of


def add_result(relations: MaintenanceSql, is_frozen: str = "") -> None:
    """Add the change of the result.

    Args:
        is_frozen: condition for rows that are left out; empty if there are none.
    """
    change = relations.change(relations.root)
    is_added_up_here = relations.adds_up and can_be_added_up(relations.root)
    if is_added_up_here and relations.add_added_up(RESULT, f"SELECT *{frozen_column(is_frozen)} FROM {change}"):
        return
    body = sum_weights(relations.root.columns, f"SELECT * FROM {change}")
    relations.add_unfrozen(RESULT, body, is_frozen, is_read_often=not is_added_up_here)  # or it has too many rows


def add_result_by_group(relations: MaintenanceSql, stored: str, names: Mapping[str, str], is_frozen: str = "") -> None:
    """Add the change of a result whose rows depend on the order of other rows of their group. The change is the
    difference between all rows of the changed groups as they are now, and as they are stored. Arguments as for
    ``add_result_by_key``.
    """
    grouped = relations.root
    while isinstance(grouped, Projection | Filter):
        grouped = grouped.input
    assert isinstance(grouped, GroupedOperator)
    keys = relations.changed_keys(grouped)
    _add_difference(relations, keys, relations.root.group_columns, stored, names, is_frozen)


def add_result_by_key(
    relations: MaintenanceSql, key: Sequence[str], stored: str, names: Mapping[str, str], is_frozen: str = ""
) -> None:
    """Add the change of a result with rounded numbers. Rows do not cancel out if their digits differ, so the change is
    the difference between the rows with changed keys as they are now, and as they are stored.

    Args:
        key: columns that identify a row, without rounded numbers.
        stored: frame of the stored rows.
        names: output column -> name of the channel's column.
        is_frozen: condition for rows that are left out; empty if there are none.
    """
    key_list = ", ".join(f"{to_sql(column_of(k))} AS {KEY}{n}" for n, k in enumerate(key))
    changed = f"SELECT DISTINCT {key_list} FROM {relations.change(relations.root)}"
    keys = relations.add_relation("nova_result_keys", changed, is_read_often=True) if key else None
    _add_difference(relations, keys, key, stored, names, is_frozen)


def _add_difference(
    relations: MaintenanceSql,
    keys: str | None,
    key: Sequence[str],
    stored: str,
    names: Mapping[str, str],
    is_frozen: str,
) -> None:
    """Add the difference between the rows with some keys as they are now, and as they are stored.

    Args:
        keys: relation with the keys; None if all rows are compared.
        key: columns of the result with the values of these keys.
    """
    root = relations.root
    stored_columns = output_list((column, column_of(name)) for column, name in names.items())
    sides = [
        relations.rows(root, "new"),
        relations.add_relation("nova_stored", f"SELECT {stored_columns} FROM {{{stored}}}"),
    ]
    if keys is not None:
        columns = [column_of(k) for k in key]
        sides = [
            relations.add_relation(f"nova_result_{n}", relations.select_with_keys(side, keys, columns))
            for n, side in enumerate(sides)
        ]
    parts = [
        f"{select_with_weight(root.columns, weight)} FROM {side}" for weight, side in zip((1, -1), sides, strict=True)
    ]
    body = sum_weights(root.columns, " UNION ALL ".join(parts))
    relations.add_unfrozen(RESULT, body, is_frozen, is_read_often=True)


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
