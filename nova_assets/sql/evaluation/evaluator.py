"""Evaluates expressions on the values of partition columns and of a scope's variables. Nothing is read.

An expression is either understood completely or unknown. What is unknown prunes nothing: logic goes on around it as
around a null (three-valued, with a fourth value). ``day = '2022-03-31' AND pieces > 3`` is false on another day,
whatever the data says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, tzinfo

from sqlglot import exp

from nova_assets.model.schema import DataType
from nova_assets.sql.evaluation import basics, dates, logic, numbers, texts
from nova_assets.sql.evaluation.casting import TIMESTAMP, TIMESTAMP_NTZ
from nova_assets.sql.evaluation.operand import (
    DATA,
    Evaluable,
    NotUnderstood,
    OnUndecided,
    Operand,
    leave_unknown,
)
from nova_assets.sql.evaluation.rules import Application, apply
from nova_assets.sql.evaluation.values import Function, Key, Value
from nova_assets.sql.text import Text
from nova_assets.sql.types.widening import VOID

RULES = (basics, dates, logic, numbers, texts)
"""The modules whose rules are registered."""

DEEPEST = 200
"""Levels of the deepest expression that is evaluated."""

Known = Callable[[exp.Column | exp.Placeholder], tuple[Key, DataType] | None]
"""Gives the key and Spark type of a column or variable; None where only data tells its value."""


class Evaluator:
    """Makes functions of expressions.

    Args:
        known: tells columns and variables.
        zone: in which timestamps are told apart by day and hour.
    """

    def __init__(self, known: Known, zone: tzinfo = UTC) -> None:
        self.known = known
        self.zone = zone

    def evaluable(self, node: exp.Expr) -> Evaluable:
        """An expression of a query. Parts that no rule understands are unknown."""
        used = _Used()
        operand = self._operand(node, used, leave_unknown, 0)
        return Evaluable(operand.value, frozenset(used.keys), operand.type, used.data, tuple(used.not_understood))

    def exactly(self, text: Text, node: exp.Expr) -> Evaluable:
        """An expression of variables alone, of which every part has to be understood.

        Args:
            text: that it stands in, for errors.

        Raises:
            SqlError: a part is not understood; or, when it is evaluated, it has no value.
        """
        used = _Used(is_strict=True)

        def refuse(reason: str) -> Value:
            raise text.error(f"{node.sql('spark')} has no value: {reason}", node, of_values=True)

        try:
            operand = self._operand(node, used, refuse, 0)
        except NotUnderstood as error:
            raise text.error(
                f"{error.reason}, and its value is needed before the query is run",
                error.node,
                expected="comparisons, logic, and functions of dates, numbers and texts",
                next="docs/reference.md lists the functions that are evaluated on partitions",
            ) from None
        if operand.type in (None, VOID):
            raise text.error(f"{node.sql('spark')} has no type", node, next="say it: CAST(... AS TYPE)")
        return Evaluable(operand.value, frozenset(used.keys), operand.type)

    def _operand(self, node: exp.Expr, used: _Used, on_undecided: OnUndecided, depth: int) -> Operand:
        if isinstance(node, exp.Column | exp.Placeholder):
            return self._leaf(node, used)
        inner = _Used(used.is_strict)
        application = Application(
            node, self.zone, lambda part: self._operand(part, inner, on_undecided, depth + 1), on_undecided
        )
        try:
            if depth > DEEPEST:
                raise application.not_understood("an expression nested so deeply is not evaluated on partitions")
            operand = apply(application)
        except NotUnderstood as error:
            if used.is_strict:
                raise
            used.data = True
            if self._has_partition_columns(node):
                used.not_understood.append(error)
            return DATA
        used.keys |= inner.keys
        used.data |= inner.data
        used.not_understood += inner.not_understood
        return operand

    def _has_partition_columns(self, node: exp.Expr) -> bool:
        columns = (part for part in node.walk(prune=lambda n: isinstance(n, exp.Query)) if isinstance(part, exp.Column))
        return any(self.known(column) is not None for column in columns)

    def _leaf(self, node: exp.Column | exp.Placeholder, used: _Used) -> Operand:
        found = self.known(node)
        if found is None:
            used.data = True
            return DATA
        key, type_ = found
        used.keys.add(key)
        return Operand(type_, self._value_of(key, type_))

    def _value_of(self, key: Key, type_: DataType) -> Function:
        if type_ == TIMESTAMP:
            return lambda values: None if (value := values[key]) is None else value.astimezone(self.zone)
        if type_ == TIMESTAMP_NTZ:
            return lambda values: None if (value := values[key]) is None else value.replace(tzinfo=None)
        return lambda values: values[key]


@dataclass(slots=True)
class _Used:
    """The columns and variables that a part of an expression uses.

    Args:
        is_strict: whether every part has to be understood.
        data: whether data decides some of it.
        not_understood: parts about partition columns that no rule understands.
    """

    is_strict: bool = False
    keys: set[Key] = field(default_factory=set)
    data: bool = False
    not_understood: list[NotUnderstood] = field(default_factory=list)
