"""Aggregations whose new rows follow from the stored rows and the change alone.

Each value of a group is computed from *accumulators*: numbers of rows, numbers of values, sums, and least and greatest
values. An accumulator that is no column of the result is stored in a hidden column beside it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from sqlglot import exp

from nova_assets.model.schema import HIDDEN_PREFIX, DataType, Field
from nova_assets.sql.incremental.expressions import replace_columns
from nova_assets.sql.incremental.operators import Aggregation, Operator, Outputs, column_of
from nova_assets.sql.incremental.value_types import value_type

AccumulatorKind: TypeAlias = Literal["count", "sum", "min", "max"]

ACCUMULATOR = "nova_accumulator_"
"""Beginning of the names of accumulators in the SQL."""

MAX_PRECISION, _MAX_SCALE_OF_ADDITION = 38, 6
"""Greatest number of digits of a decimal in Spark, and of those after the point that an addition is sure to keep."""

_DOUBLE_DIGITS = 15
"""Spark computes averages of decimals as doubles if their result has at most this many digits."""

FLOATS = frozenset({"float", "double"})

_INTEGERS = frozenset({"tinyint", "smallint", "int", "bigint"})

_ORDERED_TYPES = _INTEGERS | {"decimal", "date", "timestamp", "timestamp_ntz", "string", "boolean"}
"""Types of which equal values are the same in every respect, so that the least of two values is ``LEAST`` of them."""

_LEAST, _GREATEST = exp.Min | exp.LogicalAnd, exp.Max | exp.LogicalOr
"""Aggregates that are the least or the greatest of their values. ``FALSE`` is less than ``TRUE``."""

_COUNT_TYPE = DataType("bigint")

_FORMAT = "1"
"""Version of the meaning of hidden columns."""


@dataclass(frozen=True)
class Accumulator:
    """A value of each group that follows from its old value and the change.

    Args:
        argument: the value that is counted, added up or compared; None if rows are counted.
        count: for a sum: number of the accumulator that counts its values.
        column: output column of the query that is this accumulator; empty if there is none.
    """

    kind: AccumulatorKind
    argument: exp.Expr | None
    count: int | None = None
    column: str = ""

    @property
    def aggregate(self) -> exp.Expr:
        """The accumulator as an aggregate over all rows of a group."""
        if self.argument is None:
            return exp.Count(this=exp.Star(), big_int=True)
        by_kind = {"count": exp.Count, "sum": exp.Sum, "min": exp.Min, "max": exp.Max}
        return by_kind[self.kind](this=self.argument.copy())


@dataclass(frozen=True)
class Accumulation:
    """An aggregation of which every output column is a group key, or is computed from accumulators.

    Args:
        aggregation: the operator.
        key_columns: output columns with the group keys, in the order of ``aggregation.group_keys``.
        accumulators: what is accumulated. The first accumulator counts the rows of a group.
        values: output column that is no group key -> its expression over the group keys' columns and the accumulators,
            which are columns ``nova_accumulator_0``, ``nova_accumulator_1``, ...
        having: condition over the same columns for a group to be in the result; None if all groups are.
        count_limits: number of an accumulator that counts -> count from which on ``values`` are not exact.
    """

    aggregation: Aggregation
    key_columns: tuple[str, ...]
    accumulators: tuple[Accumulator, ...]
    values: Mapping[str, exp.Expr]
    having: exp.Expr | None
    count_limits: Mapping[int, int]

    def values_of_keys(self, keys: Mapping[str, exp.Expr]) -> dict[str, exp.Expr]:
        """Output column that is computed from group keys alone -> its expression.

        Args:
            keys: group key -> expression in its place.
        """
        return {
            column: replace_columns(value, lambda c: keys[c.name].copy())
            for column, value in self.values.items()
            if all(c.name in keys for c in value.find_all(exp.Column))
        }

    @property
    def hidden(self) -> tuple[int, ...]:
        """Numbers of the accumulators that no output column holds."""
        return tuple(n for n, a in enumerate(self.accumulators) if not a.column)

    @property
    def needs_hidden(self) -> bool:
        """Whether new rows follow from the stored rows with hidden columns only. Without the number of a sum's values,
        a group is computed again if it loses one of them.
        """
        expressions = (*self.values.values(), *([self.having] if self.having is not None else []))
        used = {c.name for e in expressions for c in e.find_all(exp.Column)}
        return not self.accumulators[0].column or any(f"{ACCUMULATOR}{n}" in used for n in self.hidden)

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the hidden accumulators."""
        parts = [_FORMAT, *(f"{self.accumulators[n].kind} {self.accumulators[n].aggregate}" for n in self.hidden)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]

    def hidden_outputs(self, names: Mapping[int, str]) -> Outputs:
        """Hidden columns as outputs of the aggregation.

        Args:
            names: number of a hidden accumulator -> name of its column.
        """
        return tuple((name, self.accumulators[n].aggregate) for n, name in names.items())

    def operator_with_hidden(self, names: Mapping[int, str]) -> Aggregation:
        """The operator that computes the output columns and the hidden columns. ``names`` as for ``hidden_outputs``."""
        outputs = (*self.aggregation.outputs, *self.hidden_outputs(names))
        return replace(self.aggregation, columns={name: None for name, _ in outputs}, outputs=outputs)


@dataclass(frozen=True)
class StoredAccumulation:
    """An accumulation with the columns in which the channel stores it.

    Args:
        fields: output column of the query -> the channel's column.
        hidden: number of a hidden accumulator -> its column; empty if the channel has no hidden columns.
    """

    accumulation: Accumulation
    fields: Mapping[str, Field]
    hidden: Mapping[int, Field]

    @property
    def all_fields(self) -> tuple[Field, ...]:
        """The channel's columns, then the hidden columns."""
        return (*self.fields.values(), *self.hidden.values())

    def field_of(self, number: int) -> Field | None:
        """Column of an accumulator; None if it is not stored."""
        column = self.accumulation.accumulators[number].column
        return self.fields[column] if column else self.hidden.get(number)

    def type_of(self, number: int) -> DataType:
        """Type of an accumulator."""
        field = self.field_of(number)
        return _COUNT_TYPE if field is None else field.type  # only counts need not be stored


def accumulation_of(operator: Operator) -> Accumulation | None:
    """The operator as an accumulation; None if its new rows do not follow from the stored rows and the change."""
    if not isinstance(operator, Aggregation) or operator.unstable is not None:
        return None
    key_columns = _key_columns(operator)
    return None if key_columns is None else _AccumulationBuilder(operator, key_columns).build()


def _key_columns(aggregation: Aggregation) -> tuple[str, ...] | None:
    columns = aggregation.group_columns
    are_complete = len(columns) == len(aggregation.group_keys) == len(set(columns))
    return columns if are_complete else None


def hidden_fields(token: str, types: Mapping[int, DataType]) -> dict[int, Field]:
    """Hidden columns: number of the accumulator -> its column.

    Args:
        token: hidden columns that are written under different tokens have different names.
        types: number of a hidden accumulator -> its type.
    """
    return {n: Field(f"{HIDDEN_PREFIX}{token}_{n}", type_) for n, type_ in types.items()}


class _NotAccumulated(Exception):
    """An aggregate or column does not follow from accumulators."""


class _AccumulationBuilder:
    def __init__(self, aggregation: Aggregation, key_columns: tuple[str, ...]) -> None:
        self.aggregation = aggregation
        self.key_columns = key_columns
        self.key_by_sql = dict(zip((k.sql("spark") for k in aggregation.group_keys), key_columns, strict=True))
        self.accumulators: list[Accumulator] = []
        self.count_limits: dict[int, int] = {}
        self.add("count", None)

    def build(self) -> Accumulation | None:
        others = {name: e for name, e in self.aggregation.outputs if name not in self.key_columns}
        try:
            values = {name: self._over_accumulators(e) for name, e in others.items()}
            condition = self.aggregation.having
            having = None if condition is None else self._over_accumulators(condition)
        except _NotAccumulated:
            return None
        column_by_number = {
            int(value.name.removeprefix(ACCUMULATOR)): name
            for name, value in reversed(values.items())
            if isinstance(value, exp.Column) and value.name.startswith(ACCUMULATOR)
        }
        accumulators = [
            Accumulator(a.kind, a.argument, a.count, column_by_number.get(n, ""))
            for n, a in enumerate(self.accumulators)
        ]
        return Accumulation(self.aggregation, self.key_columns, tuple(accumulators), values, having, self.count_limits)

    def add(self, kind: AccumulatorKind, argument: exp.Expr | None) -> int:
        """Number of an accumulator, which is added if it does not exist yet."""
        sql = None if argument is None else argument.sql("spark")
        for n, known in enumerate(self.accumulators):
            if known.kind == kind and (None if known.argument is None else known.argument.sql("spark")) == sql:
                return n
        counted = None if isinstance(argument, exp.Literal) else argument
        count = self.add("count", counted) if kind == "sum" else None
        self.accumulators.append(Accumulator(kind, argument, count))
        return len(self.accumulators) - 1

    def _over_accumulators(self, expression: exp.Expr) -> exp.Expr:
        """An output over the columns of group keys and accumulators."""

        def insert(node: exp.Expr) -> exp.Expr:
            if (key := self.key_by_sql.get(node.sql("spark"))) is not None:
                return column_of(key)
            if isinstance(node, exp.Filter):
                condition = node.expression.this
                return self._of_aggregate(node.this, condition)
            if isinstance(node, exp.AggFunc):
                return self._of_aggregate(node, None)
            if isinstance(node, exp.Column):
                raise _NotAccumulated
            return node

        return expression.transform(insert)

    def _of_aggregate(self, node: exp.Expr, condition: exp.Expr | None) -> exp.Expr:
        """An aggregate over accumulators.

        Args:
            condition: only rows for which it is true are aggregated.
        """
        argument = node.this
        is_plain = isinstance(node, exp.Count | exp.CountIf | exp.Sum | exp.Avg | _LEAST | _GREATEST)
        if not is_plain or argument is None or isinstance(argument, exp.Distinct) or node.expressions:
            raise _NotAccumulated
        if isinstance(node, exp.CountIf):
            return _reference(self.add("count", _if(argument, exp.Literal.number(1), condition)))
        if isinstance(node, exp.Count) and isinstance(argument, exp.Star | exp.Literal):
            counted = None if condition is None else _if(condition, exp.Literal.number(1), None)
            return _reference(self.add("count", counted))
        value = argument if condition is None else _if(condition, argument, None)
        if isinstance(node, exp.Count):
            return _reference(self.add("count", value))
        columns = self.aggregation.input.columns
        if isinstance(node, _LEAST | _GREATEST):
            if not _has_ordered_type(argument, columns):
                raise _NotAccumulated
            return _reference(self.add("min" if isinstance(node, _LEAST) else "max", value))
        type_ = value_type(argument, columns)
        if type_ is None:
            raise _NotAccumulated
        return self._of_sum(value, type_) if isinstance(node, exp.Sum) else self._of_average(value, type_)

    def _of_sum(self, value: exp.Expr, type_: DataType) -> exp.Expr:
        """A sum. Sums of floating-point numbers drift if they are added to and subtracted from.

        A sum of decimals with many digits may exceed its type (``may_exceed_type``). Spark adds two such sums without
        losing digits if there are few digits after the point.
        """
        is_exact_decimal = type_.name == "decimal" and (
            type_.args[0] + 10 < MAX_PRECISION or type_.args[1] <= _MAX_SCALE_OF_ADDITION
        )
        if type_.name in _INTEGERS or is_exact_decimal or (self.aggregation.adds_floats and type_.name in FLOATS):
            return _reference(self.add("sum", value))
        raise _NotAccumulated

    def _of_average(self, value: exp.Expr, type_: DataType) -> exp.Expr:
        """An average as Spark computes it. Spark divides integers, and decimals of few digits, as doubles.

        Averages of other decimals have four digits more than the values. Spark rounds a quotient of decimals to the
        digits of its type, and the cast rounds once more. The type has ``digits`` digits more than the average. So
        rounding twice gives another number only if the quotient is nearer to the middle of two results than 10^-digits
        of a result's last digit. It is at least 1 / (2 * count) away.
        """
        if self.aggregation.adds_floats and type_.name in FLOATS:
            total = self.add("sum", value)
            return self._divide(_reference(total), total, "DOUBLE")
        if type_.name in _INTEGERS:
            added = value if type_.name != "bigint" else _cast(value.copy(), "DECIMAL(19, 0)")
            total = self.add("sum", added)
            return self._divide(_cast(_reference(total), "DOUBLE"), total, "DOUBLE")
        if type_.name != "decimal":
            raise _NotAccumulated
        total, (precision, scale) = self.add("sum", value), type_.args
        if precision + 4 <= _DOUBLE_DIGITS:
            one = exp.Literal.string(f"1{'0' * scale}")
            unscaled = exp.Mul(this=_reference(total), expression=_cast(one, f"DECIMAL({scale + 1}, 0)"))
            quotient = self._divide(_cast(unscaled, "DOUBLE"), total, "DOUBLE")
            scaled = exp.Div(this=exp.paren(quotient), expression=_cast(one, "DOUBLE"), typed=False, safe=False)
            return _cast(scaled, f"DECIMAL({precision + 4}, {scale + 4})")
        digits = min(17, 24 - precision)
        if digits < 3:
            raise _NotAccumulated
        count = self._count_of(total)
        self.count_limits[count] = min(self.count_limits.get(count, 10**digits), 10**digits)
        quotient = self._divide(_reference(total), total, "DECIMAL(20, 0)")
        return _cast(quotient, f"DECIMAL({precision + 4}, {scale + 4})")

    def _divide(self, dividend: exp.Expr, total: int, count_type: str) -> exp.Expr:
        """A sum divided by the number of its values; null if there are none."""
        count = _reference(self._count_of(total))
        quotient = exp.Div(this=dividend, expression=_cast(count.copy(), count_type), typed=False, safe=False)
        return exp.Case(ifs=[exp.If(this=exp.GT(this=count, expression=exp.Literal.number(0)), true=quotient)])

    def _count_of(self, total: int) -> int:
        """Number of the accumulator that counts the values of a sum."""
        count = self.accumulators[total].count
        assert count is not None
        return count


def _has_ordered_type(value: exp.Expr, columns: Mapping[str, DataType | None]) -> bool:
    """Whether the least of two values is ``LEAST`` of them.

    Structs may have floating-point fields. Of two structs that differ in the sign of a zero only, Spark itself chooses
    the one that it reads first.
    """
    is_struct = isinstance(value, exp.Anonymous) and value.name.lower() == "named_struct"
    types = [value_type(part, columns) for part in (value.expressions[1::2] if is_struct else [value])]
    allowed = _ORDERED_TYPES | FLOATS if is_struct else _ORDERED_TYPES
    return all(type_ is not None and type_.name in allowed for type_ in types)


def _if(condition: exp.Expr, value: exp.Expr, other: exp.Expr | None) -> exp.Expr:
    """The value if the condition is true, and ``other``, if given, is true, too; otherwise null."""
    parts = [condition] if other is None else [condition, other]
    return exp.Case(ifs=[exp.If(this=exp.and_(*(p.copy() for p in parts)), true=value.copy())])


def _cast(expression: exp.Expr, type_: str) -> exp.Expr:
    return exp.cast(expression, type_, dialect="spark")


def _reference(number: int) -> exp.Expr:
    return column_of(f"{ACCUMULATOR}{number}")
