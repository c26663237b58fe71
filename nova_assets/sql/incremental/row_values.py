"""From how many rows of the datasets a column is computed."""

from __future__ import annotations

from functools import singledispatch

from sqlglot import exp

from nova_assets.sql.incremental.operators import (
    GroupedOperator,
    Join,
    LateralView,
    Operator,
    Projection,
    Scan,
    TwoInputs,
)


@singledispatch
def is_of_several_rows(operator: Operator, column: str) -> bool:
    """Whether the value of an output column depends on several rows of one dataset, such as an aggregate."""
    return any(is_of_several_rows(i, column) for i in operator.inputs)  # the operator passes its rows on


@is_of_several_rows.register
def _(operator: Scan, column: str) -> bool:
    return False


@is_of_several_rows.register(Projection)
@is_of_several_rows.register(GroupedOperator)
def _(operator: Projection | GroupedOperator, column: str) -> bool:
    expression = dict(operator.outputs)[column]
    if expression.find(exp.AggFunc, exp.Window):
        return True
    return _is_computed_from_several_rows(operator.input, expression)


@is_of_several_rows.register
def _(operator: LateralView, column: str) -> bool:
    if column in operator.input.columns:
        return is_of_several_rows(operator.input, column)
    return _is_computed_from_several_rows(operator.input, operator.view)


@is_of_several_rows.register
def _(operator: Join, column: str) -> bool:
    return any(is_of_several_rows(side, column) for side in operator.inputs if column in side.columns)


@is_of_several_rows.register
def _(operator: TwoInputs, column: str) -> bool:
    position = list(operator.columns).index(column)
    return any(is_of_several_rows(side, list(side.columns)[position]) for side in operator.inputs)


def _is_computed_from_several_rows(operator: Operator, expression: exp.Expr) -> bool:
    columns = {c.name for c in expression.find_all(exp.Column)} & operator.columns.keys()
    return any(is_of_several_rows(operator, column) for column in columns)
