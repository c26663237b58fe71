"""SQL that computes the change of a query's result from the changes of its datasets (as in DBSP: rows with weights).

Each operator becomes up to three relations of one statement: its rows before the change (*old*), its rows after the
change (*new*), and its *change*. A row of a change has a weight: 1 for an added row, -1 for a removed one. Spark pushes
the semi-joins with changed keys down to the datasets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatchmethod

from sqlglot import exp

from nova_assets.model.schema import DELETED, Field
from nova_assets.model.value_comparison import can_be_key, has_unequal_representations
from nova_assets.sql.incremental.accumulation import Accumulation
from nova_assets.sql.incremental.expressions import column_of
from nova_assets.sql.incremental.operators import (
    Aggregation,
    Distinct,
    Filter,
    GroupedOperator,
    Join,
    LateralView,
    Operator,
    Projection,
    Scan,
    SetOperation,
    UnionAll,
    Windowed,
    walk,
)
from nova_assets.sql.parse.dialect import DIALECT

WEIGHT = "nova_weight"
"""Column of a change: 1 for an added row, -1 for a removed one; after adding up, how often more or less often."""

RESULT = "nova_result"
"""Relation with the change of the result, added up: each different row once, with its weight."""

_KEY = "nova_key_"

_REPETITIONS = f"explode(array_repeat(0, CAST({WEIGHT} AS INT))) nova_rows AS nova_row"

_JOIN_WORDS = {
    "inner": "JOIN",
    "left": "LEFT JOIN",
    "right": "RIGHT JOIN",
    "full": "FULL JOIN",
    "left semi": "LEFT SEMI JOIN",
    "left anti": "LEFT ANTI JOIN",
}
_SET_WORDS = {
    "union": "UNION",
    "intersect": "INTERSECT",
    "except": "EXCEPT",
    "intersect all": "INTERSECT ALL",
    "except all": "EXCEPT ALL",
}


@dataclass(frozen=True)
class DatasetChange:
    """Names of the frames of a dataset in the SQL.

    Args:
        all_frame: the rows after the change.
        old_frame: the rows before the change.
        removed_frame: rows that were there before the change; None if the dataset only grows.
        added_frame: rows that are there after the change. A row of both frames has not changed.
        is_changed: whether there is a change.
    """

    all_frame: str
    old_frame: str
    removed_frame: str | None
    added_frame: str
    is_changed: bool = True


def select_keyed_delta(names: Mapping[str, str], key: Sequence[str]) -> str:
    """SELECT of the delta that a keyed channel takes: added rows, and deletions of keys that no added row has.

    Args:
        names: column of the result's change -> name of the channel's column.
        key: columns of the change that identify a row.
    """
    columns = _outputs((name, column_of(column)) for column, name in names.items())
    same_key = " AND ".join(f"removed.{quote_column(k)} <=> added.{quote_column(k)}" for k in key)
    return (
        f"SELECT {columns}, FALSE AS {DELETED} FROM {RESULT} LATERAL VIEW {_REPETITIONS} WHERE {WEIGHT} > 0 "
        f"UNION ALL SELECT {columns}, TRUE AS {DELETED} FROM {RESULT} AS removed WHERE {WEIGHT} < 0 "
        f"AND NOT EXISTS (SELECT 1 FROM {RESULT} AS added WHERE added.{WEIGHT} > 0 AND {same_key})"
    )


def select_multiset_delta(names: Mapping[str, str]) -> str:
    """SELECT of the delta that a ``Multiset`` channel takes. ``names`` as for ``select_keyed_delta``."""
    columns = _outputs((name, column_of(column)) for column, name in names.items())
    repetitions = f"explode(array_repeat(0, CAST(ABS({WEIGHT}) AS INT))) nova_rows AS nova_row"
    return f"SELECT {columns}, {WEIGHT} < 0 AS {DELETED} FROM {RESULT} LATERAL VIEW {repetitions}"


def select_missing_rows(names: Mapping[str, str], stored: str) -> str:
    """SELECT of removed rows that are stored less often than they are removed. ``names`` as for ``select_keyed_delta``.

    Args:
        stored: frame of the stored rows.
    """
    removed = f"(SELECT * FROM {RESULT} WHERE {WEIGHT} < 0) AS removed"
    is_equal = " AND ".join(
        f"removed.{quote_column(column)} <=> stored.{quote_column(name)}" for column, name in names.items()
    )
    columns = ", ".join(f"stored.{quote_column(name)}" for name in names.values())
    found = (
        f"SELECT {columns}, COUNT(*) AS nova_count FROM {{{stored}}} AS stored LEFT SEMI JOIN {removed} ON {is_equal}"
    )
    return (
        f"SELECT 1 FROM {removed} LEFT JOIN ({found} GROUP BY {columns}) AS stored ON {is_equal} "
        f"WHERE COALESCE(nova_count, 0) < -{WEIGHT} LIMIT 1"
    )


def select_growth(names: Mapping[str, str]) -> str:
    """SELECT of the rows that an append-only channel takes. A removed row is an error when Spark computes it. ``names``
    as for ``select_keyed_delta``.
    """
    columns = _outputs((name, column_of(column)) for column, name in names.items())
    count = f"IF({WEIGHT} > 0, {WEIGHT}, raise_error('a row of the result was removed'))"
    return f"SELECT {columns} FROM {RESULT} LATERAL VIEW explode(array_repeat(0, CAST({count} AS INT))) t AS nova_row"


def added_up_difference(rows_now: str, rows_before: str, columns: Sequence[str]) -> str:
    """Change from one result to another, added up."""
    both = f"{_select(columns, 1)} FROM {rows_now} UNION ALL {_select(columns, -1)} FROM {rows_before}"
    return _added_up(columns, both)


class MaintenanceSql:
    """Writes the relations of a query's operators.

    Args:
        changes: datasets that the query reads, by name.
    """

    def __init__(self, root: Operator, changes: Mapping[str, DatasetChange]) -> None:
        self.root = root
        self.changes = changes
        self._numbers = {id(operator): n for n, operator in enumerate(walk(root))}
        self._changed = {id(o) for o in walk(root) if self._reads_change(o)}
        self._relations: dict[str, str] = {}

    def statement(self, select_result: str) -> str:
        """The whole statement.

        Args:
            select_result: SELECT from ``nova_result``, the change of the result.
        """
        change = self.change(self.root)
        self._relation(RESULT, _added_up(self.root.columns, f"SELECT * FROM {change}"))
        return self._with_relations(select_result)

    def accumulating_statement(self, accumulation: Accumulation, stored: str, fields: Mapping[str, Field]) -> str:
        """A statement with the delta of a keyed channel whose stored rows are accumulators.

        Args:
            stored: frame of the stored rows.
            fields: output column -> the channel's column.
        """
        aggregation = accumulation.aggregation
        change = self._relation(
            "nova_group_changes", _group_changes(accumulation, self.change(aggregation.input), fields)
        )
        groups = self._relation("nova_groups", _changed_groups(accumulation, change, stored, fields))
        keys = [f"{_KEY}{n}" for n in range(len(accumulation.key_columns))]
        again = self._relation("nova_keys_again", f"SELECT {', '.join(keys)} FROM {groups} WHERE nova_again")
        pairs = [(_sql(k), name) for k, name in zip(aggregation.group_keys, keys, strict=True)]
        rows = self._relation(
            "nova_rows_again", f"SELECT * FROM {_semi_join(self.rows(aggregation.input, 'new'), again, pairs)}"
        )
        computed_again = self._relation("nova_groups_again", _sql_over(aggregation, [rows]))
        outputs = _outputs((field.name, column_of(column)) for column, field in fields.items())
        return self._with_relations(
            f"SELECT {outputs}, nova_is_empty AS {DELETED} FROM {groups} WHERE NOT nova_again AND NOT nova_is_same "
            f"UNION ALL SELECT {outputs}, FALSE AS {DELETED} FROM {computed_again}"
        )

    def _with_relations(self, select: str) -> str:
        relations = ", ".join(f"{name} AS ({body})" for name, body in self._relations.items())
        return f"WITH {relations} {select}"

    def rows_statement(self) -> str:
        """A statement that computes the whole result after the change by the operators."""
        rows = self.rows(self.root, "new")
        return self._with_relations(f"SELECT * FROM {rows}")

    def _reads_change(self, operator: Operator) -> bool:
        return any(isinstance(o, Scan) and self.changes[o.dataset].is_changed for o in walk(operator))

    def is_changed(self, operator: Operator) -> bool:
        """Whether a dataset that the operator reads has changed."""
        return id(operator) in self._changed

    def _relation(self, name: str, body: str) -> str:
        self._relations[name] = body
        return name

    # rows before and after the change

    def rows(self, operator: Operator, version: str) -> str:
        """Name of the relation with the operator's rows. ``version`` is ``new`` or ``old``."""
        version = version if self.is_changed(operator) else "new"
        name = f"nova_{self._numbers[id(operator)]}_{version}"
        if name not in self._relations:
            body = self._rows_sql(operator, version)
            self._relation(name, body)  # after the relations that the body reads
        return name

    def _rows_sql(self, operator: Operator, version: str) -> str:
        if isinstance(operator, Scan):
            change = self.changes[operator.dataset]
            frame = change.all_frame if version == "new" else change.old_frame
            return f"SELECT {_list(operator.columns)} FROM {{{frame}}}"
        return _sql_over(operator, [self.rows(i, version) for i in operator.inputs])

    # changes

    def change(self, operator: Operator) -> str:
        """Name of the relation with the operator's change."""
        name = f"nova_{self._numbers[id(operator)]}_change"
        if name not in self._relations:
            body = self._change_sql(operator) if self.is_changed(operator) else self._no_change_sql(operator)
            self._relation(name, body)
        return name

    def _no_change_sql(self, operator: Operator) -> str:
        return f"{_select(operator.columns, 1)} FROM {self.rows(operator, 'new')} WHERE FALSE"

    @singledispatchmethod
    def _change_sql(self, operator: Operator) -> str:
        raise NotImplementedError(type(operator).__name__)

    @_change_sql.register
    def _(self, operator: Scan) -> str:
        change = self.changes[operator.dataset]
        added = f"{_select(operator.columns, 1)} FROM {{{change.added_frame}}}"
        if change.removed_frame is None:
            return added
        both = f"{added} UNION ALL {_select(operator.columns, -1)} FROM {{{change.removed_frame}}}"
        is_comparable = all(
            t is not None and can_be_key(t) and not has_unequal_representations(t) for t in operator.columns.values()
        )
        return _added_up(operator.columns, both) if is_comparable else both

    @_change_sql.register(Projection)
    @_change_sql.register(Filter)
    @_change_sql.register(LateralView)
    def _(self, operator: Projection | Filter | LateralView) -> str:
        return _sql_over(operator, [self.change(operator.input)], with_weight=True)

    @_change_sql.register
    def _(self, operator: UnionAll) -> str:
        return _sql_over(operator, [self.change(operator.left), self.change(operator.right)], with_weight=True)

    @_change_sql.register
    def _(self, operator: Join) -> str:
        if operator.kind == "inner":
            return self._inner_join_change_sql(operator)
        left_keys, right_keys = [a for a, _ in operator.equal_keys], [b for _, b in operator.equal_keys]
        keys = self._changed_keys(operator, [(operator.left, left_keys), (operator.right, right_keys)])
        return self._again(operator, keys, [left_keys, right_keys])

    def _inner_join_change_sql(self, operator: Join) -> str:
        """One term for each changed side: its change with the other side before, or after, its own change."""
        left, right, terms = operator.left, operator.right, []
        if self.is_changed(left):
            terms.append(_join_sql(operator, self.change(left), self.rows(right, "new"), with_weight=True))
        if self.is_changed(right):
            terms.append(_join_sql(operator, self.rows(left, "old"), self.change(right), with_weight=True))
        return " UNION ALL ".join(terms)

    @_change_sql.register
    def _(self, operator: GroupedOperator) -> str:
        keys = self._changed_keys(operator, [(operator.input, operator.group_keys)])
        return self._again(operator, keys, [operator.group_keys])

    @_change_sql.register
    def _(self, operator: Distinct) -> str:
        columns = [column_of(name) for name in operator.columns]
        return self._again(operator, self._changed_keys(operator, [(operator.input, columns)]), [columns])

    @_change_sql.register
    def _(self, operator: SetOperation) -> str:
        if not operator.has_equal_types:
            return self._again(operator, None, [[], []])
        columns = [[column_of(name) for name in i.columns] for i in operator.inputs]
        keys = self._changed_keys(operator, list(zip(operator.inputs, columns, strict=True)))
        return self._again(operator, keys, columns)

    # groups that changed are computed again

    def _changed_keys(
        self, operator: Operator, keyed_inputs: Sequence[tuple[Operator, Sequence[exp.Expr]]]
    ) -> str | None:
        """Name of the relation with the keys of all changed input rows; None without keys."""
        if not keyed_inputs[0][1]:
            return None
        parts = [
            f"SELECT {', '.join(f'{_sql(k)} AS {_KEY}{n}' for n, k in enumerate(keys))} FROM {self.change(i)}"
            for i, keys in keyed_inputs
            if self.is_changed(i)
        ]
        names = ", ".join(f"{_KEY}{n}" for n in range(len(keyed_inputs[0][1])))
        name = f"nova_{self._numbers[id(operator)]}_keys"
        return self._relation(name, f"SELECT DISTINCT {names} FROM ({' UNION ALL '.join(parts)})")

    def _again(self, operator: Operator, keys: str | None, keys_by_input: Sequence[Sequence[exp.Expr]]) -> str:
        """The operator over the rows with changed keys, before and after the change."""
        number, parts = self._numbers[id(operator)], []
        for version, weight in (("new", 1), ("old", -1)):
            inputs = []
            for n, (operand, key_columns) in enumerate(zip(operator.inputs, keys_by_input, strict=True)):
                rows = self.rows(operand, version)
                if keys is not None:
                    pairs = [(_sql(k), f"{_KEY}{i}") for i, k in enumerate(key_columns)]
                    rows = self._relation(
                        f"nova_{number}_input_{n}_{version}", f"SELECT * FROM {_semi_join(rows, keys, pairs)}"
                    )
                inputs.append(rows)
            again = self._relation(f"nova_{number}_again_{version}", _sql_over(operator, inputs))
            parts.append(f"{_select(operator.columns, weight)} FROM {again}")
        return " UNION ALL ".join(parts)


def _group_changes(accumulation: Accumulation, change: str, fields: Mapping[str, Field]) -> str:
    """SELECT of what a change adds to the accumulators of each group."""
    aggregation = accumulation.aggregation
    single = (
        f"SELECT {_list(aggregation.input.columns)}, IF({WEIGHT} > 0, 1L, -1L) AS {WEIGHT} FROM {change} "
        f"LATERAL VIEW explode(array_repeat(0, CAST(ABS({WEIGHT}) AS INT))) nova_rows AS nova_row"
    )
    parts = [f"{_sql(k)} AS {_KEY}{n}" for n, k in enumerate(aggregation.group_keys)]
    for n, accumulator in enumerate(accumulation.accumulators):
        if accumulator.argument is None:
            parts.append(f"SUM({WEIGHT}) AS nova_count_{n}")
            continue
        value = _sql(accumulator.argument)
        parts.append(f"SUM(IF(({value}) IS NULL, 0L, {WEIGHT})) AS nova_count_{n}")
        if accumulator.kind == "sum":
            addend = f"CAST({value} AS {fields[accumulator.column].type})"
            parts.append(f"SUM(IF({WEIGHT} > 0, {addend}, -{addend})) AS nova_sum_{n}")
    keys = ", ".join(map(_sql, aggregation.group_keys))
    return f"SELECT {', '.join(parts)} FROM ({single}) GROUP BY {keys}"


def _changed_groups(accumulation: Accumulation, change: str, stored: str, fields: Mapping[str, Field]) -> str:
    """SELECT of the groups that a change concerns, with their new values.

    A sum becomes null if its last value is removed. Whether values are left is not known, so such a group is computed
    again (``nova_again``).
    """
    values, again, same = [], ["FALSE"], []
    for n, accumulator in enumerate(accumulation.accumulators):
        before, name = f"stored.{quote_column(fields[accumulator.column].name)}", quote_column(accumulator.column)
        if accumulator.kind == "count":
            value = f"COALESCE({before}, 0L) + nova_count_{n}"
        else:
            value = (
                f"CASE WHEN {before} IS NOT NULL THEN {before} + COALESCE(nova_sum_{n}, 0) "
                f"WHEN nova_count_{n} > 0 THEN nova_sum_{n} END"
            )
            again.append(f"nova_count_{n} < 0")
        value = f"CAST({value} AS {fields[accumulator.column].type})"
        values.append(f"{value} AS {name}")
        same.append(f"({value}) <=> {before}")
    row_count = next(n for n, a in enumerate(accumulation.accumulators) if a.column == accumulation.row_count)
    stored_count = f"stored.{quote_column(fields[accumulation.row_count].name)}"
    rows = f"COALESCE({stored_count}, 0L) + nova_count_{row_count}"
    wrong = "raise_error('the stored rows are not the result of the query')"
    is_empty = f"IF({rows} < 0, CAST({wrong} AS BOOLEAN), {rows} = 0)"
    keys = [f"{_KEY}{n} AS {quote_column(c)}, {_KEY}{n}" for n, c in enumerate(accumulation.key_columns)]
    pairs = [f"stored.{quote_column(fields[c].name)} <=> {_KEY}{n}" for n, c in enumerate(accumulation.key_columns)]
    return (
        f"SELECT {', '.join([*keys, *values])}, {is_empty} AS nova_is_empty, "
        f"({' OR '.join(again)}) AND {rows} > 0 AS nova_again, "
        f"({' AND '.join(same)}) OR ({rows} = 0 AND {stored_count} IS NULL) AS nova_is_same "
        f"FROM {change} LEFT JOIN {{{stored}}} AS stored ON {' AND '.join(pairs)}"
    )


def _semi_join(rows: str, keys: str, pairs: Iterable[tuple[str, str]]) -> str:
    """FROM clause of the rows whose key expressions equal a row of ``keys``; nulls equal nulls."""
    condition = " AND ".join(f"{expression} <=> {keys}.{name}" for expression, name in pairs)
    return f"{rows} LEFT SEMI JOIN {keys} ON {condition}"


def _added_up(columns: Iterable[str], change: str) -> str:
    names = _list(columns)
    return f"SELECT {names}, SUM({WEIGHT}) AS {WEIGHT} FROM ({change}) GROUP BY {names} HAVING SUM({WEIGHT}) <> 0"


def _sql_over(operator: Operator, inputs: Sequence[str], *, with_weight: bool = False) -> str:
    """SELECT of an operator over named relations.

    Args:
        with_weight: the relation is a change, whose weights are passed on.
    """
    weight = f", {WEIGHT}" if with_weight else ""
    if isinstance(operator, Projection):
        return f"SELECT {_outputs(operator.outputs)}{weight} FROM {inputs[0]}"
    if isinstance(operator, Filter):
        return f"SELECT * FROM {inputs[0]} WHERE {_sql(operator.condition)}"
    if isinstance(operator, LateralView):
        return f"SELECT {_list(operator.columns)}{weight} FROM {inputs[0]} {_sql(operator.view)}"
    if isinstance(operator, Aggregation):
        group = f" GROUP BY {', '.join(map(_sql, operator.group_keys))}" if operator.group_keys else ""
        having = f" HAVING {_sql(operator.having)}" if operator.having is not None else ""
        return f"SELECT {_outputs(operator.outputs)} FROM {inputs[0]}{group}{having}"
    if isinstance(operator, Windowed):
        return f"SELECT {_outputs(operator.outputs)} FROM {inputs[0]}"
    if isinstance(operator, Distinct):
        return f"SELECT DISTINCT * FROM {inputs[0]}"
    if isinstance(operator, Join):
        return _join_sql(operator, *inputs)
    if isinstance(operator, UnionAll):
        return f"SELECT * FROM {inputs[0]} UNION ALL SELECT * FROM {inputs[1]}"
    if isinstance(operator, SetOperation):
        return f"SELECT * FROM {inputs[0]} {_SET_WORDS[operator.kind]} SELECT * FROM {inputs[1]}"
    raise NotImplementedError(type(operator).__name__)


def _join_sql(operator: Join, left: str, right: str, *, with_weight: bool = False) -> str:
    condition = f" ON {_sql(operator.condition)}" if operator.condition is not None else ""
    word = _JOIN_WORDS[operator.kind] if condition else "CROSS JOIN"
    weight = f", {WEIGHT}" if with_weight else ""
    return f"SELECT {_list(operator.columns)}{weight} FROM {left} {word} {right}{condition}"


def _select(columns: Iterable[str], weight: int) -> str:
    return f"SELECT {_list(columns)}, CAST({weight} AS BIGINT) AS {WEIGHT}"


def _outputs(outputs: Iterable[tuple[str, exp.Expr]]) -> str:
    return ", ".join(f"{_sql(e)} AS {quote_column(name)}" for name, e in outputs)


def _list(columns: Iterable[str]) -> str:
    return ", ".join(map(quote_column, columns))


def quote_column(name: str) -> str:
    """A column's name in backticks."""
    return _sql(exp.to_identifier(name, quoted=True))


def _sql(expression: exp.Expr) -> str:
    """The expression in Spark's SQL. Braces would be taken for a frame."""
    return expression.sql(DIALECT).replace("{", "{{").replace("}", "}}")
