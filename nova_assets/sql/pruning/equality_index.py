"""Equality by index: for ``a = b``, the rows of one source that equal a value of the other sources are looked up
instead of evaluated one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from nova_assets.model.schema import DataType
from nova_assets.sql.evaluation.casting import Cast, comparison_casts
from nova_assets.sql.evaluation.operand import UNKNOWN, Evaluable, Key, Undecided, Value, Values
from nova_assets.sql.pruning.conditions import Condition
from nova_assets.sql.pruning.indexed_rows import ValueTuple
from nova_assets.sql.pruning.select_inputs import VARIABLES_SOURCE, SelectInputs
from nova_assets.sql.pruning.select_source import SelectSource


@dataclass(frozen=True)
class _EqualitySide:
    """One side of ``a = b``.

    Args:
        to_comparable: casts the side's values, so that values of both sides can be compared.
    """

    node: exp.Expr
    evaluable: Evaluable
    type: DataType
    to_comparable: Cast


class EqualityMatcher:
    """Decides ``a = b`` between one source and the other sources of a SELECT, by lookups.

    Args:
        inputs: the sources and variables of the SELECT.
    """

    def __init__(self, inputs: SelectInputs) -> None:
        self.inputs = inputs

    def find_matching_rows(
        self, condition: Condition, source: SelectSource, columns: Sequence[str], other_values: Sequence[Values]
    ) -> list[ValueTuple] | None:
        """The values of some columns of a source for which ``a = b`` holds. None if the index cannot decide, or if the
        source has lost rows already.

        Args:
            columns: the columns of the source that the condition uses.
            other_values: the combinations of values of the other sources.
        """
        all_rows = source.unfiltered_rows
        sides = None if all_rows is None else self._equality_sides(condition, source.name)
        if all_rows is None or sides is None:
            return None
        own, other = sides
        wanted_values = self._comparable_values(other, other_values)
        keys = [(source.name, c) for c in columns]
        index = all_rows.memoize(
            ("expression index", self._expression_key(own), *columns),
            lambda: ExpressionIndex(own.evaluable, keys, all_rows.positions_by_values(columns)),
        )
        rows_by_comparable = index.rows_by_comparable(other.type, own.to_comparable)
        if rows_by_comparable is None or wanted_values is None:
            return None
        return [row for value in wanted_values for row in rows_by_comparable.get(value, ())]

    def make_equality_test(
        self, condition: Condition, source_name: str, other_values: Sequence[Values]
    ) -> Callable[[Values], bool | None] | None:
        """Test whether ``a = b`` holds for some values of one source and any combination of the others. The test
        returns None if it cannot decide. None instead of a test if the condition has another form.
        """
        sides = self._equality_sides(condition, source_name)
        if sides is None:
            return None
        own, other = sides
        wanted_values = self._comparable_values(other, other_values)
        if wanted_values is None:
            return None

        def equals_other(source_values: Values) -> bool | None:
            value = own.evaluable.value(source_values)
            comparable = None if value is None else comparable_or_none(value, own.to_comparable)
            return None if comparable is None else comparable in wanted_values

        return equals_other

    def _equality_sides(self, condition: Condition, source_name: str) -> tuple[_EqualitySide, _EqualitySide] | None:
        """The side of one source and the side of the others. None if the condition has another form, depends on data,
        or compares types that cannot be compared.
        """
        equality = condition.node.unnest()
        if not isinstance(equality, exp.EQ):
            return None
        for own_node, other_node in (
            (equality.this, equality.expression),
            (equality.expression, equality.this),
        ):
            own, other = self.inputs.compile_expression(own_node), self.inputs.compile_expression(other_node)
            is_separable = own.keys_by_source.keys() == {source_name} and source_name not in other.keys_by_source
            if is_separable and not own.depends_on_data and not other.depends_on_data:
                return self._with_casts(own_node, own, other_node, other)
        return None

    def _with_casts(
        self, own_node: exp.Expr, own: Evaluable, other_node: exp.Expr, other: Evaluable
    ) -> tuple[_EqualitySide, _EqualitySide] | None:
        if own.type is None or other.type is None:
            return None
        casts = comparison_casts(own.type, other.type, self.inputs.pruning_run.zone)
        if casts is None:
            return None
        return (
            _EqualitySide(own_node, own, own.type, casts[0]),
            _EqualitySide(other_node, other, other.type, casts[1]),
        )

    def _comparable_values(self, side: _EqualitySide, combinations: Sequence[Values]) -> frozenset[Value] | None:
        """All non-null values of a side, cast for the comparison. None if one of them is unknown."""
        values = self._values_of_side(side, combinations)
        comparables = [comparable_or_none(v, side.to_comparable) for v in values if v is not None]
        return None if None in comparables else frozenset(comparables)

    def _values_of_side(self, side: _EqualitySide, combinations: Sequence[Values]) -> Collection[Value]:
        """All values of a side. If it uses variables alone and no scope is pruned, the scopes keep them."""
        all_scopes = self.inputs.variables.unfiltered_rows if _uses_variables_alone(side.evaluable) else None
        if not all_scopes:
            return frozenset(map(side.evaluable.value, combinations))
        return all_scopes.memoize(
            ("expression values", self._expression_key(side)),
            lambda: frozenset(map(side.evaluable.value, combinations)),
        )

    def _expression_key(self, side: _EqualitySide) -> Hashable:
        """Memo key of an expression, for memos that several queries share. An expression of variables alone has the
        same values in all queries, so its key is its text. Only queries with the same header share scopes, so the
        variables have the same types.
        """
        if not _uses_variables_alone(side.evaluable):
            return id(side.evaluable)
        text = self.inputs.memo.memoize(("expression text", id(side.node)), lambda: side.node.sql("spark"))
        return text, str(self.inputs.pruning_run.zone)


def _uses_variables_alone(evaluable: Evaluable) -> bool:
    return evaluable.keys_by_source.keys() == {VARIABLES_SOURCE}


class ExpressionIndex:
    """Rows of column values, indexed by the value of an expression.

    Args:
        expression: the expression.
        keys: the columns of the rows, in order.
        rows: the rows of values.
    """

    def __init__(self, expression: Evaluable, keys: Sequence[Key], rows: Iterable[tuple[Value, ...]]) -> None:
        self.expression = expression  # keeps the object alive, because callers use its id as a key
        self.rows_by_value: dict[Value, list[tuple[Value, ...]]] = {}
        for row in rows:
            self.rows_by_value.setdefault(expression.value(dict(zip(keys, row, strict=True))), []).append(row)
        self._rows_by_type: dict[DataType, Mapping[Value, Sequence[tuple[Value, ...]]] | None] = {}

    def rows_by_comparable(
        self, other_type: DataType, to_comparable: Cast
    ) -> Mapping[Value, Sequence[tuple[Value, ...]]] | None:
        """Value of the expression, cast for a comparison -> the rows with this value. None if one of the values is
        unknown.

        Args:
            other_type: Spark type of the other side of the comparison.
            to_comparable: casts the expression's values for the comparison.
        """
        if other_type not in self._rows_by_type:
            self._rows_by_type[other_type] = self._group_by_comparable(to_comparable)
        return self._rows_by_type[other_type]

    def _group_by_comparable(self, to_comparable: Cast) -> Mapping[Value, Sequence[tuple[Value, ...]]] | None:
        found: dict[Value, list[tuple[Value, ...]]] = {}
        for value, rows in self.rows_by_value.items():
            if value is None:  # null equals nothing
                continue
            comparable = comparable_or_none(value, to_comparable)
            if comparable is None:
                return None
            found.setdefault(comparable, []).extend(rows)
        return found


def comparable_or_none(value: Value, to_comparable: Cast) -> Value | None:
    """A non-null value, cast for a comparison. None if the value is unknown or the cast is undecided."""
    if value is UNKNOWN:
        return None
    try:
        return to_comparable(value)
    except Undecided:
        return None
