"""The delta of a channel whose rows are groups of an accumulation."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from nova_assets.model.schema import DELETED, DataType
from nova_assets.sql.incremental.accumulation import (
    ACCUMULATOR,
    FLOATS,
    MAX_PRECISION,
    Accumulation,
    Accumulator,
    StoredAccumulation,
)
from nova_assets.sql.incremental.maintenance_sql import CHANGED_GROUPS, MaintenanceSql
from nova_assets.sql.incremental.operator_sql import (
    KEY,
    WEIGHT,
    column_list,
    output_list,
    quote_column,
    select_over,
    to_sql,
)
from nova_assets.sql.incremental.operators import column_of

OLD = "nova_old_"
"""Beginning of the names of stored values: those of the output columns, then those of the hidden columns."""


def select_group_changes(stored: StoredAccumulation, change: str, *, has_single_rows: bool) -> str:
    """SELECT of what a change adds to the accumulators of each group.

    ``nova_change_0``, ``nova_change_1``, ... are added numbers, added sums, and the least or greatest added values.
    ``nova_lost_0``, ... are the least or greatest values of removed rows. ``nova_values_0``, ... are the numbers of
    values of sums that may exceed their type.

    Args:
        change: relation with the change of the grouped rows.
        has_single_rows: whether all weights are 1 or -1.
    """
    accumulation = stored.accumulation
    aggregation = accumulation.aggregation
    single = f"SELECT * FROM {change}"
    if not has_single_rows:
        single = (
            f"SELECT {column_list(aggregation.input.columns)}, IF({WEIGHT} > 0, 1L, -1L) AS {WEIGHT} FROM {change} "
            f"LATERAL VIEW explode(array_repeat(0, CAST(ABS({WEIGHT}) AS INT))) nova_rows AS nova_row"
        )
    parts = [f"{to_sql(k)} AS {KEY}{n}" for n, k in enumerate(aggregation.group_keys)]
    for n, accumulator in enumerate(accumulation.accumulators):
        parts += _group_changes(n, accumulator, stored.type_of(n))
    group = f" GROUP BY {', '.join(map(to_sql, aggregation.group_keys))}" if aggregation.group_keys else ""
    return f"SELECT {', '.join(parts)} FROM ({single}){group}"


def _group_changes(number: int, accumulator: Accumulator, type_: DataType) -> Iterator[str]:
    if accumulator.argument is None:
        yield f"COALESCE(SUM({WEIGHT}), 0L) AS nova_change_{number}"
        return
    value = f"({to_sql(accumulator.argument)})"
    if accumulator.kind == "count":
        yield f"COALESCE(SUM(IF({value} IS NULL, 0L, {WEIGHT})), 0L) AS nova_change_{number}"
    elif accumulator.kind == "sum":
        addend = f"CAST({value} AS {_decimal_if_bigint(type_)})"
        add_up = "TRY_SUM" if type_.name == "decimal" and may_exceed_type(type_) else "SUM"
        yield f"{add_up}(IF({WEIGHT} > 0, {addend}, -{addend})) AS nova_change_{number}"
        if may_exceed_type(type_):
            yield f"COUNT({value}) AS nova_values_{number}"
    else:
        yield f"{accumulator.kind}(IF({WEIGHT} > 0, {value}, NULL)) AS nova_change_{number}"
        yield f"{accumulator.kind}(IF({WEIGHT} < 0, {value}, NULL)) AS nova_lost_{number}"


def select_changed_groups(
    stored: StoredAccumulation, change: str, stored_frame: str, *, rows_may_cancel_out: bool
) -> str:
    """SELECT of the groups that a change concerns, with their new values.

    A group is computed again (``nova_again``) if its accumulators are not stored, if it may have lost its least or
    greatest value, or if it has too many rows for an exact average. Without group keys, all rows are one group, which
    always exists. With ``HAVING``, a group that is not stored may have rows, and is computed again. ``nova_old_0``,
    ``nova_old_1``, ... are the stored values, if the group is stored (``nova_is_stored``).

    Args:
        change: relation of ``select_group_changes``.
        rows_may_cancel_out: whether an added row may equal a removed row, and is not there after the change.
    """
    accumulation = stored.accumulation
    values = [
        f"CAST(CASE WHEN NOT nova_again AND NOT nova_is_empty THEN {to_sql(e)} END AS {stored.fields[c].type}) "
        f"AS {quote_column(c)}"
        for c, e in accumulation.values.items()
    ]
    others = [
        *map(quote_column, accumulation.key_columns),
        *(f"{KEY}{n}" for n in range(len(accumulation.key_columns))),
        *(f"{ACCUMULATOR}{n}" for n in accumulation.hidden),
        *(f"{OLD}{n}" for n in range(len(stored.fields) + len(stored.hidden))),
        *("nova_is_stored", f"{_is_left_out(accumulation)} AS nova_is_empty", "nova_again", "nova_is_same"),
    ]
    accumulators = _select_new_accumulators(stored, change, stored_frame, rows_may_cancel_out=rows_may_cancel_out)
    return f"SELECT {', '.join([*values, *others])} FROM ({accumulators})"


def _is_left_out(accumulation: Accumulation) -> str:
    """Whether the result does not have a group: it has no rows, or does not fulfil ``HAVING``."""
    if accumulation.having is None:
        return "nova_is_empty"
    is_kept = f"CASE WHEN NOT nova_again AND NOT nova_is_empty THEN {to_sql(accumulation.having)} END"
    return f"nova_is_empty OR NOT (nova_again OR COALESCE({is_kept}, FALSE))"


def _select_new_accumulators(
    stored: StoredAccumulation, change: str, stored_frame: str, *, rows_may_cancel_out: bool
) -> str:
    accumulation = stored.accumulation
    new = [_new_value(stored, n) for n in range(len(accumulation.accumulators))]
    before = [_stored_value(stored, n) for n in range(len(new))]
    is_known = " AND ".join(_are_stored(stored, before))
    is_stored, rows, has_keys = "COALESCE(nova_is_stored, FALSE)", new[0], bool(accumulation.key_columns)
    is_complete = has_keys and accumulation.having is None  # whether a group that is not stored has no rows
    is_unknown = f"{is_stored} AND NOT ({is_known})" if is_complete else f"NOT ({is_stored} AND {is_known})"
    is_without_rows = f"{rows} = 0" if has_keys else "FALSE"
    again = [
        is_unknown,
        *_reasons_to_compute_again(stored, before, new),
        *_lost_values(stored, before, rows_may_cancel_out),
    ]
    same = [f"{value} <=> {before[n]}" for n, value in enumerate(new) if stored.field_of(n)]
    wrong = "raise_error('the stored rows are not the result of the query')"
    key_names = ", ".join(f"{KEY}{n}" for n in range(len(accumulation.key_columns)))
    window = f"PARTITION BY {key_names}" if has_keys else ""
    is_wrong = f"{rows} < 0 OR COUNT(*) OVER ({window}) > 1"
    is_empty = f"IF({is_wrong}, CAST({wrong} AS BOOLEAN), {is_without_rows})"
    columns = [
        *(f"{KEY}{n}" for n in range(len(accumulation.key_columns))),
        *(f"{KEY}{n} AS {quote_column(c)}" for n, c in enumerate(accumulation.key_columns)),
        *(f"{value} AS {ACCUMULATOR}{n}" for n, value in enumerate(new)),
        *(
            f"stored.{quote_column(f.name)} AS {OLD}{n}"
            for n, f in enumerate((*stored.fields.values(), *stored.hidden.values()))
        ),
        f"{is_stored} AS nova_is_stored",
        f"IF({is_unknown}, FALSE, {is_empty}) AS nova_is_empty",
        f"({' OR '.join(f'({r})' for r in again)}) AND ({is_unknown} OR NOT ({is_without_rows})) AS nova_again",
        f"NOT ({is_unknown}) AND (({is_stored} AND {' AND '.join(same)}) OR (NOT {is_stored} AND {is_without_rows})) "
        "AS nova_is_same",
    ]
    pairs = [
        f"stored.{quote_column(stored.fields[c].name)} <=> {KEY}{n}" for n, c in enumerate(accumulation.key_columns)
    ]
    return (
        f"SELECT {', '.join(columns)} FROM {change} LEFT JOIN (SELECT *, TRUE AS nova_is_stored "
        f"FROM {{{stored_frame}}}) AS stored ON {' AND '.join(pairs) if has_keys else 'TRUE'}"
    )


def _are_stored(stored: StoredAccumulation, before: list[str]) -> Iterator[str]:
    """Conditions for the accumulators of a stored group to be known. Rows that something else has written may have
    nulls in hidden columns. A sum without values is null, too; so is a least value, which then counts as not known.
    """
    for n, accumulator in enumerate(stored.accumulation.accumulators):
        is_hidden = n in stored.hidden
        if accumulator.kind == "count" and stored.field_of(n):
            yield f"{before[n]} IS NOT NULL"
        elif accumulator.count is not None and stored.field_of(accumulator.count):
            yield f"({before[n]} IS NOT NULL OR {before[accumulator.count]} = 0)"
        elif is_hidden:
            yield f"{before[n]} IS NOT NULL"


def _stored_value(stored: StoredAccumulation, number: int) -> str:
    field = stored.field_of(number)
    return "CAST(NULL AS BIGINT)" if field is None else f"stored.{quote_column(field.name)}"


def _new_value(stored: StoredAccumulation, number: int) -> str:
    """Value of an accumulator after the change."""
    accumulator, type_ = stored.accumulation.accumulators[number], stored.type_of(number)
    before, change = _stored_value(stored, number), f"nova_change_{number}"
    if accumulator.kind == "count":
        return f"CAST(COALESCE({before}, 0L) + {change} AS {type_})"
    if accumulator.kind in ("min", "max"):
        best = "LEAST" if accumulator.kind == "min" else "GREATEST"
        return f"CAST({best}({before}, {change}) AS {type_})"
    assert accumulator.count is not None
    total = _total(stored, number)
    if may_exceed_type(type_):
        total = f"IF({_can_be_added(stored, number)}, {total}, NULL)"
    has_values = f"{_new_value(stored, accumulator.count)} > 0"
    if stored.field_of(accumulator.count) is None:
        has_values = f"{before} IS NOT NULL OR nova_change_{accumulator.count} > 0"
    return f"CASE WHEN {has_values} THEN CAST({total} AS {type_}) END"


def _reasons_to_compute_again(stored: StoredAccumulation, before: list[str], new: list[str]) -> Iterator[str]:
    accumulation = stored.accumulation
    for n, accumulator in enumerate(accumulation.accumulators):
        if accumulator.kind == "count" and stored.field_of(n) is None:
            yield f"nova_change_{n} < 0"
        if accumulator.kind == "sum" and stored.type_of(n).name in FLOATS:
            # nothing can be subtracted from an infinite sum, or from a sum that is no number
            yield f"NOT COALESCE(ABS({new[n]}) < CAST('Infinity' AS DOUBLE), TRUE)"
        if accumulator.kind == "sum" and may_exceed_type(stored.type_of(n)):
            yield f"(nova_change_{n} IS NULL AND nova_values_{n} > 0) OR NOT ({_can_be_added(stored, n)})"
    for number, limit in accumulation.count_limits.items():
        yield f"{new[number]} >= {limit}L"


def may_exceed_type(type_: DataType) -> bool:
    """Whether a sum may have more digits than its type. Spark then fails, or returns another number or null."""
    return type_.name == "bigint" or (type_.name == "decimal" and type_.args[0] == MAX_PRECISION)


def _decimal_if_bigint(type_: DataType) -> DataType:
    """Type in which values are added up whose sum has a type. The change of a sum of integers can be beyond the
    greatest integer although the sum is not.
    """
    return DataType("decimal", (MAX_PRECISION - 1, 0)) if type_.name == "bigint" else type_


def _total(stored: StoredAccumulation, number: int) -> str:
    """A stored sum and its change, added up."""
    type_ = _decimal_if_bigint(stored.type_of(number))
    zero = f"CAST(0 AS {type_})"  # a cast of the change, so that the addition adds one digit only
    parts = (_stored_value(stored, number), f"nova_change_{number}")
    return " + ".join(f"COALESCE(CAST({part} AS {type_}), {zero})" for part in parts)


def _can_be_added(stored: StoredAccumulation, number: int) -> str:
    """Condition for a stored sum and its change to have a sum of their type: for decimals, that both are far from the
    greatest value.
    """
    type_ = stored.type_of(number)
    if type_.name == "bigint":
        low, high = (f"CAST('{value}' AS {_decimal_if_bigint(type_)})" for value in (-(2**63), 2**63 - 1))
        return f"{_total(stored, number)} BETWEEN {low} AND {high}"
    limit = f"CAST('1{'0' * (type_.args[0] - type_.args[1] - 2)}' AS {type_})"
    parts = (_stored_value(stored, number), f"CAST(nova_change_{number} AS {type_})")
    return " AND ".join(f"COALESCE(ABS({part}) < {limit}, TRUE)" for part in parts)


def _lost_values(stored: StoredAccumulation, before: list[str], rows_may_cancel_out: bool) -> Iterator[str]:
    """Whether a group may have lost its least or greatest value, which then follows from all its rows only.

    An added value is sure to be there after the change if no removed row has such a value, or if added rows and removed
    rows do not cancel out.
    """
    for n, accumulator in enumerate(stored.accumulation.accumulators):
        if accumulator.kind in ("min", "max"):
            added, lost, beyond = f"nova_change_{n}", f"nova_lost_{n}", "<" if accumulator.kind == "min" else ">"
            is_replaced = f"{added} {beyond} {lost}" if rows_may_cancel_out else f"{added} {beyond}= {before[n]}"
            is_lost = f"COALESCE({lost} {beyond}= {before[n]}, TRUE)"
            yield f"{lost} IS NOT NULL AND {is_lost} AND NOT COALESCE({is_replaced}, FALSE)"


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
