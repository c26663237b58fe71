"""Objects, one by one, as rows of declared types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from nova_assets.errors import SchemaMismatch
from nova_assets.formats.declared_types import declared_types
from nova_assets.formats.read_outcome import Parsed, Refused
from nova_assets.model.arrow_types import arrow_type
from nova_assets.model.conversion import JSON, InputKind, convert
from nova_assets.model.schema import DELETED, DataType, Schema

Undeclared = Literal["refuse", "drop", "keep"]
"""What becomes of a column that is not declared: its row is refused, the column is left out, or its type is inferred
from its values."""


class BadValue(ValueError):
    """A row is not what is declared.

    Args:
        reason: names the column.
        column: None where the row is no object, or has undeclared columns.
    """

    def __init__(self, reason: str, column: str | None = None) -> None:
        super().__init__(reason)
        self.column = column


@dataclass
class Rows:
    """What was read of a file up to now: tables that were read at once, and rows between them.

    Args:
        schema: what is declared; None if nothing is.
        undeclared: what becomes of other columns. Fields of structs that are not declared are refused, unless they are
            to be dropped.
        kind: of input, by which values are converted.
        plain: turns a value of an undeclared column into one of which Arrow can infer the type.
    """

    schema: Schema | None
    undeclared: Undeclared = "refuse"
    kind: InputKind = JSON
    plain: Callable[[Any], Any] = lambda value: value
    numbers: list[int] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    _tables: list[pa.Table] = field(default_factory=list)
    _rows: list[dict[str, Any]] = field(default_factory=list)
    _others: dict[str, dict[int, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.declared = declared_types(self.schema)
        self.wanted = pa.schema([(n, arrow_type(t)) for n, t in self.declared.items()])

    def take(self, number: int, value: Any) -> None:
        """An object as the next row. Raises BadValue where it is none of the declared types."""
        if not isinstance(value, dict):
            raise BadValue('no object: expected {"column": value, ...}')
        others = {n: v for n, v in value.items() if n not in self.declared}
        if others and self.undeclared == "refuse":
            raise BadValue(f"columns that are not the channel's: {', '.join(map(repr, others))}")
        row = {n: self._typed(n, v, self.declared[n]) for n, v in value.items() if n in self.declared}
        if self.undeclared == "keep":
            others = {n: self._plain(n, v) for n, v in others.items()}
            for name, other in others.items():
                self._others.setdefault(name, {})[len(self.numbers)] = other
        self._rows.append(row)
        self.numbers.append(number)

    def take_table(self, table: pa.Table, numbers: Sequence[int]) -> None:
        """Several rows, which have all declared columns and no other."""
        self.settle()
        self._tables.append(table)
        self.numbers += numbers

    def settle(self) -> None:
        """Turn the rows since the last table into one: rows of Python's take many times the memory."""
        if self._rows:
            columns = [pa.array([r.get(f.name) for r in self._rows], f.type) for f in self.wanted]
            self._tables.append(pa.Table.from_arrays(columns, schema=self.wanted))
            self._rows = []

    def parsed(self) -> Parsed:
        """All rows.

        Raises:
            SchemaMismatch: an undeclared column has values of different types.
        """
        self.settle()
        table = pa.concat_tables(self._tables) if self._tables else self.wanted.empty_table()
        for name, values in self._others.items():
            table = table.append_column(name, _inferred(name, [values.get(n) for n in range(len(self.numbers))]))
        return Parsed(without_unsaid(table), self.numbers, tuple(self.refused))

    def _typed(self, name: str, value: Any, type_: DataType) -> Any:
        try:
            _check_text(value)
            return convert(_with_declared_fields(value, type_, self.undeclared == "drop"), type_, self.kind)
        except (ValueError, ArithmeticError) as error:
            raise BadValue(f"column {name!r}: {error or type(error).__name__}", name) from error

    def _plain(self, name: str, value: Any) -> Any:
        try:
            _check_text(name)
            _check_text(value)
            return self.plain(value)
        except (ValueError, ArithmeticError) as error:
            raise BadValue(f"column {name!r}: {error or type(error).__name__}", name) from error


def without_unsaid(table: pa.Table) -> pa.Table:
    """``_deleted`` is asked for by name, and comes back empty from a file that does not say it."""
    if DELETED in table.column_names and table.column(DELETED).null_count == table.num_rows:
        return table.drop_columns([DELETED])
    return table


def _with_declared_fields(value: Any, type_: DataType, drop: bool) -> Any:
    """A value whose structs have no other fields than the declared ones.

    Args:
        drop: leave others out.

    Raises:
        ValueError: a struct has others.
    """
    if not type_.fields or value is None:
        return value
    types = [f.type for f in type_.fields]
    if type_.name == "array" and isinstance(value, list):
        return [_with_declared_fields(v, types[0], drop) for v in value]
    if type_.name == "map" and isinstance(value, Mapping):
        return {k: _with_declared_fields(v, types[1], drop) for k, v in value.items()}
    if type_.name == "struct" and isinstance(value, Mapping):
        names = [f.name for f in type_.fields]
        others = [n for n in value if n not in names]
        if others and not drop:
            raise ValueError(f"fields that {type_} does not have: {', '.join(map(repr, others))}")
        return {n: _with_declared_fields(value[n], t, drop) for n, t in zip(names, types, strict=True) if n in value}
    return value


def _check_text(value: Any) -> None:
    """JSON can say half of a character, which no text holds. Raises ValueError."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"{ascii(value)[:80]} holds half of a character (a lone surrogate)") from error
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            _check_text(name)
            _check_text(inner)
    elif isinstance(value, list):
        for inner in value:
            _check_text(inner)


def _inferred(name: str, values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError, ValueError) as error:
        raise SchemaMismatch(
            f"column {name!r} has values of different types",
            found=str(error),
            next="declare the column's type, or mend the values",
            column=name,
        ) from error
