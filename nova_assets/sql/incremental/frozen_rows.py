"""Rows of a result that are never made again: ``FROZEN WHERE condition``.

Stored rows for which the condition is true stay as they are, whatever happens to the inputs. Computed rows for which it
is true are left out. As time passes, more rows may become frozen, but no row stops being frozen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from sqlglot import exp

from nova_assets.errors import SqlError
from nova_assets.model.schema import DataType
from nova_assets.sql.evaluation.evaluator import Evaluator
from nova_assets.sql.evaluation.operand import Evaluable, Key, Value
from nova_assets.sql.incremental import repeatability
from nova_assets.sql.incremental.expressions import replace_columns
from nova_assets.sql.incremental.operator_sql import to_sql
from nova_assets.sql.incremental.operators import (
    GroupedOperator,
    LateralView,
    Operator,
    Projection,
    SetOperation,
    UnionAll,
)
from nova_assets.sql.incremental.repeatability import function_names
from nova_assets.sql.parse.dialect import parse_condition
from nova_assets.sql.text import Span, SqlText
from nova_assets.suggestions import did_you_mean

_TODAY, _NOW = "nova_today", "nova_now"
"""Parameters with the current day and time."""

_DAYS = frozenset({"current_date", "curdate"})
_TIMES = frozenset({"current_timestamp", "now"})

_DATE_FUNCTIONS = frozenset({"add_months", "date", "date_add", "date_sub", "last_day", "to_date", "trunc"})
"""Functions that return a date."""

_GROWING_FUNCTIONS = {
    **dict.fromkeys(("date", "last_day", "timestamp", "to_date"), (0, 1)),
    **dict.fromkeys(("add_months", "date_add", "date_sub", "trunc"), (0, 2)),
    "date_trunc": (1, 2),
}
"""Function -> number of the argument with which its value grows, and of arguments. The others are constants."""

_FIXED_UNITS = frozenset({"WEEK", "DAY", "HOUR", "MINUTE", "SECOND"})
_CALENDAR_UNITS = frozenset({"MONTH", "QUARTER", "YEAR"})

_GROWING_PATTERNS = frozenset({"yyyy", "yyyy-MM", "yyyy-MM-dd", "yyyyMM", "yyyyMMdd"})
_GROWING_TYPES = frozenset({"DATE", "TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPLTZ", "TEXT", "VARCHAR"})


@dataclass(frozen=True)
class FrozenRows:
    """The rows of a result that are never made again.

    Args:
        text: the text in which the condition stands.
        condition: condition over columns of the result.
        written: ``WHERE condition`` as its author wrote it.
    """

    text: SqlText
    condition: exp.Expr
    written: str

    @staticmethod
    def parse(text: SqlText, span: Span) -> FrozenRows:
        """The rows of ``FROZEN WHERE condition``.

        Args:
            span: characters of ``WHERE condition``.

        Raises:
            SqlError: the condition cannot be parsed, depends on more than a row and the time, or rows could stop being
                frozen as time passes.
        """
        frozen = FrozenRows(text, parse_condition(text, span), " ".join(text.substring(span).split()))
        frozen._check_kinds()
        frozen._check_clocks(frozen.condition)
        try:
            repeatability.check_query(frozen._condition_with_parameters())
        except repeatability.NotRepeatable as error:
            raise text.error(f"{error.reason}, so FROZEN WHERE has no fixed rows", error.node) from None
        return frozen

    @property
    def columns(self) -> frozenset[str]:
        """The columns of the condition, in lower case."""
        return frozenset(c.name.lower() for c in self.condition.find_all(exp.Column))

    @property
    def depends_on_time(self) -> bool:
        """Whether more rows become frozen as time passes."""
        return _has_clock(self.condition)

    @property
    def sql(self) -> str:
        """The condition, in one spelling."""
        return self.condition.sql("spark", comments=False)

    def check_columns(self, columns: Iterable[str]) -> None:
        """Check that the result has the columns of the condition. Raises SqlError."""
        known = {c.lower(): c for c in columns}
        for column in self.condition.find_all(exp.Column):
            if column.name.lower() not in known:
                similar = did_you_mean(column.name, tuple(known.values()))
                raise self.text.error(
                    f"the result has no column {column.name!r}{similar}", column, expected=", ".join(known.values())
                )

    def check_operators(self, root: Operator, names: Mapping[str, str]) -> None:
        """Check that the values of the condition's columns do not depend on other rows, which may change.

        Args:
            root: the last operator of the query.
            names: column of the operator -> column of the result.

        Raises:
            SqlError: the condition has a column that is computed from several rows, or that may differ each time.
        """
        for name, column in names.items():
            if column.lower() not in self.columns:
                continue
            is_unstable = root.unstable is not None and name not in root.group_columns
            if is_of_several_rows(root, name):
                what, expected = "is computed from several rows", "columns of single rows, or of GROUP BY"
            elif name in root.rounded or is_unstable:
                what, expected = "may differ each time it is computed", "columns with exact values"
            else:
                continue
            node = next(c for c in self.condition.find_all(exp.Column) if c.name.lower() == column.lower())
            raise self.text.error(f"column {column!r} {what}, so a change could freeze a row", node, expected=expected)

    def is_true(self, columns: Mapping[str, exp.Expr]) -> str:
        """SQL that is true for frozen rows, and false for all others.

        Args:
            columns: column in lower case -> expression for its value.
        """
        bound = replace_columns(self._condition_with_parameters(), lambda column: columns[column.name.lower()].copy())
        return f"COALESCE({to_sql(bound)}, FALSE)"

    def values_at(self, now: datetime) -> dict[str, Any]:
        """Values of the condition's parameters at a moment. Days begin in UTC."""
        return {_TODAY: now.astimezone(UTC).date(), _NOW: now}

    def holds_for_all(self, values: Mapping[str, tuple[Value, DataType]], now: datetime) -> bool:
        """Whether all rows with some values are frozen, whatever the values of their other columns. Days begin in UTC.

        Args:
            values: column in lower case -> its value and type.
        """
        compiled = self._compile({name: type_ for name, (_, type_) in values.items()}, now)
        return compiled.value({("", name): value for name, (value, _) in values.items()}) is True

    def depends_on_zone(self, types: Mapping[str, DataType]) -> bool:
        """Whether it may depend on the session's time zone which values make all rows frozen.

        Args:
            types: column in lower case -> its type.
        """
        return self._compile(types, datetime(2000, 1, 1, tzinfo=UTC)).depends_on_zone

    def _compile(self, types: Mapping[str, DataType], now: datetime) -> Evaluable:
        """The condition at a moment, over columns of known types."""

        def resolve(column: exp.Column | exp.Placeholder) -> tuple[Key, DataType] | None:
            name = column.name.lower()
            return (("", name), types[name]) if isinstance(column, exp.Column) and name in types else None

        today = exp.cast(exp.Literal.string(now.astimezone(UTC).date().isoformat()), "date")
        return Evaluator(resolve).compile_expression(self._condition_with_parameters({_TODAY: today}))

    def _condition_with_parameters(self, known: Mapping[str, exp.Expr] = MappingProxyType({})) -> exp.Expr:
        """The condition with parameters in place of the current day and time.

        Args:
            known: parameter -> its value, which stands there instead.
        """

        def insert(node: exp.Expr) -> exp.Expr:
            clock = _clock(node)
            return node if clock is None else known.get(clock) or exp.Placeholder(this=clock)

        return self.condition.transform(insert)

    def _check_kinds(self) -> None:
        forbidden = {
            exp.Query: "a subquery",
            exp.Subquery: "a subquery",
            exp.Exists: "a subquery",
            exp.AggFunc: "an aggregate",
            exp.Window: "a window function",
            exp.Placeholder: "a variable",
            exp.Parameter: "a variable",
            exp.Lambda: "a function of each element",
        }
        for node in self.condition.walk():
            what = next((text for kind, text in forbidden.items() if isinstance(node, kind)), None)
            if what is None and isinstance(node, exp.Column) and node.table:
                what = "a name with a dot"
            if what is not None:
                raise self._error(f"FROZEN WHERE has {what}", node)
        if not self.columns:
            raise self._error("FROZEN WHERE names no column of the result", self.condition)

    def _check_clocks(self, node: exp.Expr) -> None:
        """Check that no row stops being frozen as time passes."""
        # Changes of frozen rows were read and left out. A row that stopped being frozen would never get them.
        if not _has_clock(node):
            return
        if isinstance(node, exp.And | exp.Or | exp.Paren):
            for part in node.iter_expressions():
                self._check_clocks(part)
            return
        greater = node.expression if isinstance(node, exp.LT | exp.LTE) else node.args.get("this")
        less = node.args.get("this") if isinstance(node, exp.LT | exp.LTE) else node.args.get("expression")
        is_comparison = isinstance(node, exp.LT | exp.LTE | exp.GT | exp.GTE)
        if not is_comparison or less is None or _has_clock(less) or not _grows(greater):
            raise self._error("rows could stop being frozen as time passes", node)

    def _error(self, what: str, node: exp.Expr) -> SqlError:
        expected = "a condition on columns of the result, such as day < CURRENT_DATE - INTERVAL 30 DAYS"
        return self.text.error(what, node, expected=expected)


def _clock(node: exp.Expr) -> str | None:
    """Parameter for a function that returns the current day or time; None for other expressions."""
    if not isinstance(node, exp.Func) or list(node.iter_expressions()):
        return None
    names = function_names(node)
    return _TODAY if names & _DAYS else _NOW if names & _TIMES else None


def _has_clock(node: exp.Expr) -> bool:
    return any(_clock(part) for part in node.walk())


def _grows(node: exp.Expr | None) -> bool:
    """Whether the value of an expression never becomes less as time passes, in UTC."""
    if node is None or _clock(node):
        return node is not None
    if isinstance(node, exp.Paren):
        return _grows(node.this)
    if isinstance(node, exp.Add | exp.Sub):
        return _grows(node.this) and _is_shift(node.expression, is_date=_is_date(node.this))
    if isinstance(node, exp.Cast):
        return _grows(node.this) and node.to.this.value in _GROWING_TYPES
    if not isinstance(node, exp.Func):
        return False
    arguments = list(node.iter_expressions())
    names = function_names(node)
    if "date_format" in names:
        is_known = len(arguments) == 2 and isinstance(arguments[1], exp.Literal)
        return is_known and arguments[1].name in _GROWING_PATTERNS and _grows(arguments[0])
    found = next((_GROWING_FUNCTIONS[name] for name in names if name in _GROWING_FUNCTIONS), None)
    if found is None or len(arguments) != found[1]:
        return False
    return _grows(arguments[found[0]]) and all(map(_is_constant, arguments[: found[0]] + arguments[found[0] + 1 :]))


def _is_shift(node: exp.Expr, *, is_date: bool) -> bool:
    """Whether adding or subtracting a constant keeps the order of times. Months have different lengths, so of two times
    in the last days of a month, the later one can come before the other one after months were subtracted.
    """
    if not _is_constant(node):
        return False
    if not isinstance(node, exp.Interval):
        return is_date and isinstance(node.unnest(), exp.Literal)
    unit = node.args.get("unit")
    name = unit.name.upper().rstrip("S") if isinstance(unit, exp.Var) else ""
    return name in _FIXED_UNITS or (is_date and name in _CALENDAR_UNITS)


def _is_date(node: exp.Expr) -> bool:
    """Whether a growing expression is a date, rather than a time or a text."""
    if isinstance(node, exp.Paren):
        return _is_date(node.this)
    if isinstance(node, exp.Cast):
        return bool(node.to.this == exp.DataType.Type.DATE)
    if isinstance(node, exp.Add | exp.Sub):
        unit = node.expression.args.get("unit") if isinstance(node.expression, exp.Interval) else None
        return _is_date(node.this) and (
            unit is None or unit.name.upper().rstrip("S") not in ("HOUR", "MINUTE", "SECOND")
        )
    names = function_names(node) if isinstance(node, exp.Func) else frozenset[str]()
    return _clock(node) == _TODAY or bool(names & _DATE_FUNCTIONS)


def _is_constant(node: exp.Expr) -> bool:
    return not _has_clock(node) and node.find(exp.Column, exp.Placeholder) is None


def is_of_several_rows(operator: Operator, column: str) -> bool:
    """Whether the value of an output column depends on several rows of one dataset, such as an aggregate."""
    match operator:
        case Projection() | GroupedOperator():
            expression = dict(operator.outputs)[column]
            return expression.find(exp.AggFunc, exp.Window) is not None or _is_computed_from_several_rows(
                operator.input, expression
            )
        case LateralView() if column not in operator.input.columns:
            return _is_computed_from_several_rows(operator.input, operator.view)
        case UnionAll() | SetOperation():
            position = list(operator.columns).index(column)
            return any(is_of_several_rows(side, list(side.columns)[position]) for side in operator.inputs)
    # the operator passes its rows on
    return any(is_of_several_rows(i, column) for i in operator.inputs if column in i.columns)


def _is_computed_from_several_rows(operator: Operator, expression: exp.Expr) -> bool:
    columns = {c.name for c in expression.find_all(exp.Column)} & operator.columns.keys()
    return any(is_of_several_rows(operator, column) for column in columns)
