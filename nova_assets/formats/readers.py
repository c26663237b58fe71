"""Which format a file is of, and how it is read: all of it or nothing, or as much of it as is right."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import PurePosixPath

import pyarrow as pa

from nova_assets.formats import avro_file, csv_file, json_file, parquet_and_orc, text_file
from nova_assets.formats.conversion import convert_table
from nova_assets.formats.input_file import COMPRESSIONS, READ_ERRORS, File, bad_record_error, unreadable_file_error
from nova_assets.formats.read_outcome import ParsedRecords
from nova_assets.formats.schema_fit import fit_to_schema, schema_of
from nova_assets.model.file_format import Format
from nova_assets.model.schema import DELETED, Schema
from nova_assets.model.schema_evolution import reconcile_schema
from nova_assets.nova_error import NovaError

FORMAT_BY_SUFFIX: Mapping[str, Format] = {
    ".parquet": "parquet",
    ".orc": "orc",
    ".avro": "avro",
    ".csv": "csv",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
    ".txt": "text",
    ".log": "text",
}

_INTERNALLY_COMPRESSED = ("parquet", "orc", "avro")
"""Nothing is around these."""

_TABLE_READERS: Mapping[Format, Callable[[File, Schema | None], pa.Table]] = {
    "json": json_file.read_json,
    "csv": csv_file.read_csv,
    "avro": avro_file.read_avro,
    "parquet": lambda file, _: parquet_and_orc.read_parquet(file),
    "orc": lambda file, _: parquet_and_orc.read_orc(file),
}

_RECORD_READERS: Mapping[Format, Callable[[File, Schema, bool], ParsedRecords]] = {
    "json": json_file.read_valid_records,
    "csv": csv_file.read_valid_records,
    "avro": avro_file.read_valid_records,
    "text": text_file.read_valid_records,
}


def format_from_file_name(file_name: str) -> Format | None:
    """The format that a file's name says; None if it says none."""
    suffixes = [s.lower() for s in PurePosixPath(file_name).suffixes]
    compressed = bool(suffixes) and suffixes[-1] in COMPRESSIONS
    if compressed:
        suffixes.pop()
    format_ = FORMAT_BY_SUFFIX.get(suffixes[-1]) if suffixes else None
    return None if compressed and format_ in _INTERNALLY_COMPRESSED else format_


def read(file: File, format_: Format, schema: Schema | None) -> pa.Table:
    """All records of a file, parsed to the declared types; other columns as they are.

    Raises:
        BadRecord: it is not whole, not what it is said to be, or its records have no column.
        EmptyInput: it has no record.
    """
    table = _TABLE_READERS[format_](file, schema)
    if not table.num_columns:  # such a table loses its rows on its way
        raise bad_record_error(file, "the file's records have no column", found=f"{table.num_rows} records")
    return table


def read_valid_records(file: File, format_: Format, schema: Schema, *, drop_undeclared: bool = False) -> ParsedRecords:
    """The records of a file that are what is declared, in exactly these columns and types, and those that are not.

    Args:
        drop_undeclared: leave out columns that are not declared; otherwise what has one is refused.

    Raises:
        NovaError: nothing of it can be taken: it is not whole, of another format, or has other columns.
    """
    try:
        record_reader = _RECORD_READERS.get(format_)
        parsed = (
            _read_self_describing_file(file, format_, schema, drop_undeclared)
            if record_reader is None
            else record_reader(file, schema, drop_undeclared)
        )
    except READ_ERRORS as error:
        raise unreadable_file_error(file, error) from error
    table = parsed.table.select([n for n in parsed.table.column_names if n in (*schema.names, DELETED)])
    target_schema = Schema(
        (*schema.with_all_nullable().fields, *(f for f in schema_of(table).fields if f.name == DELETED))
    )
    return ParsedRecords(
        fit_to_schema(table.replace_schema_metadata(None), target_schema), parsed.line_numbers, parsed.refused
    )


def _read_self_describing_file(file: File, format_: Format, schema: Schema, drop_undeclared: bool) -> ParsedRecords:
    """A file that says itself what its columns are: they are the channel's, or nothing of it is taken."""
    table = read(file, format_, schema)
    try:
        if drop_undeclared:
            table = table.select([n for n in table.column_names if n in schema])
        table = convert_table(table.replace_schema_metadata(None), schema)
        reconcile_schema("", schema.with_all_nullable(), schema_of(table).without_columns(DELETED), "freeze")
    except NovaError as error:
        message = error.what.removeprefix("channel '' was given data of another schema: ")
        raise bad_record_error(file, message, found=error.found, expected=error.expected) from error
    return ParsedRecords(table, range(1, table.num_rows + 1))
