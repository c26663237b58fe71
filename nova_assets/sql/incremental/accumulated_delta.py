"""The delta of a channel whose rows are groups of an accumulation."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from nova_assets.model.schema import DELETED
from nova_assets.sql.incremental.accumulation import ACCUMULATOR, StoredAccumulation
from nova_assets.sql.incremental.accumulation_sql import OLD, select_changed_groups, select_group_changes
from nova_assets.sql.incremental.expressions import column_of
from nova_assets.sql.incremental.maintenance_sql import CHANGED_GROUPS, MaintenanceSql
from nova_assets.sql.incremental.operator_sql import KEY, output_list, quote_column, select_over

_AGAIN = "nova_groups_again"


def add_changed_groups(
    relations: MaintenanceSql, stored: StoredAccumulation, stored_frame: str, is_frozen: str = ""
) -> str:
    """Add the relation with the groups that a change concerns, and return its name.

    Args:
        stored_frame: frame of the stored rows, with the hidden columns.
        is_frozen: condition over the columns of group keys for groups that are left out; empty if there are none.
    """
    rows = stored.accumulation.aggregation.input
    select = select_group_changes(
        stored, relations.change(rows), has_single_rows=relations.changed.has_single_rows(rows)
    )
    change = relations.add_unfrozen("nova_group_changes", select, is_frozen, is_read_often=bool(is_frozen))
    may_cancel_out = relations.changed.may_cancel_out(rows)
    groups = select_changed_groups(stored, change, stored_frame, rows_may_cancel_out=may_cancel_out)
    return relations.add_relation(CHANGED_GROUPS, groups, is_read_often=True)


def select_accumulated_delta(
    relations: MaintenanceSql, stored: StoredAccumulation, groups: str, *, removes_by_value: bool
) -> str:
    """A statement with the delta of a channel whose stored rows are groups with their accumulators.

    Args:
        groups: relation with the changed groups.
        removes_by_value: whether the old row of a changed group has to be removed. Otherwise the new row replaces the
            old row.
    """
    aggregation = stored.accumulation.aggregation
    new_row = _columns(stored, {n: f"{ACCUMULATOR}{n}" for n in stored.hidden})
    is_changed = "NOT nova_again AND NOT nova_is_same"
    if removes_by_value:
        old_row = output_list((f.name, column_of(f"{OLD}{n}")) for n, f in enumerate(stored.all_fields))
        is_removed = "nova_is_stored AND (nova_again OR NOT nova_is_same OR nova_is_empty)"
        parts = [
            f"SELECT {old_row}, TRUE AS {DELETED} FROM {groups} WHERE {is_removed}",
            f"SELECT {new_row}, FALSE AS {DELETED} FROM {groups} WHERE {is_changed} AND NOT nova_is_empty",
        ]
    else:
        parts = [f"SELECT {new_row}, nova_is_empty AS {DELETED} FROM {groups} WHERE {is_changed}"]
    again = _add_groups_again(relations, stored, groups, is_read_often=not removes_by_value)
    row_again = _columns(stored, {n: f.name for n, f in stored.hidden.items()})
    is_needed = "" if aggregation.group_keys else f" WHERE EXISTS (SELECT 1 FROM {groups} WHERE nova_again)"
    parts.append(f"SELECT {row_again}, FALSE AS {DELETED} FROM {again}{is_needed}")
    if not removes_by_value and aggregation.group_keys:
        parts.append(f"SELECT {new_row}, TRUE AS {DELETED} FROM {_groups_without_rows(stored, groups, again)}")
    return relations.with_relations(" UNION ALL ".join(parts))


def accumulated_rows(stored: StoredAccumulation, groups: pa.Table, *, removes_by_value: bool) -> pa.Table:
    """The rows of ``select_accumulated_delta``, if no group has to be computed again.

    Args:
        groups: the changed groups.
    """
    is_changed, is_empty = pc.invert(groups.column("nova_is_same")), groups.column("nova_is_empty")
    hidden = [f"{ACCUMULATOR}{n}" for n in stored.hidden]
    new_columns, names = [*stored.fields, *hidden], [f.name for f in stored.all_fields]
    if not removes_by_value:
        changed = groups.filter(is_changed)
        rows = changed.select(new_columns).rename_columns(names)
        return rows.append_column(DELETED, changed.column("nova_is_empty"))
    is_removed = pc.and_(groups.column("nova_is_stored"), pc.or_(is_changed, is_empty))
    removed = groups.filter(is_removed).select([f"{OLD}{n}" for n in range(len(names))]).rename_columns(names)
    added = groups.filter(pc.and_(is_changed, pc.invert(is_empty))).select(new_columns).rename_columns(names)
    parts = [(removed, True), (added, False)]
    with_flag = [rows.append_column(DELETED, pa.repeat(pa.scalar(flag), rows.num_rows)) for rows, flag in parts]
    return pa.concat_tables(with_flag, promote_options="permissive")


def _add_groups_again(
    relations: MaintenanceSql, stored: StoredAccumulation, groups: str, *, is_read_often: bool
) -> str:
    """Add the relation with those changed groups that are computed again from all their rows."""
    aggregation = stored.accumulation.aggregation
    rows = relations.rows(aggregation.input, "new")
    if aggregation.group_keys:
        keys = ", ".join(f"{KEY}{n}" for n in range(len(aggregation.group_keys)))
        select = f"SELECT {keys} FROM {groups} WHERE nova_again"
        again = relations.add_relation("nova_keys_again", select, is_read_often=True)
        select = relations.select_with_keys(rows, again, aggregation.group_keys)
        rows = relations.add_relation("nova_rows_again", select)
    operator = stored.accumulation.operator_with_hidden({n: f.name for n, f in stored.hidden.items()})
    return relations.add_relation(_AGAIN, select_over(operator, [rows]), is_read_often=is_read_often)


def _groups_without_rows(stored: StoredAccumulation, groups: str, again: str) -> str:
    """FROM clause of the stored groups that are to be computed again, and have no rows any more."""
    keys = enumerate(stored.accumulation.key_columns)
    is_same = " AND ".join(f"{again}.{quote_column(key)} <=> {groups}.{KEY}{n}" for n, key in keys)
    return f"{groups} LEFT ANTI JOIN {again} ON {is_same} WHERE nova_again AND nova_is_stored"


def _columns(stored: StoredAccumulation, hidden: dict[int, str]) -> str:
    """The channel's columns, from relations with the query's output columns.

    Args:
        hidden: number of a hidden accumulator -> its column in the relation.
    """
    visible = ((field.name, column_of(column)) for column, field in stored.fields.items())
    return output_list([*visible, *((stored.hidden[n].name, column_of(name)) for n, name in hidden.items())])
