"""Operators of a maintained query as text: what each step does, and how a change passes through it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sqlglot import exp

from nova_assets.sql.incremental.accumulation import Accumulation, accumulation_of
from nova_assets.sql.incremental.groups import ALL_ROWS
from nova_assets.sql.incremental.operators import (
    Aggregation,
    Distinct,
    Filter,
    Join,
    LateralView,
    Operator,
    Projection,
    Scan,
    SetOperation,
    UnionAll,
    Windowed,
)
from nova_assets.sql.parse.dialect import DIALECT


class OperatorLine(NamedTuple):
    """A step of a query.

    Args:
        depth: number of steps that its rows still have to pass.
        step: what the step does.
        rule: how a change passes through it.
    """

    depth: int
    step: str
    rule: str


def describe_operators(root: Operator) -> list[OperatorLine]:
    """The steps of a query, last step first. Steps that only rename columns are left out."""
    return list(_lines(root, 0, accumulation_of(root)))


def _lines(operator: Operator, depth: int, accumulation: Accumulation | None) -> Iterator[OperatorLine]:
    if isinstance(operator, Projection) and all(isinstance(e, exp.Column) for _, e in operator.outputs):
        yield from _lines(operator.input, depth, accumulation)
        return
    step, rule = _step_and_change_rule(operator)
    if accumulation is not None and operator is accumulation.aggregation:
        rule = _describe_accumulation(accumulation)
    yield OperatorLine(depth, step, rule)
    for below in operator.inputs:
        yield from _lines(below, depth + 1, accumulation)


def _describe_accumulation(accumulation: Accumulation) -> str:
    has_extremes = any(a.kind in ("min", "max") for a in accumulation.accumulators)
    rule = "the change is added to the stored rows"
    return f"{rule}; groups that lose their MIN or MAX are computed again" if has_extremes else rule


_CHANGE_ALONE = "only changed rows are computed"


def _step_and_change_rule(operator: Operator) -> tuple[str, str]:
    match operator:
        case Scan():
            return f"read {operator.dataset}", "its changes since the last execution"
        case Projection():
            names = (name for name, e in operator.outputs if not isinstance(e, exp.Column))
            return f"compute {', '.join(names)}", _CHANGE_ALONE
        case Filter():
            return f"keep rows with {_text([operator.condition])}", _CHANGE_ALONE
        case LateralView():
            return f"add the rows of {_text([operator.view.this])}", _CHANGE_ALONE
        case UnionAll():
            return "rows of both inputs", _CHANGE_ALONE
        case Aggregation(group_keys=()):
            return "aggregate all rows", "all rows are computed again"
        case Aggregation():
            keys = "all rows" if operator.group_keys == (ALL_ROWS,) else _text(operator.group_keys)
            return f"group by {keys}", "groups that changed are computed again"
        case Windowed(group_keys=()):
            return "window functions over all rows", "all rows are computed again"
        case Windowed():
            keys = _text(operator.group_keys)
            return f"window functions by {keys}", "window partitions that changed are computed again"
        case Distinct():
            return "different rows once", "rows that changed are compared again"
        case SetOperation():
            compared = "rows that changed" if operator.has_equal_types else "all rows"
            return operator.kind, f"{compared} are compared again"
        case Join():
            return _describe_join(operator)
    raise NotImplementedError(type(operator).__name__)


def _describe_join(join: Join) -> tuple[str, str]:
    condition = "every row with every row" if join.condition is None else f"on {_text([join.condition])}"
    if join.kind == "inner":
        return f"join {condition}", "the changed rows of one side are joined with the other side"
    again = "rows with a join key that changed are joined again" if join.equal_keys else "all rows are joined again"
    if join.kind != "full":
        linear, other = ("right", "left") if join.is_linear_in(1) else ("left", "right")
        again = f"changed rows of the {linear} side are joined; if the {other} side changes, {again}"
    return f"{join.kind} join {condition}", again


def _text(expressions: Iterable[exp.Expr]) -> str:
    """Expressions as short SQL, without the internal names of sources."""
    return ", ".join(e.sql(DIALECT).replace("`", "") for e in expressions)
