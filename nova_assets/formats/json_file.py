"""JSON files as Arrow tables: objects, one per line, or one array of them.

What a line means depends on that line and on the schema alone. Python's parser and ``model.values.coerced`` say what it
means. pyarrow's reader, which is several times as fast, takes a chunk of lines only where it cannot come to another
result (``_at_once``).
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from nova_assets.errors import SchemaMismatch
from nova_assets.formats.input_file import BROKEN, File, Line, bad, cut_short, empty, lines_of, shown
from nova_assets.formats.read_outcome import Parsed, Refused
from nova_assets.formats.row_conversion import BadValue, Rows
from nova_assets.formats.text_columns import TIMES, cast_text
from nova_assets.model.arrow_types import arrow_type
from nova_assets.model.schema import DataType, Schema

_CHUNK = 8 << 20
_BLANK = b" \t\r\n"
_BRACKETS = 200
"""A line with more of them may be nested deeper than pyarrow's reader can follow without ending the process."""

_TINY = re.compile(rb"[eE]-\d{3}")
_EXPONENT = re.compile(rb"\d[eE][+-]?\d")
_EXACT = 2.0**53
_BOM = b"\xef\xbb\xbf"


def read_json(file: File, schema: Schema | None) -> pa.Table:
    """A file of JSON objects, one per line; or one JSON array of objects. A column that an object lacks is null there.

    Text stays text unless the channel declares another type: what merely looks like a date is none.

    Raises:
        BadRecord: a line that is no JSON object, a value that is not of its column's type, a file that ends too early.
        SchemaMismatch: an undeclared column has values of different types.
        EmptyInput: no object at all.
    """
    try:
        parsed = _read(file, Rows(schema, "keep", plain=_plain))
    except (OSError, EOFError) as error:
        raise cut_short(file, error) from error
    except SchemaMismatch as error:
        raise SchemaMismatch(
            f"{file.said}: {error.what}", found=error.found, next=error.next, **error.fields
        ) from error
    if parsed.refused:
        first = parsed.refused[0]
        raise bad(
            file,
            f"line {first.line}{' is' if first.reason.startswith('no ') else ','} {first.reason}",
            found=None if first.raw is None else shown(first.raw.encode()),
            expected=f"JSON objects, one per line, or one array of them{'' if schema is None else f': {schema}'}",
            next="mend the line, or insert the file without it; fetch the file again if it was cut short",
            line=first.line,
            **({} if first.column is None else {"column": first.column}),
        )
    if not parsed.table.num_rows:
        raise empty(file)
    return parsed.table


def what_is_right(file: File, schema: Schema, drop: bool = False) -> Parsed:
    """The rows of a file of JSON lines that are what is declared, and the lines that are not.

    Each has its own number; of a file that is one JSON array, that of the element.

    Args:
        drop: leave out what is not declared.

    Raises:
        OSError, EOFError, BadRecord: the file is no such file, or cannot be read to its end.
    """
    return _read(file, Rows(schema, "drop" if drop else "refuse"))


def _read(file: File, rows: Rows) -> Parsed:
    with file.open() as stream:
        first: bytes = stream.peek(64)
        if first.removeprefix(_BOM).lstrip().startswith(b"["):
            content: bytes = stream.read()
            if not _is_line(content):
                for line, value in _elements(file, content):
                    _take(rows, line, value)
                return rows.parsed()
            stream = io.BytesIO(content)
        for lines in _chunks(stream):
            _take_all(rows, lines)
    return rows.parsed()


# lines


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


def _take_all(rows: Rows, lines: Sequence[Line]) -> None:
    """A chunk at once if nothing is to be said of any of its lines; otherwise line by line."""
    table = _at_once(rows.declared, lines)
    if table is not None:
        rows.take_table(table, [line.number for line in lines])
        return
    for line in lines:
        if line.cut:
            rows.refused.append(Refused.of_bytes("the line is too long", line.number, line.raw))
            continue
        try:
            value = json.loads(line.raw.decode("utf-8-sig"), parse_float=Decimal, object_pairs_hook=_no_twins)
        except (ValueError, ArithmeticError, RecursionError) as error:  # of JSON, of UTF-8 and of decimals
            reason = f"no JSON: {error}" if str(error) else f"no JSON: {type(error).__name__}"
            rows.refused.append(Refused.of_bytes(reason, line.number, line.raw))
        else:
            _take(rows, line, value)
    rows.settle()


def _take(rows: Rows, line: Line, value: Any) -> None:
    try:
        rows.take(line.number, value)
    except BadValue as error:
        rows.refused.append(Refused.of_bytes(str(error), line.number, line.raw, column=error.column))


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name occurs twice in one object")
    return found


# lines at once


def _at_once(declared: dict[str, DataType], lines: Sequence[Line]) -> pa.Table | None:
    """The rows of some lines by pyarrow's reader; None where Python's might come to another result.

    Each line is one object: it begins and ends as one does, no object goes on in the next line (after a closing brace
    none can), and there are as many rows as lines. Times are read as text, of which pyarrow knows fewer forms than
    Python; numbers are never times. Floats are taken where neither parser rounds to another than the nearest.
    """
    types = {name: _read_as(type_) for name, type_ in declared.items()}
    if any(t is None for t in types.values()) or not all(map(_is_plain_object, lines)):
        return None
    content = b"\n".join(line.raw for line in lines)
    if b"\0" in content or _TINY.search(content):
        return None
    if any(t.name == "decimal" for t in declared.values()) and _EXPONENT.search(content):
        return None  # Arrow takes a decimal with a large exponent for another number
    options = pyarrow.json.ParseOptions(explicit_schema=pa.schema(types), unexpected_field_behavior="error")
    try:
        table = pyarrow.json.read_json(
            io.BytesIO(content), pyarrow.json.ReadOptions(block_size=64 << 20), parse_options=options
        )
        table.validate(full=True)  # pyarrow takes any bytes for text
        if table.num_rows != len(lines):
            return None
        columns = [_cast(table.column(n), t) for n, t in declared.items()]
    except BROKEN:
        return None
    if any(column is None for column in columns):
        return None
    return pa.table(dict(zip(declared, columns, strict=True)))


def _is_plain_object(line: Line) -> bool:
    text = line.raw.strip(_BLANK)
    brackets = text.count(b"{") + text.count(b"[")
    return text[:1] == b"{" and text[-1:] == b"}" and not line.cut and brackets <= _BRACKETS


def _read_as(type_: DataType, nested: bool = False) -> pa.DataType | None:
    """The type in which pyarrow reads a column; None where it cannot, or has other rules."""
    if type_.name in ("boolean", "tinyint", "smallint", "int", "bigint", "string"):
        return arrow_type(type_)
    if type_.name in ("array", "struct"):
        inner = [_read_as(f.type, nested=True) for f in type_.fields]
        return None if any(t is None for t in inner) else arrow_type(type_)
    if nested:
        return None
    if type_.name in TIMES:
        return pa.string()
    return arrow_type(type_) if type_.name in ("double", "decimal") else None


def _cast(column: pa.ChunkedArray, type_: DataType) -> pa.ChunkedArray | None:
    """A column in its declared type; None where Python has to look at it."""
    if type_.name == "double":
        doubtful = pc.or_(pc.greater_equal(pc.abs(column), _EXACT), _is_negative_zero(column))
        return None if pc.any(doubtful).as_py() else column
    return cast_text(column, type_) if type_.name in TIMES else column


def _is_negative_zero(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.and_(pc.equal(column, 0.0), pc.less(pc.divide(1.0, column), 0.0))


# one array


def _is_line(content: bytes) -> bool:
    """Whether the first line of a file that begins as an array is a whole value, and others follow: lines, then, of
    which the first is no object."""
    first, _, rest = content.removeprefix(_BOM).lstrip().partition(b"\n")
    if not rest.strip():
        return False
    try:
        json.loads(first)
    except (ValueError, RecursionError):
        return False
    return True


def _elements(file: File, content: bytes) -> Iterator[tuple[Line, Any]]:
    """The elements of an array, each with its number and its text.

    Raises:
        BadRecord: it is no JSON array.
    """
    decoder = json.JSONDecoder(parse_float=Decimal, object_pairs_hook=_no_twins)
    try:
        text = content.decode("utf-8-sig")
        at, number = _next(text, text.index("[") + 1), 0
        while text[at : at + 1] != "]" or number:
            value, end = decoder.raw_decode(text, at)
            number += 1
            yield Line(number, text[at:end].encode()), value
            at = _next(text, end)
            if text[at : at + 1] != ",":
                break
            at = _next(text, at + 1)
        if text[at : at + 1] != "]" or text[at + 1 :].strip():
            raise ValueError(f"no comma and no end of the array at character {at}")
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise bad(
            file,
            "the file is no JSON array of objects",
            found=str(error) or type(error).__name__,
            expected="JSON objects, one per line, or one array of them",
            next="fetch the file again: it looks cut short",
        ) from error


def _next(text: str, at: int) -> int:
    """Where the next character stands that is not blank."""
    while text[at : at + 1] in (" ", "\t", "\r", "\n"):
        at += 1
    return at


def _plain(value: Any) -> Any:
    """A value of an undeclared column: numbers with a point are doubles.

    Raises:
        ValueError: a number is too large for one.
    """
    if isinstance(value, Decimal):
        found = float(value)
        if found in (float("inf"), float("-inf")):
            raise ValueError(f"{value} is too large for a double")
        return found
    if isinstance(value, list):
        return [_plain(v) for v in value]
    return {k: _plain(v) for k, v in value.items()} if isinstance(value, dict) else value
