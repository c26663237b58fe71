"""The relation ``nova_result`` of a maintenance: the change of the result, added up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nova_assets.sql.incremental.delta_sql import RESULT
from nova_assets.sql.incremental.expressions import column_of
from nova_assets.sql.incremental.maintenance_sql import MaintenanceSql, can_be_added_up
from nova_assets.sql.incremental.operator_sql import (
    KEY,
    frozen_column,
    output_list,
    select_with_weight,
    sum_weights,
    to_sql,
)
from nova_assets.sql.incremental.operators import Filter, GroupedOperator, Projection


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
    keys = relations.changed_keys(grouped, [(grouped.input, grouped.group_keys)])
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
