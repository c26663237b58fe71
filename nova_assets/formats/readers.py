"""Which format a file is of, and how it is read: all of it or nothing, or as much of it as is right."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import PurePosixPath

import pyarrow as pa

from nova_assets.errors import NovaError
from nova_assets.formats import avro_file, csv_file, json_file, parquet_and_orc, text_file
from nova_assets.formats.conversion import convert_table
from nova_assets.formats.input_file import BROKEN, COMPRESSIONS, File, bad, cut_short
from nova_assets.formats.read_outcome import Parsed
from nova_assets.formats.schema_fit import fit, schema_of
from nova_assets.model.file_format import Format
from nova_assets.model.schema import DELETED, Schema
from nova_assets.model.schema_evolution import reconcile

SUFFIXES: Mapping[str, Format] = {
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

_COMPRESSED_WITHIN = ("parquet", "orc", "avro")
"""Nothing is around these."""

_WHOLE: Mapping[Format, Callable[[File, Schema | None], pa.Table]] = {
    "json": json_file.read_json,
    "csv": csv_file.read_csv,
    "avro": avro_file.read_avro,
    "parquet": lambda file, _: parquet_and_orc.read_parquet(file),
    "orc": lambda file, _: parquet_and_orc.read_orc(file),
}

_BY_RECORD: Mapping[Format, Callable[[File, Schema, bool], Parsed]] = {
    "json": json_file.what_is_right,
    "csv": csv_file.what_is_right,
    "avro": avro_file.what_is_right,
    "text": text_file.what_is_right,
}


def format_of(name: str) -> Format | None:
    """The format that a file's name says; None if it says none."""
    suffixes = [s.lower() for s in PurePosixPath(name).suffixes]
    compressed = bool(suffixes) and suffixes[-1] in COMPRESSIONS
    if compressed:
        suffixes.pop()
    found = SUFFIXES.get(suffixes[-1]) if suffixes else None
    return None if compressed and found in _COMPRESSED_WITHIN else found


def read(file: File, format_: Format, schema: Schema | None) -> pa.Table:
    """All records of a file, parsed to the declared types; other columns as they are.

    Raises:
        BadRecord: it is not whole, not what it is said to be, or its records have no column.
        EmptyInput: it has no record.
    """
    table = _WHOLE[format_](file, schema)
    if not table.num_columns:  # such a table loses its rows on its way
        raise bad(file, "the file's records have no column", found=f"{table.num_rows} records")
    return table


def read_what_is_right(file: File, format_: Format, schema: Schema, *, drop: bool = False) -> Parsed:
    """The records of a file that are what is declared, in exactly these columns and types, and those that are not.

    Args:
        drop: leave out columns that are not declared; otherwise what has one is refused.

    Raises:
        NovaError: nothing of it can be taken: it is not whole, of another format, or has other columns.
    """
    try:
        by_record = _BY_RECORD.get(format_)
        parsed = _whole(file, format_, schema, drop) if by_record is None else by_record(file, schema, drop)
    except BROKEN as error:
        raise cut_short(file, error) from error
    table = parsed.table.select([n for n in parsed.table.column_names if n in (*schema.names, DELETED)])
    wanted = Schema((*schema.relaxed().fields, *(f for f in schema_of(table).fields if f.name == DELETED)))
    return Parsed(fit(table.replace_schema_metadata(None), wanted), parsed.numbers, parsed.refused)


def _whole(file: File, format_: Format, schema: Schema, drop: bool) -> Parsed:
    """A file that says itself what its columns are: they are the channel's, or nothing of it is taken."""
    table = read(file, format_, schema)
    try:
        if drop:
            table = table.select([n for n in table.column_names if n in schema])
        table = convert_table(table.replace_schema_metadata(None), schema)
        reconcile("", schema.relaxed(), schema_of(table).without(DELETED), "freeze")
    except NovaError as error:
        said = error.what.removeprefix("channel '' was given data of another schema: ")
        raise bad(file, said, found=error.found, expected=error.expected) from error
    return Parsed(table, range(1, table.num_rows + 1))
