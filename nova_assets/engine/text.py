"""CSV and JSON-lines files as Arrow tables, parsed to the declared types. A file that is not whole is refused by name.

pyarrow's readers do the work. Where they refuse JSON, it is read again line by line, which either can (maps, dates) or
finds the line that is wrong.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.json

from nova_assets.engine.values import coerced
from nova_assets.errors import BadRecord, EmptyInput
from nova_assets.model.arrow_types import arrow_type
from nova_assets.model.schema import DELETED, DataType, Schema

_ROW = re.compile(r"Row #(\d+)")
_BROKEN = (pa.ArrowException, OSError, EOFError)


def read_csv(path: Path, schema: Schema | None) -> pa.Table:
    """A CSV file with a header line. An empty field is null, ``""`` is empty text.

    Raises:
        BadRecord: a row of another length, a value that is not of its column's type, a file that ends inside a value.
        EmptyInput: not even a header.
    """
    declared = _declared(schema)
    times = [n for n, t in declared.items() if t.name == "timestamp"]  # pyarrow wants a zone on each
    types = {n: pa.string() if n in times else arrow_type(t) for n, t in declared.items() if not t.fields}
    _refuse_open_quote(path)
    try:
        table = _parse_csv(path, types, threads=True)
    except _BROKEN as error:
        if "Empty CSV file" in str(error):
            raise empty(path) from error
        raise _bad_csv(path, types, error) from error
    for index, field in enumerate(table.schema):
        if field.name in times:
            table = table.set_column(index, field.name, _times(table.column(index), declared[field.name], path))
        elif pa.types.is_binary(field.type) and field.name not in declared:
            raise bad(path, f"column {field.name!r} is not UTF-8 text", next="save the file as UTF-8")
    return table


def read_json(path: Path, schema: Schema | None) -> pa.Table:
    """A file of JSON objects, one per line; or one JSON array of objects.

    Text stays text unless the channel declares another type: what merely looks like a date is none.

    Raises:
        BadRecord: a line that is no JSON object, a value that is not of its column's type, a file that ends too early.
        EmptyInput: no object at all.
    """
    declared = _declared(schema)
    try:
        wanted = pa.schema([(n, arrow_type(t)) for n, t in declared.items()])
        table = _parse_json(path, wanted)
        guessed = pa.schema(
            [(f.name, wanted.field(f.name).type if f.name in declared else _as_text(f.type)) for f in table.schema]
        )
        table = table if guessed.equals(table.schema) else _parse_json(path, guessed)
        table.validate(full=True)  # pyarrow takes any bytes for text
        return _without_unsaid(table)
    except _BROKEN:
        return _read_json_slowly(path, declared)


def bad(path: Path, what: str, **parts: Any) -> BadRecord:
    """The error for a file that is not what it is said to be."""
    return BadRecord(f"{path}: {what}", file=str(path), **parts)


def empty(path: Path) -> EmptyInput:
    return EmptyInput(
        f"{path} is empty",
        found=f"{path.stat().st_size} bytes without a record",
        expected="at least one record (for CSV, a header line)",
        file=str(path),
    )


def opened(path: Path) -> Any:
    """The file's bytes, decompressed where its name ends in ``.gz``."""
    return gzip.open(path, "rb") if path.suffix.lower() == ".gz" else path.open("rb")


def _declared(schema: Schema | None) -> dict[str, DataType]:
    fields = {f.name: f.type for f in schema.fields} if schema is not None else {}
    return {**fields, DELETED: DataType("boolean")}


# CSV


def _parse_csv(path: Path, types: dict[str, pa.DataType], threads: bool) -> pa.Table:
    with opened(path) as stream:
        return pyarrow.csv.read_csv(
            stream,
            read_options=pyarrow.csv.ReadOptions(use_threads=threads),
            parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=types, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
            ),
        )


def _bad_csv(path: Path, types: dict[str, pa.DataType], error: BaseException) -> BadRecord:
    """The error with the row's number, which pyarrow only knows when it reads with one thread."""
    try:
        _parse_csv(path, types, threads=False)
    except _BROKEN as again:
        error = again
    row = _ROW.search(str(error))
    where = f"row {row[1]} (the header is row 1)" if row else "it"
    return bad(
        path,
        f"{where} cannot be read as CSV",
        found=str(error).removeprefix("CSV parse error: ").strip(),
        expected="as many fields in each row as in the header, each of its column's type",
        next="mend the file, or insert it without that row",
        row=int(row[1]) if row else None,
    )


def _refuse_open_quote(path: Path) -> None:
    """pyarrow takes a quote that is never closed for one that ends with the file: the mark of a file cut short."""
    try:
        with opened(path) as stream:
            quotes = sum(chunk.count(b'"') for chunk in iter(lambda: stream.read(1 << 20), b""))
        if quotes % 2 == 0:
            return
        with opened(path) as stream:
            reader = csv.reader(io.TextIOWrapper(stream, "utf-8", "replace", newline=""), strict=True)
            csv.field_size_limit(1 << 30)
            for _ in reader:
                pass
    except csv.Error as error:
        if "unexpected end of data" in str(error):
            raise bad(
                path,
                "the file ends inside a quoted value",
                found=f"a quote that is opened before line {reader.line_num} and never closed",
                expected='a closing " for every opening one',
                next="fetch the file again: it looks cut short",
                line=reader.line_num,
            ) from error
    except (OSError, EOFError) as error:
        raise cut_short(path, error) from error


def _times(column: pa.ChunkedArray, type_: DataType, path: Path) -> pa.ChunkedArray:
    """Text as times; those without a zone are UTC."""
    wanted = arrow_type(type_)
    for form in (pa.timestamp("us"), wanted):
        try:
            return column.cast(form).cast(wanted)
        except pa.ArrowInvalid:
            continue
    return pa.chunked_array([_typed(column.to_pylist(), type_, path, "row", 2)], wanted)


# JSON lines


def _parse_json(path: Path, wanted: pa.Schema | None) -> pa.Table:
    with opened(path) as stream:
        return pyarrow.json.read_json(
            stream,
            read_options=pyarrow.json.ReadOptions(block_size=64 << 20),
            parse_options=pyarrow.json.ParseOptions(explicit_schema=wanted),
        )


def _without_unsaid(table: pa.Table) -> pa.Table:
    """``_deleted`` is asked for by name, and comes back empty from a file that does not say it."""
    if DELETED in table.column_names and table.column(DELETED).null_count == table.num_rows:
        return table.drop_columns([DELETED])
    return table


def _as_text(type_: pa.DataType) -> pa.DataType:
    """A type that was guessed, with text where the guess was a time."""
    if pa.types.is_timestamp(type_):
        return pa.string()
    if pa.types.is_list(type_):
        return pa.list_(_as_text(type_.value_type))
    if pa.types.is_struct(type_):
        return pa.struct([(f.name, _as_text(f.type)) for f in type_])
    return type_


def _read_json_slowly(path: Path, declared: dict[str, DataType]) -> pa.Table:
    rows, lines = [], []
    try:
        for line, row in _objects(path):
            rows.append(row)
            lines.append(line)
    except (OSError, EOFError) as error:
        raise cut_short(path, error) from error
    if not rows:
        raise empty(path)
    names = dict.fromkeys(n for row in rows for n in row)
    columns = {}
    for name in names:
        values = [row.get(name) for row in rows]
        if name in declared:
            columns[name] = _typed(values, declared[name], path, "line", lines)
        else:
            try:
                columns[name] = pa.array([_plain(v) for v in values])
            except (pa.ArrowException, OverflowError) as error:
                raise bad(path, f"column {name!r} has values of different types", found=str(error)) from error
    return pa.table(columns)


def _objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Every object with the number of its line."""
    with opened(path) as stream:
        for number, raw in enumerate(stream, start=1):
            if number == 1 and raw.lstrip().startswith(b"["):
                yield from ((1, row) for row in _array(path, raw + stream.read()))
                return
            if raw.strip():
                yield number, _object(path, number, raw)


def _array(path: Path, raw: bytes) -> list[dict[str, Any]]:
    rows = _loads(path, 1, raw)
    if not isinstance(rows, list) or not all(isinstance(r, dict) for r in rows):
        raise bad(path, "the file is no array of objects", expected="JSON objects, one per line, or one array of them")
    return rows


def _object(path: Path, line: int, raw: bytes) -> dict[str, Any]:
    row = _loads(path, line, raw)
    if not isinstance(row, dict):
        raise bad(
            path, f"line {line} is no JSON object", found=_shown(raw), expected='{"column": value, ...}', line=line
        )
    return row


def _loads(path: Path, line: int, raw: bytes) -> Any:
    try:
        return json.loads(raw.decode("utf-8-sig"), parse_float=Decimal, object_pairs_hook=_no_twins)
    except ValueError as error:  # of JSON and of UTF-8
        raise bad(
            path,
            f"line {line} is no JSON",
            found=f"{_shown(raw)} ({error})",
            expected="one JSON object per line",
            next="fetch the file again if it was cut short, or mend the line",
            line=line,
        ) from error


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name occurs twice in one object")
    return found


def _plain(value: Any) -> Any:
    """A value of an undeclared column: numbers with a point are doubles."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, list):
        return [_plain(v) for v in value]
    return {k: _plain(v) for k, v in value.items()} if isinstance(value, dict) else value


def _typed(values: list[Any], type_: DataType, path: Path, unit: str, numbers: list[int] | int) -> pa.Array:
    found = []
    for index, value in enumerate(values):
        try:
            found.append(coerced(value, type_))
        except ValueError as error:
            number = numbers + index if isinstance(numbers, int) else numbers[index]
            raise bad(
                path,
                f"{unit} {number} has a value of another type",
                found=str(error),
                expected=str(type_),
                next="mend the line, or insert the file without it",
                **{unit: number},
            ) from error
    return pa.array(found, arrow_type(type_))


def cut_short(path: Path, error: BaseException) -> BadRecord:
    return bad(path, "the file cannot be read to its end", found=str(error), next="fetch the file again", line=None)


def _shown(raw: bytes) -> str:
    text = raw.decode("utf-8", "replace").strip()
    return repr(text if len(text) <= 80 else text[:77] + "...")
