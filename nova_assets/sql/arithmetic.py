"""Numbers, as Spark computes with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import tzinfo
from typing import Any

from sqlglot import exp

from nova_assets.sql.computing import Make, Special, strict
from nova_assets.sql.values import Function, Value, number


def _negative(node: exp.Expr, make: Make, zone: tzinfo) -> Function:
    return strict(lambda v: -number(v), make(node.this))


def _arithmetic(function: Callable[[Any, Any], Value]) -> Special:
    def made(node: exp.Expr, make: Make, zone: tzinfo) -> Function:
        return strict(lambda a, b: function(number(a), number(b)), make(node.this), make(node.expression))

    return made


def _mod(a: Any, b: Any) -> Any:
    """With the sign of the first, as in Spark."""
    if b == 0:
        raise ZeroDivisionError("division by zero")
    found = abs(a) % abs(b)
    return -found if a < 0 else found


def _div(a: Any, b: Any) -> int:
    if b == 0:
        raise ZeroDivisionError("division by zero")
    found = abs(a) // abs(b)
    return int(found if (a < 0) == (b < 0) else -found)


ARITHMETIC: Mapping[type[exp.Expr], Special] = {
    exp.Neg: _negative,
    exp.Mul: _arithmetic(lambda a, b: a * b),
    exp.Mod: _arithmetic(_mod),
    exp.IntDiv: _arithmetic(_div),
}
