"""How an expression is computed from the values of its parts: what all kinds of it share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import tzinfo
from typing import Any, TypeAlias

from sqlglot import exp

from nova_assets.sql.values import UNKNOWN, Function, Value, Values

Make: TypeAlias = Callable[[exp.Expr], Function]
"""Gives how a part is computed."""

Special: TypeAlias = Callable[[Any, Make, tzinfo], Function]
"""Gives how one kind of expression is computed, in a zone."""


class CannotCompute(Exception):
    """An expression that cannot be computed; ``node`` is the part that is at fault."""

    def __init__(self, node: exp.Expr, why: str) -> None:
        super().__init__(why)
        self.node = node
        self.why = why


def called(node: exp.Expr) -> str:
    if isinstance(node, exp.Anonymous):
        return f"{node.name}(...)"
    if isinstance(node, exp.Subquery | exp.Select | exp.Exists):
        return "what a subquery gives"
    return node.sql("spark")


def strict(function: Callable[..., Value], *parts: Function) -> Function:
    """A function of which a null makes null, and something unknown makes something unknown."""

    def computed(values: Values) -> Value:
        found = [part(values) for part in parts]
        if None in found:
            return None
        if UNKNOWN in found:
            return UNKNOWN
        return function(*found)

    return computed


def kleene(found: Sequence[Value], decisive: bool) -> Value:
    if decisive in found:
        return decisive
    return UNKNOWN if UNKNOWN in found else None if None in found else not decisive
