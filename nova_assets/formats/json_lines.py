"""JSON-lines files as Arrow tables, parsed to the declared types.

pyarrow's reader does the work. Where it refuses, the lines are read one by one, which either can (maps, dates) or finds
the line that is wrong.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.json

from nova_assets.errors import BadRecord
from nova_assets.formats.file import BROKEN, File, Line, bad, cut_short, empty, lines_of, shown
from nova_assets.formats.outcome import Parsed, Refused
from nova_assets.formats.rows import Rows, without_unsaid
from nova_assets.formats.typed import declared_types, typed
from nova_assets.model.arrow_types import arrow_type
from nova_assets.model.schema import DataType, Schema

_CHUNK = 8 << 20


def read_json(file: File, schema: Schema | None) -> pa.Table:
    """A file of JSON objects, one per line; or one JSON array of objects.

    Text stays text unless the channel declares another type: what merely looks like a date is none.

    Raises:
        BadRecord: a line that is no JSON object, a value that is not of its column's type, a file that ends too early.
        EmptyInput: no object at all.
    """
    declared = declared_types(schema)
    try:
        wanted = pa.schema([(n, arrow_type(t)) for n, t in declared.items()])
        with file.open() as stream:
            table = _parsed(stream, wanted)
        guessed = pa.schema(
            [(f.name, wanted.field(f.name).type if f.name in declared else _as_text(f.type)) for f in table.schema]
        )
        if not guessed.equals(table.schema):
            with file.open() as stream:
                table = _parsed(stream, guessed)
        table.validate(full=True)  # pyarrow takes any bytes for text
        if not table.num_rows:
            raise empty(file)
        return without_unsaid(table)
    except BROKEN:
        return _read_slowly(file, declared)


def what_is_right(file: File, schema: Schema, drop: bool = False) -> Parsed:
    """The rows of a file of JSON lines that are what is declared, and the lines that are not.

    Each has its own number; of a file that is one JSON array, that of the element.

    Args:
        drop: leave out what is not declared.

    Raises:
        OSError, EOFError, BadRecord: the file is no such file, or cannot be read to its end.
    """
    rows = Rows(schema, drop)
    with file.open() as stream:
        first: bytes = stream.peek(64)
        if first.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"["):
            for number, value in enumerate(_array(file, stream.read()), start=1):
                _take(rows, Line(number, json.dumps(value, default=str).encode()), value)
        else:
            for lines in _chunks(stream):
                _take_all(rows, lines)
    return rows.parsed()


def _take_all(rows: Rows, lines: list[Line]) -> None:
    """A chunk at once if nothing is wrong with any of its lines; otherwise line by line."""
    table = None if any(line.cut for line in lines) else _at_once(rows, lines)
    if table is not None:
        rows.take_table(table, [line.number for line in lines])
        return
    for line in lines:
        if line.cut:
            rows.refused.append(Refused.of_bytes("the line is too long", line.number, line.raw))
            continue
        try:
            value = json.loads(line.raw.decode("utf-8-sig"), parse_float=Decimal, object_pairs_hook=_no_twins)
        except (ValueError, RecursionError) as error:  # of JSON and of UTF-8
            rows.refused.append(Refused.of_bytes(f"no JSON: {error}", line.number, line.raw))
        else:
            _take(rows, line, value)


def _at_once(rows: Rows, lines: list[Line]) -> pa.Table | None:
    wanted = rows.wanted
    try:
        table = _parsed(io.BytesIO(b"\n".join(line.raw for line in lines)), wanted, drop=rows.drop)
        table.validate(full=True)  # pyarrow takes any bytes for text
    except BROKEN:
        return None
    return table if table.schema.names == wanted.names and table.num_rows == len(lines) else None


def _take(rows: Rows, line: Line, value: Any) -> None:
    try:
        rows.take(line.number, value)
    except ValueError as error:
        rows.refused.append(Refused.of_bytes(str(error), line.number, line.raw))


def _chunks(stream: Any) -> Iterator[list[Line]]:
    """The lines that hold anything, some megabytes at a time."""
    chunk: list[Line] = []
    size = 0
    for line in lines_of(stream):
        if line.raw.strip() or line.cut:
            chunk.append(line)
            size += len(line.raw)
        if size >= _CHUNK:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _parsed(stream: Any, wanted: pa.Schema, *, drop: bool = False) -> pa.Table:
    return pyarrow.json.read_json(
        stream,
        read_options=pyarrow.json.ReadOptions(block_size=64 << 20),
        parse_options=pyarrow.json.ParseOptions(
            explicit_schema=wanted, unexpected_field_behavior="ignore" if drop else "infer"
        ),
    )


def _as_text(type_: pa.DataType) -> pa.DataType:
    """A type that was guessed, with text where the guess was a time."""
    if pa.types.is_timestamp(type_):
        return pa.string()
    if pa.types.is_list(type_):
        return pa.list_(_as_text(type_.value_type))
    if pa.types.is_struct(type_):
        return pa.struct([(f.name, _as_text(f.type)) for f in type_])
    return type_


# line by line


def _read_slowly(file: File, declared: dict[str, DataType]) -> pa.Table:
    rows, lines = [], []
    try:
        for line, row in _objects(file):
            rows.append(row)
            lines.append(line)
    except (OSError, EOFError) as error:
        raise cut_short(file, error) from error
    if not rows:
        raise empty(file)
    names = dict.fromkeys(n for row in rows for n in row)
    columns = {}
    for name in names:
        values = [row.get(name) for row in rows]
        if name in declared:
            columns[name] = typed(values, declared[name], file, "line", lines)
        else:
            try:
                columns[name] = pa.array([_plain(v) for v in values])
            except (pa.ArrowException, OverflowError) as error:
                raise bad(file, f"column {name!r} has values of different types", found=str(error)) from error
    return pa.table(columns)


def _objects(file: File) -> Iterator[tuple[int, dict[str, Any]]]:
    """Every object with the number of its line."""
    with file.open() as stream:
        for number, raw in enumerate(stream, start=1):
            if number == 1 and raw.lstrip().startswith(b"["):
                for row in _array(file, raw + stream.read()):
                    if not isinstance(row, dict):
                        raise _no_array(file)
                    yield 1, row
                return
            if raw.strip():
                yield number, _object(file, number, raw)


def _array(file: File, raw: bytes) -> list[Any]:
    rows = _loads(file, 1, raw)
    if not isinstance(rows, list):
        raise _no_array(file)
    return rows


def _no_array(file: File) -> BadRecord:
    return bad(file, "the file is no array of objects", expected="JSON objects, one per line, or one array of them")


def _object(file: File, line: int, raw: bytes) -> dict[str, Any]:
    row = _loads(file, line, raw)
    if not isinstance(row, dict):
        raise bad(
            file, f"line {line} is no JSON object", found=shown(raw), expected='{"column": value, ...}', line=line
        )
    return row


def _loads(file: File, line: int, raw: bytes) -> Any:
    try:
        return json.loads(raw.decode("utf-8-sig"), parse_float=Decimal, object_pairs_hook=_no_twins)
    except (ValueError, RecursionError) as error:  # of JSON and of UTF-8
        raise bad(
            file,
            f"line {line} is no JSON",
            found=f"{shown(raw)} ({error})",
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
