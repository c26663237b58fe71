"""Values of partition columns and scope variables, and compiled expressions of them: their Spark types, and functions
that compute their values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from sqlglot import exp

from nova_assets.model.schema import DataType

Value: TypeAlias = Any
"""A str, int, Decimal, float, bool, date, datetime (with its time zone), None, or ``UNKNOWN``."""

Key: TypeAlias = tuple[str, str]
"""A column: its source in the query, and its name. A variable has the source ``""``."""

Values: TypeAlias = Mapping[Key, Value]

ValueFunction: TypeAlias = Callable[[Values], Value]


class _Unknown:
    """A value that depends on data."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN = _Unknown()


def is_true_or_unknown(value: Value) -> bool:
    """Whether a row may pass a condition with this value."""
    return value is True or value is UNKNOWN


class NotUnderstood(Exception):
    """An expression that the rules cannot evaluate completely, so that only Spark can.

    Args:
        node: the part that cannot be evaluated.
        reason: the reason, for an error message.
    """

    def __init__(self, node: exp.Expr, reason: str) -> None:
        super().__init__(reason)
        self.node = node
        self.reason = reason


class Undecided(ValueError):
    """A value for which Spark raises an error, or on which versions or settings of Spark differ."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A compiled part of an expression.

    Args:
        type: its Spark type. None if the type depends on data, and then the value is ``UNKNOWN``.
        value: computes the value from the values of columns and variables.
    """

    type: DataType | None
    value: ValueFunction


DATA_DEPENDENT = Operand(None, lambda values: UNKNOWN)
"""An operand that depends on data."""

NULL = Operand(DataType("void"), lambda values: None)
"""A bare NULL."""


@dataclass(frozen=True, slots=True)
class Evaluable:
    """A compiled expression.

    Args:
        value: computes the value from the values of the expression's columns and variables.
        keys: the columns and variables that the expression uses.
        type: its Spark type. None if the type depends on data.
        depends_on_data: whether some of the expression depends on data.
        depends_on_zone: whether the value may depend on the time zone in which timestamps are read.
        not_understood: parts with partition columns that no rule can evaluate, each with the reason.
    """

    value: ValueFunction
    keys: frozenset[Key]
    type: DataType | None = None
    depends_on_data: bool = False
    depends_on_zone: bool = False
    not_understood: tuple[NotUnderstood, ...] = field(default=(), compare=False)
    keys_by_source: Mapping[str, tuple[Key, ...]] = field(init=False, compare=False, repr=False)
    """Source in the query -> the keys of its columns."""

    def __post_init__(self) -> None:
        by_source: dict[str, tuple[Key, ...]] = {}
        for key in sorted(self.keys):
            by_source[key[0]] = (*by_source.get(key[0], ()), key)
        object.__setattr__(self, "keys_by_source", by_source)


OnUndecided = Callable[[str], Value]
"""Called with the reason if a value is undecided. Returns ``UNKNOWN`` or raises."""


def leave_unknown(reason: str) -> Value:
    """Treat an undecided value as unknown, so that it prunes nothing."""
    return UNKNOWN


def kleene_and_or(values: list[Value], decisive: bool) -> Value:
    """Three-valued AND (``decisive`` is False) or OR (True), with ``UNKNOWN`` as a fourth value."""
    if decisive in values:
        return decisive
    return UNKNOWN if UNKNOWN in values else None if None in values else not decisive
