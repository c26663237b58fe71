"""Tests whether a condition of a SELECT can hold, against all combinations of values that its sources can have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from math import prod

from nova_assets.sql.evaluation.operand import Evaluable, Key, Value, Values, is_true_or_unknown
from nova_assets.sql.pruning.conditions import Condition, with_source_nulled
from nova_assets.sql.pruning.equality_index import EqualityMatcher
from nova_assets.sql.pruning.select_inputs import SelectInputs
from nova_assets.sql.pruning.select_source import MAX_COMBINATIONS, SelectSource

_MAX_TESTS = 2_000_000
"""Most pairs of values for which a condition is evaluated, if equal values cannot be looked up. A condition with more
pairs prunes nothing.
"""


class ConditionTester:
    """Tests conditions of one SELECT. Where there are too many combinations, every test says that a row may pass.

    Results depend on the rows that the sources have left, so the query's memo does not keep them.

    Args:
        inputs: the sources and variables of the SELECT.
    """

    def __init__(self, inputs: SelectInputs) -> None:
        self.inputs = inputs
        self._equality_matcher = EqualityMatcher(inputs)

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
        combinations = self._value_combinations(condition, evaluable.keys_by_source)
        return combinations is not None and not any(is_true_or_unknown(evaluable.value(c)) for c in combinations)

    def passing_positions(self, source: SelectSource, condition: Condition, evaluable: Evaluable) -> list[int] | None:
        """Positions of a source's rows that meet a condition together with some combination of the other sources.
        None if there are too many combinations.
        """
        keys = evaluable.keys_by_source[source.name]
        other_values = self._value_combinations(condition, evaluable.keys_by_source, source.name)
        if other_values is None:
            return None
        columns = [k[1] for k in keys]
        passing_rows = self._equality_matcher.find_matching_rows(condition, source, columns, other_values)
        positions_by_values = source.positions_by_values(columns)
        if passing_rows is None:
            if len(positions_by_values) * len(other_values) > _MAX_TESTS:
                return None
            may_pass = self._make_condition_test(condition, evaluable, source.name, other_values)
            passing_rows = [row for row in positions_by_values if may_pass(dict(zip(keys, row, strict=True)))]
        return [n for row in passing_rows for n in positions_by_values[row]]

    def filter_output_values(self, source: SelectSource, condition: Condition, evaluable: Evaluable) -> None:
        """Remove the values of a subquery's column that cannot meet a condition. The condition must use one column of
        the subquery.
        """
        [key] = evaluable.keys_by_source[source.name]
        other_values = self._value_combinations(condition, evaluable.keys_by_source, source.name)
        if other_values is None or len(source.output_values[key[1]]) * len(other_values) > _MAX_TESTS:
            return
        may_pass = self._make_condition_test(condition, evaluable, source.name, other_values)
        source.output_values[key[1]] = source.output_values[key[1]].matching(lambda value: may_pass({key: value}))

    def _make_condition_test(
        self, condition: Condition, evaluable: Evaluable, source_name: str, other_values: Sequence[Values]
    ) -> Callable[[Values], bool]:
        """Test whether a condition may hold for some values of one source, with some combination of the other
        sources.
        """
        equals_other = self._equality_matcher.make_equality_test(condition, source_name, other_values)

        def may_pass(source_values: Values) -> bool:
            is_equal = None if equals_other is None else equals_other(source_values)
            if is_equal is None:
                return any(is_true_or_unknown(evaluable.value({**other, **source_values})) for other in other_values)
            return is_equal

        return may_pass

    def _value_combinations(
        self,
        condition: Condition,
        keys_by_source: Mapping[str, Sequence[Key]],
        excluded_source: str | None = None,
    ) -> list[dict[Key, Value]] | None:
        """All combinations of values of the sources' columns and of the variables, with nulls for sources that an
        outer join can replace by nulls. None if there are too many.
        """
        parts: list[list[dict[Key, Value]]] = []
        for source_name, keys in keys_by_source.items():
            if source_name == excluded_source:
                continue
            part = self.inputs.value_combinations(source_name, keys)
            if part is None:
                return None
            if source_name in condition.nullable_sources:
                part = [*part, dict.fromkeys(keys)]
            parts.append(part)
        return combine_parts(parts)


def combine_parts(parts: Sequence[list[dict[Key, Value]]]) -> list[dict[Key, Value]] | None:
    """The values of several sources, in all combinations. None if there are too many."""
    if len(parts) == 1:
        return parts[0]
    if prod(map(len, parts)) > MAX_COMBINATIONS:
        return None
    return [{key: value for part in combination for key, value in part.items()} for combination in product(*parts)]
