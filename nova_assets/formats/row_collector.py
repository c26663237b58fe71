"""Conversion of parsed objects to rows of declared types, object by object."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from nova_assets.errors import SchemaMismatch
from nova_assets.formats.column_conversion import declared_types
from nova_assets.formats.parsed_records import ParsedRecords, RefusedRecord
from nova_assets.model.arrow_types import arrow_type
from nova_assets.model.schema import DELETED, DataType, Schema
from nova_assets.model.value_conversion import JSON, InputKind, convert_value

UndeclaredPolicy = Literal["refuse", "drop", "keep"]
"""Handling of an undeclared column: refuse its row, drop the column, or keep it with an inferred type."""


class BadValue(ValueError):
    """A row does not conform to the declared columns.

    Args:
        reason: text that names the column.
        column: the column with the bad value; None if the row is no object or has undeclared columns.
    """

    def __init__(self, reason: str, column: str | None = None) -> None:
        super().__init__(reason)
        self.column = column


@dataclass
class RowCollector:
    """Collector of a file's rows, added one by one or as whole tables, in file order.

    Args:
        schema: declared columns; None if none are declared.
        undeclared: handling of undeclared columns. Undeclared fields of structs are refused unless this is ``drop``.
        input_kind: kind of input, which selects the conversion rules.
        convert_undeclared: converts a value of an undeclared column to a value whose type Arrow can infer.
        line_numbers: line number of each accepted row.
        refused: refused records.
    """

    schema: Schema | None
    undeclared: UndeclaredPolicy = "refuse"
    input_kind: InputKind = JSON
    convert_undeclared: Callable[[Any], Any] = lambda value: value
    line_numbers: list[int] = field(default_factory=list)
    refused: list[RefusedRecord] = field(default_factory=list)
    _tables: list[pa.Table] = field(default_factory=list)
    _rows: list[dict[str, Any]] = field(default_factory=list)
    _undeclared_values: dict[str, dict[int, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.declared = declared_types(self.schema)
        self.arrow_schema = pa.schema([(n, arrow_type(t)) for n, t in self.declared.items()])

    def add_row(self, line_number: int, value: Any) -> None:
        """Convert an object and add it as the next row.

        Raises:
            BadValue: the object does not conform to the declared columns.
        """
        if not isinstance(value, dict):
            raise BadValue('no object: expected {"column": value, ...}')
        undeclared_values = {n: v for n, v in value.items() if n not in self.declared}
        if undeclared_values and self.undeclared == "refuse":
            raise BadValue(f"columns that the channel does not have: {', '.join(map(repr, undeclared_values))}")
        row = {n: self._convert_declared_value(n, v, self.declared[n]) for n, v in value.items() if n in self.declared}
        if self.undeclared == "keep":
            undeclared_values = {n: self._convert_undeclared_value(n, v) for n, v in undeclared_values.items()}
            for name, undeclared_value in undeclared_values.items():
                self._undeclared_values.setdefault(name, {})[len(self.line_numbers)] = undeclared_value
        self._rows.append(row)
        self.line_numbers.append(line_number)

    def add_table(self, table: pa.Table, line_numbers: Sequence[int]) -> None:
        """Add several rows, which must have all declared columns and no others."""
        self.flush_rows()
        self._tables.append(table)
        self.line_numbers += line_numbers

    def flush_rows(self) -> None:
        """Convert the pending rows to an Arrow table, because Python rows take many times the memory."""
        if self._rows:
            columns = [pa.array([r.get(f.name) for r in self._rows], f.type) for f in self.arrow_schema]
            self._tables.append(pa.Table.from_arrays(columns, schema=self.arrow_schema))
            self._rows = []

    def to_parsed(self) -> ParsedRecords:
        """All collected rows and refused records.

        Raises:
            SchemaMismatch: an undeclared column has values of different types.
        """
        self.flush_rows()
        table = pa.concat_tables(self._tables) if self._tables else self.arrow_schema.empty_table()
        for name, values in self._undeclared_values.items():
            table = table.append_column(
                name, _infer_array(name, [values.get(n) for n in range(len(self.line_numbers))])
            )
        return ParsedRecords(drop_all_null_deleted_column(table), self.line_numbers, tuple(self.refused))

    def _convert_declared_value(self, column: str, value: Any, type_: DataType) -> Any:
        try:
            _check_no_lone_surrogates(value)
            return convert_value(_keep_declared_fields(value, type_, self.undeclared == "drop"), type_, self.input_kind)
        except (ValueError, ArithmeticError) as error:
            raise BadValue(f"column {column!r}: {error or type(error).__name__}", column) from error

    def _convert_undeclared_value(self, column: str, value: Any) -> Any:
        try:
            _check_no_lone_surrogates(column)
            _check_no_lone_surrogates(value)
            return self.convert_undeclared(value)
        except (ValueError, ArithmeticError) as error:
            raise BadValue(f"column {column!r}: {error or type(error).__name__}", column) from error


def drop_all_null_deleted_column(table: pa.Table) -> pa.Table:
    """Table without ``_deleted`` if the column is all null.

    Readers always request ``_deleted``, so the column comes back all null from a file that lacks it.
    """
    if DELETED in table.column_names and table.column(DELETED).null_count == table.num_rows:
        return table.drop_columns([DELETED])
    return table


def _keep_declared_fields(value: Any, type_: DataType, drop_undeclared: bool) -> Any:
    """Value whose structs have only declared fields.

    Args:
        value: the parsed value.
        type_: declared type of the value.
        drop_undeclared: drop undeclared fields instead of raising.

    Raises:
        ValueError: a struct has undeclared fields, and ``drop_undeclared`` is false.
    """
    if not type_.fields or value is None:
        return value
    types = [f.type for f in type_.fields]
    if type_.name == "array" and isinstance(value, list):
        return [_keep_declared_fields(v, types[0], drop_undeclared) for v in value]
    if type_.name == "map" and isinstance(value, Mapping):
        return {k: _keep_declared_fields(v, types[1], drop_undeclared) for k, v in value.items()}
    if type_.name == "struct" and isinstance(value, Mapping):
        names = [f.name for f in type_.fields]
        undeclared_names = [n for n in value if n not in names]
        if undeclared_names and not drop_undeclared:
            raise ValueError(f"fields that {type_} does not have: {', '.join(map(repr, undeclared_names))}")
        return {
            n: _keep_declared_fields(value[n], t, drop_undeclared)
            for n, t in zip(names, types, strict=True)
            if n in value
        }
    return value


def _check_no_lone_surrogates(value: Any) -> None:
    """Raise ValueError if a value contains a lone surrogate, which JSON can express but UTF-8 cannot."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"{ascii(value)[:80]} holds half of a character (a lone surrogate)") from error
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            _check_no_lone_surrogates(name)
            _check_no_lone_surrogates(inner)
    elif isinstance(value, list):
        for inner in value:
            _check_no_lone_surrogates(inner)


def _infer_array(column: str, values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except OverflowError as error:
        raise great_number_error(column, values) from error
    except (pa.ArrowException, ValueError) as error:
        raise SchemaMismatch(
            f"column {column!r} has values of different types",
            found=str(error),
            next="declare the column's type, or correct the values",
            column=column,
        ) from error


def great_number_error(column: str, values: Iterable[Any]) -> SchemaMismatch:
    """Error for a column without a declared type, with a whole number that the inferred type cannot hold."""
    great = next((v for v in values if isinstance(v, int) and not -(2**63) <= v < 2**63), None)
    return SchemaMismatch(
        f"column {column!r} has a number that no bigint can hold",
        found=great if great is None or great.bit_length() < 1000 else f"a number of {great.bit_length()} bits",
        expected="whole numbers of 64 bits, unless the type of the column is declared",
        next=f'declare the column, for example as a decimal: schema="..., {column} decimal(38,0)"',
        column=column,
    )
