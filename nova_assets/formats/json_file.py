"""Reader for JSON files: objects, one per line, or one array of objects.

The meaning of a line depends only on the line and on the schema. Python's parser and
``model.value_conversion.convert_value`` define this meaning. pyarrow's reader is several times as fast, but parses a
chunk of lines only if its result is certain to be the same (``_parse_lines_with_arrow``). pyarrow alone would stop at
the first bad line, and would decide the meaning of a value by the other lines of its chunk.
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
from nova_assets.formats.input_file import (
    READ_ERRORS,
    InputFile,
    Line,
    bad_record_error,
    empty_file_error,
    preview_text,
    read_lines,
    unreadable_file_error,
)
from nova_assets.formats.parsed_records import ParsedRecords, RefusedRecord
from nova_assets.formats.row_collector import BadValue, RowCollector
from nova_assets.formats.text_conversion import TIME_TYPES, cast_text_if_exact
from nova_assets.model.arrow_types import arrow_type
from nova_assets.model.schema import DataType, Schema

_CHUNK_BYTES = 8 << 20
_WHITESPACE = b" \t\r\n"
_MAX_BRACKETS = 200
"""Maximum number of opening brackets in a line for pyarrow's reader, which deep nesting can crash."""

_TINY_EXPONENT_PATTERN = re.compile(rb"[eE]-\d{3}")
_EXPONENT_PATTERN = re.compile(rb"\d[eE][+-]?\d")
_MAX_EXACT_INTEGER = 2.0**53
_BOM = b"\xef\xbb\xbf"


def read_json(file: InputFile, schema: Schema | None) -> pa.Table:
    """Read a file of JSON objects, one per line, or of one JSON array of objects.

    A column that an object lacks is null in its row. Text stays text unless the channel declares another type, so text
    that looks like a date is not converted.

    Args:
        file: the file.
        schema: declared columns; None if none are declared. Undeclared columns get inferred types.

    Raises:
        BadRecord: a line is no JSON object, a value is not of its column's type, or the file is truncated.
        SchemaMismatch: an undeclared column has values of different types.
        EmptyInput: the file has no object.
    """
    try:
        parsed = _read_records(file, RowCollector(schema, "keep", convert_undeclared=_decimals_to_floats))
    except (OSError, EOFError) as error:
        raise unreadable_file_error(file, error) from error
    except SchemaMismatch as error:
        raise SchemaMismatch(
            f"{file.display_name}: {error.what}", found=error.found, next=error.next, **error.fields
        ) from error
    if parsed.refused:
        first = parsed.refused[0]
        raise bad_record_error(
            file,
            f"line {first.line}{' is' if first.reason.startswith('no ') else ','} {first.reason}",
            found=None if first.raw is None else preview_text(first.raw.encode()),
            expected=f"JSON objects, one per line, or one array of them{'' if schema is None else f': {schema}'}",
            next="correct the line, or insert the file without it; fetch the file again if it is truncated",
            line=first.line,
            **({} if first.column is None else {"column": first.column}),
        )
    if not parsed.table.num_rows:
        raise empty_file_error(file)
    return parsed.table


def read_valid_records(file: InputFile, schema: Schema, drop_undeclared: bool = False) -> ParsedRecords:
    """Read the valid rows of a JSON file, and the refused lines.

    Each row has its line number, or its element number in a file that is one JSON array.

    Args:
        file: the file.
        schema: declared columns.
        drop_undeclared: drop undeclared columns and fields instead of refusing the line.

    Raises:
        OSError, EOFError, BadRecord: the file is no JSON file, or cannot be read to its end.
    """
    return _read_records(file, RowCollector(schema, "drop" if drop_undeclared else "refuse"))


def _read_records(file: InputFile, collector: RowCollector) -> ParsedRecords:
    with file.open() as stream:
        first: bytes = stream.peek(64)
        if first.removeprefix(_BOM).lstrip().startswith(b"["):
            content: bytes = stream.read()
            if not _is_json_lines(content):
                for line, value in _array_elements(file, content):
                    _add_value(collector, line, value)
                return collector.to_parsed()
            stream = io.BytesIO(content)
        for lines in _line_chunks(stream):
            _add_lines(collector, lines)
    return collector.to_parsed()


# lines


def _line_chunks(stream: Any) -> Iterator[list[Line]]:
    """Non-blank lines in chunks of about ``_CHUNK_BYTES``."""
    chunk: list[Line] = []
    size = 0
    for line in read_lines(stream):
        if line.raw.strip() or line.is_truncated:
            chunk.append(line)
            size += len(line.raw)
        if size >= _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _add_lines(collector: RowCollector, lines: Sequence[Line]) -> None:
    """Add a chunk of lines, by pyarrow's reader if it can parse all of them, otherwise line by line."""
    table = _parse_lines_with_arrow(collector.declared, lines)
    if table is not None:
        collector.add_table(table, [line.number for line in lines])
        return
    for line in lines:
        if line.is_truncated:
            collector.refused.append(RefusedRecord.from_bytes("the line is too long", line.number, line.raw))
            continue
        try:
            value = json.loads(
                line.raw.decode("utf-8-sig"), parse_float=Decimal, object_pairs_hook=_dict_without_duplicates
            )
        except (ValueError, ArithmeticError, RecursionError) as error:  # from JSON, UTF-8 and decimals
            # A last line that was cut off is refused alone: such files grow by appending, and it looks like a bad line.
            reason = f"no JSON: {error}" if str(error) else f"no JSON: {type(error).__name__}"
            collector.refused.append(RefusedRecord.from_bytes(reason, line.number, line.raw))
        else:
            _add_value(collector, line, value)
    collector.flush_rows()


def _add_value(collector: RowCollector, line: Line, value: Any) -> None:
    try:
        collector.add_row(line.number, value)
    except BadValue as error:
        collector.refused.append(RefusedRecord.from_bytes(str(error), line.number, line.raw, column=error.column))


def _dict_without_duplicates(name_value_pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(name_value_pairs)
    if len(result) < len(name_value_pairs):
        raise ValueError("a name occurs twice in one object")
    return result


# chunks of lines


def _parse_lines_with_arrow(declared_types: dict[str, DataType], lines: Sequence[Line]) -> pa.Table | None:
    """Rows of some lines by pyarrow's reader; None if Python's parser might give another result.

    Each line must be exactly one object: it begins and ends with a brace, so no object can continue on the next line,
    and there are as many rows as lines. Times are read as text, because pyarrow knows fewer formats than Python, and a
    number is never a time. Floats are accepted only where both parsers round to the nearest float.
    """
    types = {name: _arrow_parse_type(type_) for name, type_ in declared_types.items()}
    if any(t is None for t in types.values()) or not all(map(_is_shallow_object, lines)):
        return None
    content = b"\n".join(line.raw for line in lines)
    if b"\0" in content or _TINY_EXPONENT_PATTERN.search(content):
        return None
    if any(t.name == "decimal" for t in declared_types.values()) and _EXPONENT_PATTERN.search(content):
        return None  # Arrow misreads decimals with large exponents
    options = pyarrow.json.ParseOptions(explicit_schema=pa.schema(types), unexpected_field_behavior="error")
    try:
        table = pyarrow.json.read_json(
            io.BytesIO(content), pyarrow.json.ReadOptions(block_size=64 << 20), parse_options=options
        )
        table.validate(full=True)  # pyarrow accepts text that is not UTF-8
        if table.num_rows != len(lines):
            return None
        columns = [_cast_parsed_column(table.column(n), t) for n, t in declared_types.items()]
    except READ_ERRORS:
        return None
    if any(column is None for column in columns):
        return None
    return pa.table(dict(zip(declared_types, columns, strict=True)))


def _is_shallow_object(line: Line) -> bool:
    text = line.raw.strip(_WHITESPACE)
    brackets = text.count(b"{") + text.count(b"[")
    return text[:1] == b"{" and text[-1:] == b"}" and not line.is_truncated and brackets <= _MAX_BRACKETS


def _arrow_parse_type(type_: DataType, is_nested: bool = False) -> pa.DataType | None:
    """Type in which pyarrow reads a column; None if pyarrow cannot read the type or has other rules for it."""
    if type_.name in ("boolean", "tinyint", "smallint", "int", "bigint", "string"):
        return arrow_type(type_)
    if type_.name in ("array", "struct"):
        inner_types = [_arrow_parse_type(f.type, is_nested=True) for f in type_.fields]
        return None if any(t is None for t in inner_types) else arrow_type(type_)
    if is_nested:
        return None
    if type_.name in TIME_TYPES:
        return pa.string()
    return arrow_type(type_) if type_.name in ("double", "decimal") else None


def _cast_parsed_column(column: pa.ChunkedArray, type_: DataType) -> pa.ChunkedArray | None:
    """Column in its declared type; None if Python's parser must convert it."""
    if type_.name == "double":
        doubtful = pc.or_(pc.greater_equal(pc.abs(column), _MAX_EXACT_INTEGER), _is_negative_zero(column))
        return None if pc.any(doubtful).as_py() else column
    return cast_text_if_exact(column, type_) if type_.name in TIME_TYPES else column


def _is_negative_zero(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.and_(pc.equal(column, 0.0), pc.less(pc.divide(1.0, column), 0.0))


# one array


def _is_json_lines(content: bytes) -> bool:
    """Whether a file that begins with ``[`` has one value per line, and not one array in all.

    The file has one value per line if its first line is a complete value and more lines follow. The first value is then
    no object and will be refused.
    """
    first_line, _, other_lines = content.removeprefix(_BOM).lstrip().partition(b"\n")
    if not other_lines.strip():
        return False
    try:
        json.loads(first_line)
    except (ValueError, RecursionError):
        return False
    return True


def _array_elements(file: InputFile, content: bytes) -> Iterator[tuple[Line, Any]]:
    """Elements of a JSON array, each with its number and its text as a line.

    Raises:
        BadRecord: the content is no JSON array.
    """
    decoder = json.JSONDecoder(parse_float=Decimal, object_pairs_hook=_dict_without_duplicates)
    try:
        text = content.decode("utf-8-sig")
        position, number = _skip_whitespace(text, text.index("[") + 1), 0
        while text[position : position + 1] != "]" or number:
            value, end = decoder.raw_decode(text, position)
            number += 1
            yield Line(number, text[position:end].encode()), value
            position = _skip_whitespace(text, end)
            if text[position : position + 1] != ",":
                break
            position = _skip_whitespace(text, position + 1)
        if text[position : position + 1] != "]" or text[position + 1 :].strip():
            raise ValueError(f"no comma and no end of the array at character {position}")
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise bad_record_error(
            file,
            "the file is not a JSON array of objects",
            found=str(error) or type(error).__name__,
            expected="JSON objects, one per line, or one array of them",
            next="fetch the file again: it seems to be truncated",
        ) from error


def _skip_whitespace(text: str, position: int) -> int:
    """Position of the next non-blank character."""
    while text[position : position + 1] in (" ", "\t", "\r", "\n"):
        position += 1
    return position


def _decimals_to_floats(value: Any) -> Any:
    """Value of an undeclared column with decimals converted to floats.

    Raises:
        ValueError: a number is too large for a double.
    """
    if isinstance(value, Decimal):
        number = float(value)
        if number in (float("inf"), float("-inf")):
            raise ValueError(f"{value} is too large for a double")
        return number
    if isinstance(value, list):
        return [_decimals_to_floats(v) for v in value]
    return {k: _decimals_to_floats(v) for k, v in value.items()} if isinstance(value, dict) else value
