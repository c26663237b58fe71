"""Which operators of a query change in one execution, and what is known about their changes."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from nova_assets.sql.incremental.column_bounds import ColumnBounds
from nova_assets.sql.incremental.dataset_change import DatasetChange
from nova_assets.sql.incremental.operators import (
    Filter,
    Join,
    LateralView,
    Operator,
    Projection,
    Scan,
    UnionAll,
    walk,
)


class ChangedOperators:
    """The operators whose rows change.

    Args:
        root: the last operator of the query.
        changes: datasets that the query reads, by name.
    """

    def __init__(self, root: Operator, changes: Mapping[str, DatasetChange]) -> None:
        self.changes = changes
        self._changed = {id(o) for o in walk(root) if self._reads_change(o)}

    def is_changed(self, operator: Operator) -> bool:
        """Whether a dataset that the operator reads has changed."""
        return id(operator) in self._changed

    def may_cancel_out(self, operator: Operator) -> bool:
        """Whether the operator's change may have added rows that are not there after the change, or removed rows that
        were not there before it. Such rows have equal rows of the other sign.

        The terms of a join have such rows if both sides change.
        """
        if isinstance(operator, Join):
            changed = [i for i in operator.inputs if self.is_changed(i)]
            return operator.kind != "full" and (len(changed) > 1 or any(map(self.may_cancel_out, changed)))
        passes_rows_on = isinstance(operator, Projection | Filter | LateralView | UnionAll)
        return passes_rows_on and any(map(self.may_cancel_out, operator.inputs))

    def has_single_rows(self, operator: Operator) -> bool:
        """Whether each row of an operator's change stands for one row only, so that its weight is 1 or -1.

        An operator that computes keys or groups again makes such rows.
        """
        if isinstance(operator, Scan):
            return self.changes[operator.dataset].has_single_rows
        passes_rows_on = isinstance(operator, Projection | Filter | LateralView | UnionAll)
        joins_rows = isinstance(operator, Join) and operator.kind != "full"
        if not passes_rows_on and not joins_rows:
            return True
        return all(self.has_single_rows(i) for i in operator.inputs if self.is_changed(i))

    def bounds_of_change(self, operator: Operator, column: str) -> ColumnBounds | None:
        """Bounds of a column's values in all rows of an operator's change; None if they are not known."""
        if isinstance(operator, Scan):
            return self.changes[operator.dataset].bounds.get(column.lower())
        if isinstance(operator, Projection):
            expression = dict(operator.outputs).get(column)
            if isinstance(expression, exp.Column):
                return self.bounds_of_change(operator.input, expression.name)
        if isinstance(operator, Filter | LateralView):
            return self.bounds_of_change(operator.input, column) if column in operator.input.columns else None
        if isinstance(operator, Join):
            changed = [side for side in (0, 1) if self.is_changed(operator.inputs[side])]
            if len(changed) == 1 and operator.is_linear_in(changed[0]):
                side = operator.inputs[changed[0]]
                return self.bounds_of_change(side, column) if column in side.columns else None
        return None

    def _reads_change(self, operator: Operator) -> bool:
        return any(isinstance(o, Scan) and self.changes[o.dataset].is_changed for o in walk(operator))
