"""An expression of partition columns and variables: its Spark type, and how its value follows from theirs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from nova_assets.model.schema import DataType
from nova_assets.sql.evaluation.values import UNKNOWN, Key, Value, ValueFunction, Values


class NotUnderstood(Exception):
    """An expression that no rule understands completely, so that only Spark can tell its value.

    Args:
        node: the part that is not understood.
        reason: why, for an error message.
    """

    def __init__(self, node: exp.Expr, reason: str) -> None:
        super().__init__(reason)
        self.node = node
        self.reason = reason


class Undecided(Exception):
    """A value for which Spark raises an error, or for which its versions and settings differ."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A part of an expression.

    Args:
        type: its Spark type; None where only data tells, and then the value is ``UNKNOWN``.
        value: gives its value for values of columns and variables.
    """

    type: DataType | None
    value: ValueFunction


def unknown_value(values: Values) -> Value:
    """The value of what no partition decides."""
    return UNKNOWN


DATA_DEPENDENT = Operand(None, unknown_value)
"""A part that only data decides."""


@dataclass(frozen=True, slots=True)
class Evaluable:
    """A whole expression that can be evaluated.

    Args:
        value: gives its value for values of its columns and variables.
        keys: the columns and variables.
        type: its Spark type; None where only data tells.
        depends_on_data: whether data decides some of it.
        not_understood: parts about partition columns that no rule understands, each with the reason.
    """

    value: ValueFunction
    keys: frozenset[Key]
    type: DataType | None = None
    depends_on_data: bool = False
    not_understood: tuple[NotUnderstood, ...] = field(default=(), compare=False)
    keys_by_source: Mapping[str, tuple[Key, ...]] = field(init=False, compare=False, repr=False)
    """Source of the query -> its columns here."""

    def __post_init__(self) -> None:
        by_source: dict[str, tuple[Key, ...]] = {}
        for key in sorted(self.keys):
            by_source[key[0]] = (*by_source.get(key[0], ()), key)
        object.__setattr__(self, "keys_by_source", by_source)


OnUndecided = Callable[[str], Value]
"""Called with the reason where a value is undecided; gives ``UNKNOWN``, or raises."""


def leave_unknown(reason: str) -> Value:
    """An undecided value is unknown, so that it prunes nothing."""
    return UNKNOWN


def kleene_and_or(values: list[Value], decisive: bool) -> Value:
    """Three-valued AND (``decisive`` is False) or OR (True), in which an unknown value is a fourth."""
    if decisive in values:
        return decisive
    return UNKNOWN if UNKNOWN in values else None if None in values else not decisive
