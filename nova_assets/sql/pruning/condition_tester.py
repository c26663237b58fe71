"""Tests whether a condition of a SELECT can hold, against all combinations of values that its sources can have."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC

from sqlglot import exp

from nova_assets.sql.evaluation.casting import Cast, comparison_casts
from nova_assets.sql.evaluation.operand import (
    UNKNOWN,
    Evaluable,
    Key,
    Value,
    Values,
    is_true_or_unknown,
)
from nova_assets.sql.pruning.conditions import Condition, with_source_nulled
from nova_assets.sql.pruning.pruning_run import VARIABLES_SOURCE, SelectInputs
from nova_assets.sql.pruning.select_source import PossibleValues, SelectSource, ValueTuple

_MAX_TESTS = 2_000_000
"""Most pairs of values for which a condition is evaluated, if equal values cannot be looked up. A condition with more
pairs prunes nothing.
"""


@dataclass(frozen=True)
class _EqualitySide:
    """One side of ``a = b``.

    Args:
        cast: casts the side's values, so that values of both sides can be compared.
    """

    evaluable: Evaluable
    cast: Cast

    def comparable_value(self, values: Values) -> Value:
        """The value, cast for the comparison. None for null. UNKNOWN if the value or the cast is undecided."""
        value = self.evaluable.value(values)
        if value is None or value is UNKNOWN:
            return value
        try:
            return self.cast(value)
        except (ArithmeticError, ValueError):  # undecided, or out of Python's range of dates or numbers
            return UNKNOWN


class ConditionTester:
    """Tests conditions of one SELECT. Where there are too many combinations, every test says that a row may pass.

    Results depend on the rows that the sources have left, so the query's memo does not keep them.

    Args:
        inputs: the sources and variables of the SELECT.
    """

    def __init__(self, inputs: SelectInputs) -> None:
        self.inputs = inputs

    def can_prune(self, condition: Condition, source: SelectSource) -> bool:
        """Whether rows of a source that cannot meet a condition may be left out.

        A sampled source needs all its rows. If an outer join can replace the source by nulls and the condition accepts
        these nulls, then a pruned row would leave a row with nulls behind.
        """
        if source.is_sampled:
            return False
        return source.name not in condition.nullable_sources or self.rejects_nulls(condition, source.name)

    def rejects_nulls(self, condition: Condition, source_name: str) -> bool:
        """Whether a condition drops all rows with nulls in place of a source."""
        with_nulls = self.inputs.memo.memoize(
            ("source nulled", id(condition.node), source_name), lambda: with_source_nulled(condition.node, source_name)
        )
        return with_nulls is not None and self.never_holds(condition, self.inputs.compile_expression(with_nulls))

    def never_holds(self, condition: Condition, evaluable: Evaluable) -> bool:
        """Whether a condition holds for no combination of values.

        Args:
            evaluable: the compiled condition, or the same condition with nulls in place of a source.
        """
        combinations = self.inputs.value_combinations(evaluable.keys_by_source, condition.nullable_sources)
        return combinations is not None and not any(is_true_or_unknown(evaluable.value(c)) for c in combinations)

    def filter_source(self, source: SelectSource, condition: Condition, evaluable: Evaluable) -> None:
        """Prune a source's rows that meet a condition with no combination of the other sources, or the values of a
        subquery's column. Of a subquery, the condition must use one column to prune anything.
        """
        keys = evaluable.keys_by_source[source.name]
        columns = [column for _, column in keys]
        if source.all_rows is not None:
            positions = source.rows.positions_by_values(columns)
            passing = self._passing_values(source, keys, positions.keys(), condition, evaluable)
            if passing is not None:
                source.rows = source.rows.at([n for values in passing for n in positions[values]])
        elif len(columns) == 1:
            output = source.output_values[columns[0]]
            passing = self._passing_values(source, keys, [(v,) for v in output.values], condition, evaluable)
            if passing is not None:
                source.output_values[columns[0]] = PossibleValues(output.type, frozenset(v for (v,) in passing))

    def _passing_values(
        self,
        source: SelectSource,
        keys: Sequence[Key],
        candidates: Collection[ValueTuple],
        condition: Condition,
        evaluable: Evaluable,
    ) -> list[ValueTuple] | None:
        """The candidates for the values of a source's columns that meet a condition together with some combination of
        the other sources. None if there are too many combinations.
        """
        others = {name: used for name, used in evaluable.keys_by_source.items() if name != source.name}
        other_values = self.inputs.value_combinations(others, condition.nullable_sources)
        if other_values is None:
            return None
        passing, undecided = self._look_up_equal(source, keys, candidates, condition, other_values)
        if len(undecided) * len(other_values) > _MAX_TESTS:
            return None
        for values in undecided:
            own = dict(zip(keys, values, strict=True))
            if any(is_true_or_unknown(evaluable.value({**other, **own})) for other in other_values):
                passing.append(values)
        return passing

    def _look_up_equal(
        self,
        source: SelectSource,
        keys: Sequence[Key],
        candidates: Collection[ValueTuple],
        condition: Condition,
        other_values: Sequence[Values],
    ) -> tuple[list[ValueTuple], Collection[ValueTuple]]:
        """For ``a = b``, the candidates that equal a value of the other sources, and the candidates that have to be
        tested one by one. For other conditions, these are all.
        """
        sides = self._equality_sides(condition, source.name)
        if sides is None:
            return [], candidates
        own, other = sides
        wanted = self._comparable_values(other, own, other_values)
        if UNKNOWN in wanted:
            return [], candidates

        def index_candidates() -> Mapping[Value, list[ValueTuple]]:
            index: dict[Value, list[ValueTuple]] = {}
            for values in candidates:
                value = own.comparable_value(dict(zip(keys, values, strict=True)))
                index.setdefault(value, []).append(values)
            return index

        if source.all_rows is None:
            index = index_candidates()
        else:
            index = source.rows.memoize(("equal", own.evaluable, other.evaluable.type, *keys), index_candidates)
        equal = [values for value in wanted if value is not None for values in index.get(value, ())]
        return equal, index.get(UNKNOWN, ())

    def _comparable_values(
        self, side: _EqualitySide, compared_with: _EqualitySide, combinations: Sequence[Values]
    ) -> frozenset[Value]:
        """All values of a side, cast for the comparison. If it uses variables alone, the scopes keep them."""

        def compute() -> frozenset[Value]:
            return frozenset(map(side.comparable_value, combinations))

        if side.evaluable.keys_by_source.keys() != {VARIABLES_SOURCE}:
            return compute()
        memo_key = ("comparable values", side.evaluable, compared_with.evaluable.type)
        return self.inputs.variables.rows.memoize(memo_key, compute)

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
                if own.type is None or other.type is None:
                    return None
                casts = comparison_casts(own.type, other.type, UTC)
                return None if casts is None else (_EqualitySide(own, casts[0]), _EqualitySide(other, casts[1]))
        return None
