"""SQL of accumulations: new values of groups, from the stored rows and the change."""

from __future__ import annotations

from collections.abc import Mapping

from nova_assets.model.schema import Field
from nova_assets.sql.incremental.accumulation import Accumulation
from nova_assets.sql.incremental.operator_sql import KEY, WEIGHT, column_list, quote_column, to_sql


def select_group_changes(accumulation: Accumulation, change: str, fields: Mapping[str, Field]) -> str:
    """SELECT of what a change adds to the accumulators of each group."""
    aggregation = accumulation.aggregation
    single = (
        f"SELECT {column_list(aggregation.input.columns)}, IF({WEIGHT} > 0, 1L, -1L) AS {WEIGHT} FROM {change} "
        f"LATERAL VIEW explode(array_repeat(0, CAST(ABS({WEIGHT}) AS INT))) nova_rows AS nova_row"
    )
    parts = [f"{to_sql(k)} AS {KEY}{n}" for n, k in enumerate(aggregation.group_keys)]
    for n, accumulator in enumerate(accumulation.accumulators):
        if accumulator.argument is None:
            parts.append(f"SUM({WEIGHT}) AS nova_count_{n}")
            continue
        value = to_sql(accumulator.argument)
        parts.append(f"SUM(IF(({value}) IS NULL, 0L, {WEIGHT})) AS nova_count_{n}")
        if accumulator.kind == "sum":
            addend = f"CAST({value} AS {fields[accumulator.column].type})"
            parts.append(f"SUM(IF({WEIGHT} > 0, {addend}, -{addend})) AS nova_sum_{n}")
    keys = ", ".join(map(to_sql, aggregation.group_keys))
    return f"SELECT {', '.join(parts)} FROM ({single}) GROUP BY {keys}"


def select_changed_groups(accumulation: Accumulation, change: str, stored: str, fields: Mapping[str, Field]) -> str:
    """SELECT of the groups that a change concerns, with their new values.

    A sum becomes null if its last value is removed. Whether values are left is not known, so such a group is computed
    again (``nova_again``). ``nova_old_0``, ``nova_old_1``, ... are the stored values, if the group is stored
    (``nova_is_stored``).
    """
    values, again, same = [], ["FALSE"], []
    for n, accumulator in enumerate(accumulation.accumulators):
        before, name = f"stored.{quote_column(fields[accumulator.column].name)}", quote_column(accumulator.column)
        type_ = fields[accumulator.column].type
        change_of_sum = f"CAST(nova_sum_{n} AS {type_})"  # so that the addition adds one digit only
        if accumulator.kind == "count":
            value = f"COALESCE({before}, 0L) + nova_count_{n}"
        else:
            value = (
                f"CASE WHEN {before} IS NOT NULL THEN {before} + COALESCE({change_of_sum}, CAST(0 AS {type_})) "
                f"WHEN nova_count_{n} > 0 THEN {change_of_sum} END"
            )
            again.append(f"nova_count_{n} < 0")
        value = f"CAST({value} AS {type_})"
        values.append(f"{value} AS {name}")
        same.append(f"({value}) <=> {before}")
    row_count = next(n for n, a in enumerate(accumulation.accumulators) if a.column == accumulation.row_count)
    stored_count = f"stored.{quote_column(fields[accumulation.row_count].name)}"
    rows = f"COALESCE({stored_count}, 0L) + nova_count_{row_count}"
    wrong = "raise_error('the stored rows are not the result of the query')"
    key_names = ", ".join(f"{KEY}{n}" for n in range(len(accumulation.key_columns)))
    is_wrong = f"{rows} < 0 OR COUNT(*) OVER (PARTITION BY {key_names}) > 1"
    is_empty = f"IF({is_wrong}, CAST({wrong} AS BOOLEAN), {rows} = 0)"
    old_values = [f"stored.{quote_column(f.name)} AS nova_old_{n}" for n, f in enumerate(fields.values())]
    keys = [f"{KEY}{n} AS {quote_column(c)}, {KEY}{n}" for n, c in enumerate(accumulation.key_columns)]
    pairs = [f"stored.{quote_column(fields[c].name)} <=> {KEY}{n}" for n, c in enumerate(accumulation.key_columns)]
    return (
        f"SELECT {', '.join([*keys, *values, *old_values])}, {stored_count} IS NOT NULL AS nova_is_stored, "
        f"{is_empty} AS nova_is_empty, "
        f"({' OR '.join(again)}) AND {rows} > 0 AS nova_again, "
        f"({' AND '.join(same)}) OR ({rows} = 0 AND {stored_count} IS NULL) AS nova_is_same "
        f"FROM {change} LEFT JOIN {{{stored}}} AS stored ON {' AND '.join(pairs)}"
    )
