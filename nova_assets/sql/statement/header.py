"""The head of a dataset: its scopes, each of them one task that writes one partition."""

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
from nova_assets.sql.evaluation.casting import as_text
from nova_assets.sql.evaluation.evaluator import Evaluator
from nova_assets.sql.evaluation.operand import Evaluable
from nova_assets.sql.evaluation.values import UNKNOWN, Key, Value
from nova_assets.sql.parse.dialect import For, Generator, Let
from nova_assets.sql.statement.timeseries import Series, series
from nova_assets.sql.text import Text

Scope: TypeAlias = Mapping[str, Value]
"""The variables of a task, and their values."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A variable with these values: ``store IN ('Detroit', 'Paris')``."""

    name: str
    values: tuple[Value, ...]


@dataclass(frozen=True)
class Head:
    """For which scopes a query is run, and which partition each of them writes.

    Args:
        generators: variables, each with all its values.
        lets: variables that follow from them.
        partition: column -> how its value follows from a scope.
        said: a hash of all that as it is written, whatever the query: what is said alike comes to the same.
        text: where it is written.
    """

    generators: tuple[Series | Listed, ...] = ()
    lets: tuple[tuple[str, Evaluable], ...] = ()
    partition: tuple[tuple[str, Evaluable], ...] = ()
    said: str = field(default="", compare=False)
    text: Text = field(default=Text("", ""), compare=False, repr=False)

    @property
    def columns(self) -> tuple[str, ...]:
        """The partition columns."""
        return tuple(name for name, _ in self.partition)

    @property
    def variables(self) -> tuple[str, ...]:
        return (*(g.name for g in self.generators), *(name for name, _ in self.lets))

    @property
    def zone(self) -> tzinfo:
        return next((g.zone for g in self.generators if isinstance(g, Series)), UTC)

    @property
    def known_variables(self) -> dict[str, DataType]:
        """Spark type of each variable."""
        return {g.name: _generated_type(g) for g in self.generators} | _types(self.lets)

    @property
    def variable_types(self) -> dict[str, str]:
        """What Spark calls the types of the variables."""
        return {name: str(type_) for name, type_ in self.known_variables.items()}

    @property
    def column_types(self) -> dict[str, str]:
        """What Spark calls the types of the partition columns."""
        return {name: str(type_) for name, type_ in _types(self.partition).items()}

    @property
    def some_scope(self) -> Scope:
        """One of the scopes, whatever the time."""
        return self.whole({g.name: _some_value(g) for g in self.generators})

    def bounds(self, now: datetime) -> tuple[tuple[datetime, datetime], ...]:
        """The first and last moments of its series: all that its scopes have of the time."""
        return tuple(g.bounds(now) for g in self.generators if isinstance(g, Series))

    def scopes(self, now: datetime) -> Iterator[Scope]:
        """All scopes as of a moment, in the order in which the head says them."""
        each = [g.moments(now) if isinstance(g, Series) else g.values for g in self.generators]
        names = [g.name for g in self.generators]
        for values in product(*each):
            yield self.whole(dict(zip(names, values, strict=True)))

    def partition_of(self, scope: Scope) -> dict[str, Value]:
        """The values of the partition that a scope writes."""
        values = {("", name): value for name, value in scope.items()}
        return {column: computed.value(values) for column, computed in self.partition}

    def tasks(self, now: datetime) -> dict[str, Scope]:
        """Partition -> the scope that writes it, as of a moment.

        Raises:
            SqlError: two scopes write the same.
        """
        found: dict[str, Scope] = {}
        for scope in self.scopes(now):
            name = self.name_of(self.partition_of(scope))
            if name in found:
                raise self.text.error(
                    f"two scopes write partition {name or '(the whole)'}: {shown(found[name])} and {shown(scope)}",
                    None,
                    expected="a partition for each scope",
                    next="name every variable of FOR in PARTITION (...)",
                )
            found[name] = scope
        return found

    def name_of(self, values: Mapping[str, Value]) -> str:
        return partition_name(self.columns, {c: written(values[c]) for c in self.columns})

    def whole(self, scope: dict[str, Value]) -> Scope:
        """A scope, with the variables that follow."""
        values = {("", name): value for name, value in scope.items()}
        for name, computed in self.lets:
            scope[name] = values["", name] = computed.value(values)
        return scope


def written(value: Value) -> str | None:
    """A value as a partition's name has it."""
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:00") + (value.strftime("%z") if value.fold else "")
    return None if value is None else as_text(value)


def shown(scope: Scope) -> str:
    """``t = 2022-03-31T00:00:00Z, store = Paris``"""
    return ", ".join(f"{name} = {value_shown(value)}" for name, value in scope.items())


def value_shown(value: Value) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return "NULL" if value is None else as_text(value)


def head_of(text: Text, node: For | None, partition: exp.Partition | None) -> Head:
    """The head that a statement says.

    Raises:
        SqlError: it says something that cannot be computed, or nothing for a column or variable.
    """
    generators: list[Series | Listed] = []
    said = node.args if node is not None else {}
    for one in said.get("generators") or ():
        _refuse_twice(text, one.this, [g.name for g in generators])
        generators.append(_generator(text, one))
    zone = next((g.zone for g in generators if isinstance(g, Series)), UTC)
    known = {g.name: _generated_type(g) for g in generators}
    lets: list[tuple[str, Evaluable]] = []
    for let in said.get("lets") or ():
        assert isinstance(let, Let)
        _refuse_twice(text, let.this, known)
        value = of_scope(text, let.expression, known, zone)
        lets.append((let.this.name, value))
        known |= _types(lets[-1:])
    columns = [_partition_column(text, e, known, zone) for e in (partition.expressions if partition else ())]
    nodes = [*(said.get("generators") or ()), *(said.get("lets") or ())]
    return Head(tuple(generators), tuple(lets), tuple(columns), _said([*nodes, partition]), text)


def _said(nodes: Sequence[exp.Expr | None]) -> str:
    return sha256("; ".join(map(repr, nodes)).encode()).hexdigest()


def _refuse_twice(text: Text, name: exp.Expr, known: Collection[str]) -> None:
    if name.name in known:
        raise text.error(f"two variables are called {name.name!r}", name, expected="different names")


def _generator(text: Text, node: Generator) -> Series | Listed:
    name, among = node.this.name, node.expression
    if isinstance(among, exp.Tuple):
        return Listed(name, _values(text, among))
    if isinstance(among, exp.Anonymous) and among.name.upper() == "TIMESERIES":
        return series(text, name, among)
    raise text.error(
        "a variable takes its values from what is not known",
        among,
        expected="IN ('a', 'b'), or IN TIMESERIES(start => '2024-01-01')",
    )


def _values(text: Text, among: exp.Tuple) -> tuple[Value, ...]:
    found = [_constant(text, e) for e in among.expressions]
    if len(set(map(type, found))) > 1:
        raise text.error("the values of a variable are of several types", among, expected="values of one type")
    for value, node in zip(found, among.expressions, strict=True):
        if found.count(value) > 1:
            raise text.error(f"{node.sql('spark')} is listed twice", node, expected="different values")
    return tuple(found)


def _constant(text: Text, node: exp.Expr) -> Value:
    computed = of_scope(text, node, {}, UTC)
    value = computed.value({})
    if value is UNKNOWN or value is None:
        raise text.error(f"{node.sql('spark')} is no plain value", node, expected="'a', 1, true or DATE '2024-01-01'")
    return value


def of_scope(text: Text, node: exp.Expr, known: Mapping[str, DataType], zone: tzinfo) -> Evaluable:
    """An expression of variables. Raises SqlError where it has others, or is not understood.

    Args:
        known: the variables, and their Spark types.
    """
    for column in node.find_all(exp.Column, exp.Placeholder):
        if column.name not in known or (isinstance(column, exp.Column) and column.table):
            raise text.error(
                f"there is no variable {column.sql('spark')!r}",
                column,
                expected=", ".join(known) or "a plain value: there is none before it",
            )

    def of(column: exp.Column | exp.Placeholder) -> tuple[Key, DataType]:
        return ("", column.name), known[column.name]

    return Evaluator(of, zone).exactly(text, node)


def _partition_column(text: Text, node: exp.Expr, known: Mapping[str, DataType], zone: tzinfo) -> tuple[str, Evaluable]:
    if isinstance(node, exp.EQ):
        return node.this.name, of_scope(text, node.expression, known, zone)
    return node.name, of_scope(text, node, known, zone)


def _generated_type(generator: Series | Listed) -> DataType:
    """Spark type of a variable of FOR: the widest of its values."""
    if isinstance(generator, Series):
        return DataType("timestamp")
    types = {type_of(value) for value in generator.values}
    return parse_type("bigint" if types == {"int", "bigint"} else types.pop())


def _types(values: Iterable[tuple[str, Evaluable]]) -> dict[str, DataType]:
    return {name: value.type for name, value in values if value.type is not None}


def _some_value(generator: Series | Listed) -> Value:
    if isinstance(generator, Listed):
        return generator.values[0]
    return generator.start or datetime(2000, 1, 1, tzinfo=generator.zone)


def type_of(value: Any) -> str:
    """What Spark calls the type of a value."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "int" if -(2**31) <= value < 2**31 else "bigint"
    if isinstance(value, datetime):
        return "timestamp"
    if isinstance(value, date):
        return "date"
    if isinstance(value, Decimal):
        return f"decimal({len(value.as_tuple().digits)},{max(0, -int(value.as_tuple().exponent))})"
    return "double" if isinstance(value, float) else "string"


def dimensions(head: Head) -> tuple[Dimension, ...]:
    """How a channel is partitioned that such tasks write."""
    return tuple(_dimension(head, column, computed) for column, computed in head.partition)


def _dimension(head: Head, column: str, computed: Evaluable) -> Dimension:
    """A calendar where the value is a day or hour of a series; the values of a list; else what turns up."""
    of = [g for g in head.generators if g.name in variables_behind(head, computed)]
    if len(of) == 1 and isinstance(of[0], Listed):
        values = [head.partition_of(s)[column] for s in _scopes_of(head, of[0])]
        return Dimension(column, "static", values=tuple(dict.fromkeys(str(written(v)) for v in values)))
    if len(of) == 1 and isinstance(of[0], Series):
        found = _calendar(head, column, of[0])
        if found is not None:
            return found
    return Dimension(column, "dynamic")


def variables_behind(head: Head, computed: Evaluable) -> set[str]:
    """The variables of ``FOR`` on which an expression hangs, through ``LET`` too."""
    lets = dict(head.lets)
    found: set[str] = set()
    waiting = [name for _, name in computed.keys]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += [n for _, n in lets[name].keys] if name in lets else []
    return found


def _scopes_of(head: Head, one: Listed) -> list[Scope]:
    """Scopes with every value of one variable."""
    others = {g.name: _some_value(g) for g in head.generators}
    return [head.whole({**others, one.name: value}) for value in one.values]


def _calendar(head: Head, column: str, one: Series) -> Dimension | None:
    """The dimension of days or hours, if that is what the column says of some moments."""
    start = _some_value(one)
    kind = "daily" if one.every == "day" else "hourly"
    begins = start.strftime("%Y-%m-%d" if kind == "daily" else "%Y-%m-%dT%H:%M")
    ends = None if one.end is None else one.end.strftime("%Y-%m-%d" if kind == "daily" else "%Y-%m-%dT%H:00")
    dimension = Dimension(
        column,
        kind,  # type: ignore[arg-type]
        begins,
        one.tz,
        keep=_keep(one),
        end=ends,
        lag=one.lag,
        last=one.last,
    )
    others = {g.name: _some_value(g) for g in head.generators}
    for moment in one.between(start, one.back(start, -3)):
        value = written(head.partition_of(head.whole({**others, one.name: moment}))[column])
        try:
            if value is None or dimension.parse(value) != value or value != dimension.of_moment(moment):
                return None
        except PartitionError:
            return None
    return dimension


def _keep(one: Series) -> str | None:
    """How long after its end a partition is kept: until it is none of the last. None where these stay the same."""
    if one.last is None or one.end is not None:
        return None
    return f"{one.last - 1 + one.lag}{'d' if one.every == 'day' else 'h'}"
