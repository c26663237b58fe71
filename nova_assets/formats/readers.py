"""Dispatch to the reader of each file format, either for whole files or for the valid records of a file."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath

import pyarrow as pa

from nova_assets.formats import avro_file, csv_file, json_file, parquet_and_orc, text_file
from nova_assets.formats.column_conversion import convert_table
from nova_assets.formats.input_file import COMPRESSIONS, READ_ERRORS, InputFile, bad_record_error, unreadable_file_error
from nova_assets.formats.parsed_records import ParsedRecords
from nova_assets.formats.schema_fit import fit_to_schema, schema_of
from nova_assets.formats.value_checks import check_values
from nova_assets.model.file_source import Format
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
"""Formats with internal compression. A compressed file of such a format has no known format."""

_TABLE_READERS: Mapping[Format, Callable[[InputFile, Schema | None], pa.Table]] = {
    "json": json_file.read_json,
    "csv": csv_file.read_csv,
    "avro": avro_file.read_avro,
    "parquet": parquet_and_orc.read_parquet,
    "orc": lambda file, _: parquet_and_orc.read_orc(file),
}

_RECORD_READERS: Mapping[Format, Callable[[InputFile, Schema, bool], ParsedRecords]] = {
    "json": json_file.read_valid_records,
    "csv": csv_file.read_valid_records,
    "avro": avro_file.read_valid_records,
    "text": text_file.read_valid_records,
}


def format_from_file_name(file_name: str) -> Format | None:
    """Format that a file's name implies, by its suffix; None for an unknown suffix."""
    suffixes = [s.lower() for s in PurePosixPath(file_name).suffixes]
    compressed = bool(suffixes) and suffixes[-1] in COMPRESSIONS
    if compressed:
        suffixes.pop()
    format_ = FORMAT_BY_SUFFIX.get(suffixes[-1]) if suffixes else None
    return None if compressed and format_ in _INTERNALLY_COMPRESSED else format_


def read_table(file: InputFile, format_: Format, schema: Schema | None) -> pa.Table:
    """Read all records of a file in the declared types. Undeclared columns keep their own types.

    Raises:
        BadRecord: the file is truncated, has another format or a bad value, or its records have no column.
        EmptyInput: the file has no record.
    """
    try:
        table = _TABLE_READERS[format_](file, schema)
    except (EOFError, zlib.error) as error:
        raise unreadable_file_error(file, error) from error
    if not table.num_columns:  # later steps lose the row count of such a table
        raise bad_record_error(file, "the file's records have no column", found=f"{table.num_rows} records")
    return table


def read_valid_records(
    file: InputFile, format_: Format, schema: Schema, *, drop_undeclared: bool = False
) -> ParsedRecords:
    """Read the valid records of a file, in exactly the declared columns and types, and the refused records.

    Args:
        file: the file.
        format_: format of the file.
        schema: declared columns.
        drop_undeclared: drop undeclared columns. Otherwise a record or file with an undeclared column is refused.

    Raises:
        NovaError: no record can be accepted, because the file is truncated, of another format, or has other columns.
    """
    try:
        record_reader = _RECORD_READERS.get(format_)
        parsed = (
            _read_self_describing_file(file, format_, schema, drop_undeclared)
            if record_reader is None
            else record_reader(file, schema, drop_undeclared)
        )
    except READ_ERRORS as error:
        # Nothing of the file is kept: it will come again as a whole, and its first rows would be there twice.
        raise unreadable_file_error(file, error) from error
    table = parsed.table.select([n for n in parsed.table.column_names if n in (*schema.names, DELETED)])
    target_schema = Schema(
        (*schema.with_all_nullable().fields, *(f for f in schema_of(table).fields if f.name == DELETED))
    )
    return ParsedRecords(
        fit_to_schema(table.replace_schema_metadata(None), target_schema), parsed.line_numbers, parsed.refused
    )


def _read_self_describing_file(
    file: InputFile, format_: Format, schema: Schema, drop_undeclared: bool
) -> ParsedRecords:
    """Read a file that declares its own columns. The whole file is refused unless they match the channel's columns."""
    table = read_table(file, format_, schema)
    try:
        if drop_undeclared:
            table = table.select([n for n in table.column_names if n in schema])
        table = convert_table(table.replace_schema_metadata(None), schema)
        check_values(table)
        reconcile_schema("", schema.with_all_nullable(), schema_of(table).without_columns(DELETED), "freeze")
    except NovaError as error:
        message = error.what.removeprefix("channel '' got data with another schema: ")
        raise bad_record_error(file, message, found=error.found, expected=error.expected) from error
    return ParsedRecords(table, range(1, table.num_rows + 1))
