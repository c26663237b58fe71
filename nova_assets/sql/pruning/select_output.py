"""The values that columns have in the result of a SELECT's joins, and in its output."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from nova_assets.sql.evaluation.operand import UNKNOWN, Key, Value
from nova_assets.sql.pruning.condition_tester import combine_parts
from nova_assets.sql.pruning.predicate_pushdown import has_grouping_sets
from nova_assets.sql.pruning.select_inputs import SelectInputs
from nova_assets.sql.pruning.select_source import PossibleValues, SelectSource

_MULTI_ROW_NODES = (exp.AggFunc, exp.Window, exp.Query, exp.Explode)


class SelectOutput:
    """Possible values of columns after the joins of one SELECT, and of its output columns.

    Args:
        inputs: the sources and variables of the SELECT.
        nullable_sources: names of the sources that an outer join may replace by nulls.
    """

    def __init__(self, inputs: SelectInputs, node: exp.Select, nullable_sources: frozenset[str]) -> None:
        self.inputs = inputs
        self.node = node
        self.nullable_sources = nullable_sources
        self.has_grouping_sets = has_grouping_sets(node)

    def values_of_output_columns(self) -> dict[str, PossibleValues]:
        """Possible values of the output columns for which they can be determined."""
        if self.has_grouping_sets:
            return {}
        values_by_column = {}
        for column in self.node.selects:
            values = self._values_of_expression(column.unalias())
            if values is not None:
                values_by_column[column.alias_or_name] = values
        return values_by_column

    def values_visible_to_subqueries(self) -> dict[Key, PossibleValues]:
        """Possible values of all columns that a correlated subquery can refer to."""
        values_by_key = dict(self.inputs.context.outer_values)
        for source in self.inputs.sources.values():
            for column in source.known_columns:
                values = self._values_after_joins(source, column)
                if values is not None:
                    values_by_key[source.name, column] = values
        return values_by_key

    def values_of_column(self, source_name: str, column: str) -> PossibleValues | None:
        """Possible values of a column of a source, or of the surrounding query. None if they cannot be determined."""
        source = self.inputs.sources.get(source_name)
        if source is None or column not in source.known_columns:
            return self.inputs.context.outer_values.get((source_name, column))
        return self._values_after_joins(source, column)

    def _values_after_joins(self, source: SelectSource, column: str) -> PossibleValues | None:
        """Possible values of a source's column, including null where an outer join or grouping sets produce it."""
        values = source.possible_values(column)
        may_be_null = source.name in self.nullable_sources or self.has_grouping_sets
        return values.with_null() if values is not None and may_be_null else values

    def _values_of_expression(self, node: exp.Expr) -> PossibleValues | None:
        if self.inputs.memo.memoize(("uses several rows", id(node)), lambda: node.find(*_MULTI_ROW_NODES) is not None):
            return None
        evaluable = self.inputs.compile_expression(node)
        if evaluable.type is None or evaluable.depends_on_data:
            return None
        parts = []
        for source_name, keys in evaluable.keys_by_source.items():
            part = self._combinations_after_joins(source_name, keys)
            if part is None:
                return None
            parts.append(part)
        combinations = combine_parts(parts)
        if combinations is None:
            return None
        values = {evaluable.value(c) for c in combinations}
        return None if UNKNOWN in values else PossibleValues(evaluable.type, frozenset(values))

    def _combinations_after_joins(self, source_name: str, keys: Sequence[Key]) -> list[dict[Key, Value]] | None:
        combinations = self.inputs.value_combinations(source_name, keys)
        if combinations is None or source_name not in self.nullable_sources:
            return combinations
        return [*combinations, dict.fromkeys(keys)]
