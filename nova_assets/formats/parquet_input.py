"""Parquet files of external origin. Times in the old type INT96 are read as Spark reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from nova_assets.errors import SchemaMismatch
from nova_assets.formats.column_conversion import declared_types
from nova_assets.formats.parquet_types import (
    check_parquet_footer,
    check_parquet_types,
    damaged_file_error,
    may_be_julian,
)
from nova_assets.formats.python_values import map_entries, text_of_value
from nova_assets.formats.value_checks import check_not_julian
from nova_assets.model.schema import DataType, Schema

_INSTANT = pa.timestamp("us", "UTC")

_BATCH_ROWS = 1 << 16


class ParquetInput:
    """An open Parquet file. Reads verify the checksums of its pages.

    INT96 times are instants, unless the schema declares ``timestamp_ntz``. Arrow reads a far INT96 time as another
    time, without an error, if it is read in microseconds. So all INT96 times are also read in seconds, and compared.

    Args:
        schema: schema of the channel; None if no columns are declared.
        display_name: name of the file in errors.

    Raises:
        SchemaMismatch: a column has a type that Arrow reads as the bytes or numbers that encode it.
        BadRecord: the footer is damaged.
    """

    def __init__(self, source: Path | BinaryIO, schema: Schema | None, display_name: str) -> None:
        self._micros = _open(source, "us")
        check_parquet_footer(self._micros.metadata, display_name)
        check_parquet_types(self._micros.metadata, display_name)
        self._display_name, self._may_be_julian = display_name, may_be_julian(self._micros.metadata)
        self.schema: pa.Schema = self._micros.schema_arrow
        columns = (self._micros.schema.column(n) for n in range(len(self._micros.schema)))
        self._seconds: pq.ParquetFile | None = None
        if any(c.physical_type == "INT96" for c in columns):
            self._seconds = _open(source, "s")
            declared = declared_types(schema)
            fields = zip(self.schema, self._seconds.schema_arrow, strict=True)
            self._int96_columns = [f.name for f, seconds in fields if f.type != seconds.type]
            self.schema = pa.schema(
                [
                    _with_instants(f, self._seconds.schema_arrow.field(n), declared.get(f.name))
                    for n, f in enumerate(self.schema)
                ],
                self.schema.metadata,
            )

    def close(self) -> None:
        self._micros.close()
        if self._seconds is not None:
            self._seconds.close()

    def read(self) -> pa.Table:
        """All rows."""
        if self._seconds is None and not self._may_be_julian:
            table = self._micros.read()
            self._check_row_count(table.num_rows, None)
            return table
        tables = list(self.iter_tables(_BATCH_ROWS))
        return pa.concat_tables(tables) if tables else self.schema.empty_table()

    def iter_tables(
        self, batch_rows: int, row_groups: Sequence[int] | None = None, first_row_number: int = 1, threads: bool = True
    ) -> Iterator[pa.Table]:
        """The rows in tables of at most ``batch_rows`` rows.

        Args:
            row_groups: numbers of the row groups to read; None for all.
            first_row_number: number of the first row in errors.
        """
        row_number = first_row_number
        for table in self._iter_converted(batch_rows, row_groups, first_row_number, threads):
            if self._may_be_julian:
                check_not_julian(table, self._display_name, row_number)
            yield table
            row_number += table.num_rows
        self._check_row_count(row_number - first_row_number, row_groups)

    def _check_row_count(self, rows: int, row_groups: Sequence[int] | None) -> None:
        """Check that Arrow has read all rows: it skips a page of a kind that it does not know. Raises BadRecord."""
        footer = self._micros.metadata
        groups = range(footer.num_row_groups) if row_groups is None else row_groups
        expected = sum(footer.row_group(n).num_rows for n in groups)
        if rows != expected:
            raise damaged_file_error(self._display_name, f"{rows} rows in its pages, and {expected} in its footer")

    def _iter_converted(
        self, batch_rows: int, row_groups: Sequence[int] | None, first_row_number: int, threads: bool
    ) -> Iterator[pa.Table]:
        groups = None if row_groups is None else list(row_groups)
        batches = self._micros.iter_batches(batch_rows, groups, use_threads=threads)
        if self._seconds is None:
            yield from (pa.Table.from_batches([batch]) for batch in batches)
            return
        seconds = self._seconds.iter_batches(batch_rows, groups, self._int96_columns, use_threads=threads)
        for batch, checked in zip(batches, seconds, strict=True):
            table = pa.Table.from_batches([batch])
            yield self._to_instants(table, pa.Table.from_batches([checked]), first_row_number)
            first_row_number += batch.num_rows

    def _to_instants(self, table: pa.Table, seconds: pa.Table, first_row_number: int) -> pa.Table:
        for name in self._int96_columns:
            micros_array, seconds_array = (_single_array(t.column(name)) for t in (table, seconds))
            if _has_wrapped_time(micros_array, seconds_array):
                index = next(
                    n
                    for n in range(len(micros_array))
                    if _has_wrapped_time(micros_array.slice(n, 1), seconds_array.slice(n, 1))
                )
                raise SchemaMismatch(
                    f"row {first_row_number + index} has a time that Arrow reads as another time, in column {name!r}",
                    found=f"{text_of_value(seconds_array[index])[:300]} (INT96)",
                    expected="times that 64 bits of microseconds represent",
                    next="read the file with Spark, and insert the DataFrame",
                    column=name,
                    row=first_row_number + index,
                )
        return table.cast(self.schema)


def _open(source: Path | BinaryIO, int96_unit: str) -> pq.ParquetFile:
    return pq.ParquetFile(source, coerce_int96_timestamp_unit=int96_unit, page_checksum_verification=True)


def _has_wrapped_time(micros: pa.Array, seconds: pa.Array) -> bool:
    """Whether a time differs if it is read in seconds, at any level of an array."""
    type_ = micros.type
    if pa.types.is_timestamp(type_) and type_ != seconds.type:
        numbers, wanted = (pc.fill_null(array.view(pa.int64()), 0).to_numpy() for array in (micros, seconds))
        return bool((numbers // 10**6 != wanted).any())
    if pa.types.is_struct(type_):
        return any(_has_wrapped_time(micros.field(n), seconds.field(n)) for n in range(type_.num_fields))
    if pa.types.is_map(type_):
        return any(map(_has_wrapped_time, map_entries(micros), map_entries(seconds)))
    return pa.types.is_nested(type_) and _has_wrapped_time(micros.flatten(), seconds.flatten())


def _single_array(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks != 1 else column.chunk(0)


def _with_instants(micros: pa.Field, seconds: pa.Field, declared: DataType | None) -> pa.Field:
    """Field whose INT96 times, the types of which depend on the unit of the read, are instants."""
    type_, other = micros.type, seconds.type
    if pa.types.is_timestamp(type_) and type_ != other and (declared is None or declared.name != "timestamp_ntz"):
        return micros.with_type(_INSTANT)
    if not pa.types.is_nested(type_) or type_ == other:
        return micros
    inner = {} if declared is None else {f.name: f.type for f in declared.fields}
    if pa.types.is_struct(type_):
        parts = [_with_instants(f, other.field(n), inner.get(f.name)) for n, f in enumerate(type_)]
        return micros.with_type(pa.struct(parts))
    if pa.types.is_map(type_):
        key = _with_instants(type_.key_field, other.key_field, inner.get("key"))
        return micros.with_type(
            pa.map_(key, _with_instants(type_.item_field, other.item_field, inner.get("value")), type_.keys_sorted)
        )
    return micros.with_type(pa.list_(_with_instants(type_.value_field, other.value_field, inner.get("element"))))
