"""The header of a dataset statement: its scopes (FOR, LET) and the partition that each scope writes. One task runs
per scope.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, tzinfo
from decimal import Decimal
from hashlib import sha256
from itertools import product
from typing import Any, TypeAlias

from sqlglot import exp

from nova_assets.errors import PartitionError
from nova_assets.model.partitions import Dimension, partition_name
from nova_assets.model.schema import DataType, parse_type
from nova_assets.sql.evaluation.casting import cast_to_text
from nova_assets.sql.evaluation.evaluator import Evaluator
from nova_assets.sql.evaluation.operand import UNKNOWN, Evaluable, Key, Value
from nova_assets.sql.parse.dialect import For, Generator, Let
from nova_assets.sql.statement.timeseries import TimeSeries, parse_timeseries
from nova_assets.sql.text import SqlText

ScopeValues: TypeAlias = Mapping[str, Value]
"""Variable of a task -> its value."""


@dataclass(frozen=True, slots=True)
class ListedValues:
    """A variable with listed values: ``store IN ('Detroit', 'Paris')``."""

    name: str
    values: tuple[Value, ...]


@dataclass(frozen=True)
class StatementHeader:
    """The scopes for which a query runs, and the partition that each scope writes.

    Args:
        generators: the variables of FOR, each with its values.
        lets: the variables of LET, computed from other variables.
        partition_expressions: partition column -> the expression that computes its value from a scope.
        syntax_hash: hash of the header's syntax, independent of the query. Equal headers have equal hashes.
        text: the statement that contains the header.
    """

    generators: tuple[TimeSeries | ListedValues, ...] = ()
    lets: tuple[tuple[str, Evaluable], ...] = ()
    partition_expressions: tuple[tuple[str, Evaluable], ...] = ()
    syntax_hash: str = field(default="", compare=False)
    text: SqlText = field(default=SqlText("", ""), compare=False, repr=False)

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """Names of the partition columns."""
        return tuple(name for name, _ in self.partition_expressions)

    @property
    def variables(self) -> tuple[str, ...]:
        return (*(g.name for g in self.generators), *(name for name, _ in self.lets))

    @property
    def zone(self) -> tzinfo:
        return _zone_of(self.generators)

    @property
    def variable_data_types(self) -> dict[str, DataType]:
        """Spark type of each variable."""
        return {g.name: _generator_type(g) for g in self.generators} | _types_by_name(self.lets)

    @property
    def variable_types(self) -> dict[str, str]:
        """Spark type name of each variable."""
        return {name: str(type_) for name, type_ in self.variable_data_types.items()}

    @property
    def partition_column_types(self) -> dict[str, str]:
        """Spark type name of each partition column."""
        return {name: str(type_) for name, type_ in _types_by_name(self.partition_expressions).items()}

    @property
    def sample_scope(self) -> ScopeValues:
        """One scope that is independent of the current time."""
        return self.scope_with_samples({})

    def scope_with_samples(self, values: ScopeValues) -> ScopeValues:
        """A scope with some values of variables of FOR. Its other variables of FOR have sample values."""
        return self.add_let_variables({g.name: _sample_value(g) for g in self.generators} | dict(values))

    def series_bounds(self, now: datetime) -> tuple[tuple[datetime, datetime], ...]:
        """The first and last moment of each time series. The scopes depend on time through these bounds only."""
        return tuple(g.bounds(now) for g in self.generators if isinstance(g, TimeSeries))

    def scopes(self, now: datetime) -> Iterator[ScopeValues]:
        """All scopes as of a moment, in the order of the header."""
        each = [g.moments(now) if isinstance(g, TimeSeries) else g.values for g in self.generators]
        names = [g.name for g in self.generators]
        for values in product(*each):
            yield self.add_let_variables(dict(zip(names, values, strict=True)))

    def partition_values_of(self, scope: ScopeValues) -> dict[str, Value]:
        """Partition column -> its value in the partition that a scope writes."""
        values = {("", name): value for name, value in scope.items()}
        return {column: computed.value(values) for column, computed in self.partition_expressions}

    def scopes_by_partition(self, now: datetime) -> dict[str, ScopeValues]:
        """Partition -> the scope that writes it, as of a moment.

        Raises:
            SqlError: two scopes write the same partition.
        """
        scope_by_partition: dict[str, ScopeValues] = {}
        for scope in self.scopes(now):
            name = self.partition_name_of(self.partition_values_of(scope))
            if name in scope_by_partition:
                raise self.text.error(
                    f"two scopes write partition {name or '(the whole)'}: "
                    f"{format_scope(scope_by_partition[name])} and {format_scope(scope)}",
                    None,
                    expected="a partition for each scope",
                    next="name every variable of FOR in PARTITION (...)",
                )
            scope_by_partition[name] = scope
        return scope_by_partition

    def partition_name_of(self, partition_values: Mapping[str, Value]) -> str:
        return partition_name(
            self.partition_columns, {c: partition_value_text(partition_values[c]) for c in self.partition_columns}
        )

    def add_let_variables(self, scope: dict[str, Value]) -> ScopeValues:
        """Add the variables of LET to a scope, in place."""
        values = {("", name): value for name, value in scope.items()}
        for name, computed in self.lets:
            scope[name] = values["", name] = computed.value(values)
        return scope


def partition_value_text(value: Value) -> str | None:
    """A value as text in a partition name."""
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:00") + (value.strftime("%z") if value.fold else "")
    return None if value is None else cast_to_text(value)


def format_scope(scope: ScopeValues) -> str:
    """``t = 2022-03-31T00:00:00Z, store = Paris``"""
    return ", ".join(f"{name} = {display_text(value)}" for name, value in scope.items())


def display_text(value: Value) -> str:
    """A value as text for people; a time is in UTC."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return "NULL" if value is None else cast_to_text(value)


def parse_header(text: SqlText, for_node: For | None, partition_node: exp.Partition | None) -> StatementHeader:
    """The header of a statement.

    Raises:
        SqlError: an expression cannot be evaluated, or a variable is undefined or defined twice.
    """
    generators: list[TimeSeries | ListedValues] = []
    for_arguments = for_node.args if for_node is not None else {}
    for one in for_arguments.get("generators") or ():
        _check_name_is_new(text, one.this, [g.name for g in generators])
        generators.append(_parse_generator(text, one))
    zone = _zone_of(generators)
    variable_types = {g.name: _generator_type(g) for g in generators}
    lets: list[tuple[str, Evaluable]] = []
    for let in for_arguments.get("lets") or ():
        assert isinstance(let, Let)
        _check_name_is_new(text, let.this, variable_types)
        value = compile_scope_expression(text, let.expression, variable_types, zone)
        lets.append((let.this.name, value))
        variable_types |= _types_by_name(lets[-1:])
    columns = [
        _parse_partition_column(text, e, variable_types, zone)
        for e in (partition_node.expressions if partition_node else ())
    ]
    nodes = [*(for_arguments.get("generators") or ()), *(for_arguments.get("lets") or ())]
    return StatementHeader(tuple(generators), tuple(lets), tuple(columns), _hash_nodes([*nodes, partition_node]), text)


def _zone_of(generators: Iterable[TimeSeries | ListedValues]) -> tzinfo:
    """Time zone in which the expressions of a header are evaluated: that of its first time series."""
    return next((g.zone for g in generators if isinstance(g, TimeSeries)), UTC)


def _hash_nodes(nodes: Sequence[exp.Expr | None]) -> str:
    return sha256("; ".join(map(repr, nodes)).encode()).hexdigest()


def _check_name_is_new(text: SqlText, name_node: exp.Expr, defined_names: Collection[str]) -> None:
    if name_node.name in defined_names:
        raise text.error(f"two variables are called {name_node.name!r}", name_node, expected="different names")


def _parse_generator(text: SqlText, node: Generator) -> TimeSeries | ListedValues:
    name, values_node = node.this.name, node.expression
    if isinstance(values_node, exp.Tuple):
        return ListedValues(name, _parse_listed_values(text, values_node))
    if isinstance(values_node, exp.Anonymous) and values_node.name.upper() == "TIMESERIES":
        return parse_timeseries(text, name, values_node)
    raise text.error(
        "the values of a variable are neither a list nor TIMESERIES(...)",
        values_node,
        expected="IN ('a', 'b'), or IN TIMESERIES(start => '2024-01-01')",
    )


def _parse_listed_values(text: SqlText, values_node: exp.Tuple) -> tuple[Value, ...]:
    found = [_evaluate_constant(text, e) for e in values_node.expressions]
    if len(set(map(type, found))) > 1:
        raise text.error(
            "the values of a variable have different types", values_node, expected="values of the same type"
        )
    for value, node in zip(found, values_node.expressions, strict=True):
        if found.count(value) > 1:
            raise text.error(f"{node.sql('spark')} is listed twice", node, expected="different values")
    return tuple(found)


def _evaluate_constant(text: SqlText, node: exp.Expr) -> Value:
    computed = compile_scope_expression(text, node, {}, UTC)
    value = computed.value({})
    if value is UNKNOWN or value is None:
        raise text.error(f"{node.sql('spark')} is not a constant", node, expected="'a', 1, true or DATE '2024-01-01'")
    return value


def compile_scope_expression(
    text: SqlText, node: exp.Expr, variable_types: Mapping[str, DataType], zone: tzinfo
) -> Evaluable:
    """Compile an expression of scope variables. Raises SqlError if the expression uses other names or cannot be
    evaluated.

    Args:
        variable_types: variable -> its Spark type.
    """
    for column in node.find_all(exp.Column, exp.Placeholder):
        if column.name not in variable_types or (isinstance(column, exp.Column) and column.table):
            raise text.error(
                f"there is no variable {column.sql('spark')!r}",
                column,
                expected=", ".join(variable_types) or "a constant: no variable is defined before it",
            )

    def resolve_variable(column: exp.Column | exp.Placeholder) -> tuple[Key, DataType]:
        return ("", column.name), variable_types[column.name]

    return Evaluator(resolve_variable, zone).compile_strictly(text, node)


def _parse_partition_column(
    text: SqlText, node: exp.Expr, variable_types: Mapping[str, DataType], zone: tzinfo
) -> tuple[str, Evaluable]:
    if isinstance(node, exp.EQ):
        return node.this.name, compile_scope_expression(text, node.expression, variable_types, zone)
    return node.name, compile_scope_expression(text, node, variable_types, zone)


def _generator_type(generator: TimeSeries | ListedValues) -> DataType:
    """Spark type of a variable of FOR, which holds all its values."""
    if isinstance(generator, TimeSeries):
        return DataType("timestamp")
    names = {spark_type_name(value) for value in generator.values}
    types = [parse_type(name) for name in sorted(names)]
    if len(types) > 1 and all(t.name == "decimal" for t in types):
        scale = max(t.args[1] for t in types)
        whole_digits = max(t.args[0] - t.args[1] for t in types)
        return parse_type(f"decimal({min(38, whole_digits + scale)},{scale})")
    return parse_type("bigint") if names == {"int", "bigint"} else types[0]


def _types_by_name(named_expressions: Iterable[tuple[str, Evaluable]]) -> dict[str, DataType]:
    return {name: value.type for name, value in named_expressions if value.type is not None}


def _sample_value(generator: TimeSeries | ListedValues) -> Value:
    if isinstance(generator, ListedValues):
        return generator.values[0]
    return generator.start or datetime(2000, 1, 1, tzinfo=generator.zone)


def spark_type_name(value: Any) -> str:
    """Spark type name of a Python value."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "int" if -(2**31) <= value < 2**31 else "bigint"
    if isinstance(value, datetime):
        return "timestamp"
    if isinstance(value, date):
        return "date"
    if isinstance(value, Decimal):
        scale = max(0, -int(value.as_tuple().exponent))
        return f"decimal({max(len(value.as_tuple().digits), scale)},{scale})"
    return "double" if isinstance(value, float) else "string"


def partition_dimensions(header: StatementHeader) -> tuple[Dimension, ...]:
    """Dimensions of the channel that the tasks of a header write."""
    return tuple(_partition_dimension(header, column, computed) for column, computed in header.partition_expressions)


def _partition_dimension(header: StatementHeader, column: str, expression: Evaluable) -> Dimension:
    """A calendar dimension for the days or hours of a time series, a static dimension for listed values, otherwise a
    dynamic dimension.
    """
    generators = [g for g in header.generators if g.name in variables_used_by(header, expression)]
    if len(generators) == 1 and isinstance(generators[0], ListedValues):
        scopes = [header.scope_with_samples({generators[0].name: value}) for value in generators[0].values]
        values = [header.partition_values_of(scope)[column] for scope in scopes]
        return Dimension(column, "static", values=tuple(dict.fromkeys(str(partition_value_text(v)) for v in values)))
    if len(generators) == 1 and isinstance(generators[0], TimeSeries):
        calendar_dimension = _calendar_dimension(header, column, generators[0])
        if calendar_dimension is not None:
            return calendar_dimension
    return Dimension(column, "dynamic")


def variables_used_by(header: StatementHeader, expression: Evaluable) -> set[str]:
    """The variables of ``FOR`` on which an expression depends, directly or through ``LET``."""
    lets = dict(header.lets)
    used: set[str] = set()
    pending = [name for _, name in expression.keys]
    while pending:
        name = pending.pop()
        if name not in used:
            used.add(name)
            pending += [n for _, n in lets[name].keys] if name in lets else []
    return used


def _calendar_dimension(header: StatementHeader, column: str, time_series: TimeSeries) -> Dimension | None:
    """The calendar dimension of a column, or None if sampled values of the column are not the days or hours of the
    series.
    """
    start = _sample_value(time_series)
    kind = "daily" if time_series.every == "day" else "hourly"
    begins = start.strftime("%Y-%m-%d" if kind == "daily" else "%Y-%m-%dT%H:%M")
    ends = (
        None
        if time_series.end is None
        else time_series.end.strftime("%Y-%m-%d" if kind == "daily" else "%Y-%m-%dT%H:00")
    )
    dimension = Dimension(
        column,
        kind,  # type: ignore[arg-type]
        begins,
        time_series.tz,
        keep=_retention_period(time_series),
        end=ends,
        lag=time_series.lag,
        last=time_series.last,
    )
    for moment in time_series.moments_between(start, time_series.subtract_periods(start, -3)):
        scope = header.scope_with_samples({time_series.name: moment})
        value = partition_value_text(header.partition_values_of(scope)[column])
        try:
            if value is None or dimension.parse(value) != value or value != dimension.partition_starting_at(moment):
                return None
        except PartitionError:
            return None
    return dimension


def _retention_period(time_series: TimeSeries) -> str | None:
    """How long a partition is kept after its end, as in ``90d``. None if the series is not limited to its newest
    periods or has a fixed end.
    """
    if time_series.last is None or time_series.end is not None:
        return None
    return f"{time_series.last - 1 + time_series.lag}{'d' if time_series.every == 'day' else 'h'}"
