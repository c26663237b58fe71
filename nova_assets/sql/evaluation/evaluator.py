"""Evaluation of expressions on the values of partition columns and scope variables, without reading data.

An expression is either evaluated exactly or unknown. Unknown expressions prune nothing. They take part in logic like a
null (three-valued logic with a fourth value): ``day = '2022-03-31' AND pieces > 3`` is false on another day, whatever
the data says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, tzinfo

from sqlglot import exp

from nova_assets.model.schema import DataType
from nova_assets.sql.evaluation import dates, logic, numbers, texts
from nova_assets.sql.evaluation.casting import TIMESTAMP
from nova_assets.sql.evaluation.operand import (
    DATA_DEPENDENT,
    Evaluable,
    Key,
    NotUnderstood,
    OnUndecided,
    Operand,
    Value,
    ValueFunction,
    Values,
    leave_unknown,
)
from nova_assets.sql.evaluation.rule_registry import RuleContext, apply_rule
from nova_assets.sql.text import SqlText
from nova_assets.sql.types.widening import VOID

RULE_MODULES = (dates, logic, numbers, texts)
"""The modules that register evaluation rules."""

MAX_DEPTH = 200
"""Greatest nesting depth of an expression that is evaluated."""

_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)
"""Comparisons, which are unknown if a side depends on data."""

ResolveColumn = Callable[[exp.Column | exp.Placeholder], tuple[Key, DataType] | None]
"""Returns key and Spark type of a column or variable. None if its value depends on data."""


class Evaluator:
    """Compiles expressions into functions.

    Args:
        resolve_column: resolves columns and variables.
        zone: time zone in which timestamps are converted to days and hours.
    """

    def __init__(self, resolve_column: ResolveColumn, zone: tzinfo = UTC) -> None:
        self.resolve_column = resolve_column
        self.zone = zone

    def compile_expression(self, node: exp.Expr) -> Evaluable:
        """Compile an expression of a query. Parts without a rule are unknown. A timestamp is in UTC."""
        used = _ExpressionUsage()
        operand = self._compile_operand(node, used, leave_unknown, 0)
        return Evaluable(
            operand.value,
            frozenset(used.keys),
            operand.type,
            used.depends_on_data,
            used.depends_on_zone,
            tuple(used.not_understood),
        )

    def compile_strictly(self, text: SqlText, node: exp.Expr) -> Evaluable:
        """Compile an expression of variables, every part of which must have a rule. A timestamp is in the evaluator's
        zone.

        Args:
            text: the SQL text that contains the expression, for errors.

        Raises:
            SqlError: a part has no rule. The compiled expression raises the same error if its value is undecided.
        """
        used = _ExpressionUsage(is_strict=True)

        def raise_undecided(reason: str) -> Value:
            raise text.error(f"{node.sql('spark')} has no value: {reason}", node, of_values=True)

        try:
            operand = self._compile_operand(node, used, raise_undecided, 0)
        except NotUnderstood as error:
            raise text.error(
                f"{error.reason}, and its value is needed before the query is run",
                error.node,
                expected="comparisons, logic, and functions of dates, numbers and texts",
                next="docs/reference.md lists the functions that are evaluated on partitions",
            ) from None
        if operand.type in (None, VOID):
            raise text.error(f"{node.sql('spark')} has no type", node, next="declare it: CAST(... AS TYPE)")
        value = operand.value
        if operand.type == TIMESTAMP:
            value = _convert_to_zone(value, self.zone, raise_undecided)
        return Evaluable(value, frozenset(used.keys), operand.type)

    def _compile_operand(
        self, node: exp.Expr, usage: _ExpressionUsage, on_undecided: OnUndecided, depth: int
    ) -> Operand:
        if isinstance(node, exp.Column | exp.Placeholder):
            return self._compile_leaf(node, usage, on_undecided)
        inner_usage = _ExpressionUsage(usage.is_strict)
        context = RuleContext(
            node,
            self.zone,
            lambda part: self._compile_operand(part, inner_usage, on_undecided, depth + 1),
            on_undecided,
            inner_usage.mark_zone_used,
        )
        try:
            if depth > MAX_DEPTH:
                raise context.not_understood("an expression nested so deeply is not evaluated on partitions")
            operand = apply_rule(context)
        except NotUnderstood as error:
            if usage.is_strict:
                raise
            usage.depends_on_data = True
            if self._has_partition_columns(node):
                usage.not_understood.append(error)
            return DATA_DEPENDENT
        usage.keys |= inner_usage.keys
        usage.depends_on_data |= inner_usage.depends_on_data
        is_unknown = inner_usage.depends_on_data and isinstance(node, _COMPARISONS)
        usage.depends_on_zone |= (inner_usage.depends_on_zone or operand.type == TIMESTAMP) and not is_unknown
        usage.not_understood += inner_usage.not_understood
        return operand

    def _has_partition_columns(self, node: exp.Expr) -> bool:
        columns = (part for part in node.walk(prune=lambda n: isinstance(n, exp.Query)) if isinstance(part, exp.Column))
        return any(self.resolve_column(column) is not None for column in columns)

    def _compile_leaf(
        self, node: exp.Column | exp.Placeholder, usage: _ExpressionUsage, on_undecided: OnUndecided
    ) -> Operand:
        resolved = self.resolve_column(node)
        if resolved is None:
            usage.depends_on_data = True
            return DATA_DEPENDENT
        key, type_ = resolved
        usage.keys.add(key)
        usage.depends_on_zone |= type_ == TIMESTAMP
        if type_ == TIMESTAMP:
            return Operand(type_, _convert_to_zone(lambda values: values[key], UTC, on_undecided))
        return Operand(type_, lambda values: values[key])


def _convert_to_zone(read: ValueFunction, zone: tzinfo, on_undecided: OnUndecided) -> ValueFunction:
    """The function of a timestamp, with its result in a zone."""

    def value(values: Values) -> Value:
        instant = read(values)
        try:
            return None if instant is None else instant.astimezone(zone)
        except OverflowError as error:
            return on_undecided(str(error))

    return value


@dataclass(slots=True)
class _ExpressionUsage:
    """The columns and variables used by a part of an expression.

    Args:
        is_strict: whether every part must have a rule.
        depends_on_data: whether some of the part depends on data.
        depends_on_zone: whether the value may depend on the time zone.
        not_understood: parts with partition columns that no rule can evaluate.
    """

    is_strict: bool = False
    keys: set[Key] = field(default_factory=set)
    depends_on_data: bool = False
    depends_on_zone: bool = False
    not_understood: list[NotUnderstood] = field(default_factory=list)

    def mark_zone_used(self) -> None:
        self.depends_on_zone = True
