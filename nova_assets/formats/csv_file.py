"""Reader for CSV files. pyarrow separates the fields, and the conversion table defines the meaning of each field.

The part of its own isolates bad rows with their line numbers. pyarrow's reader skips or rejects such rows, but does not
return their text, their line, or the bad column.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from nova_assets.errors import BadRecord
from nova_assets.formats.column_conversion import contains_null_type, declared_types
from nova_assets.formats.input_file import (
    READ_ERRORS,
    InputFile,
    Line,
    bad_record_error,
    empty_file_error,
    read_lines,
    unreadable_file_error,
)
from nova_assets.formats.parsed_records import ParsedRecords, RefusedRecord
from nova_assets.formats.text_conversion import convert_text_column
from nova_assets.model.arrow_types import spark_type
from nova_assets.model.schema import DELETED, DataType, Schema
from nova_assets.model.value_conversion import CSV
from nova_assets.nova_error import NovaError

_ROW_NUMBER_PATTERN = re.compile(r"Row #(\d+)")
_MAX_FIELD_BYTES = 1 << 30


def read_csv(file: InputFile, schema: Schema | None) -> pa.Table:
    """Read a CSV file with a header line. An empty field is null, and ``""`` is empty text.

    Args:
        file: the file.
        schema: declared columns; None if none are declared. Undeclared columns get inferred types.

    Raises:
        BadRecord: a row has another length, a value is not of its column's type, or the file ends inside a value.
        EmptyInput: the file has no header.
    """
    _check_quotes_are_closed(file)
    return _read_table(file, schema)


def _read_table(file: InputFile, schema: Schema | None) -> pa.Table:
    declared = declared_types(schema)
    try:
        with file.open() as stream:
            texts = _parse_csv(stream, _arrow_parse_types(declared), use_threads=True)
    except READ_ERRORS as error:
        if "Empty CSV file" in str(error):
            raise empty_file_error(file) from error
        raise _bad_csv_error(file, _arrow_parse_types(declared), error) from error
    _check_names_differ(file, texts.column_names)
    inferred = _inferred_types(texts, declared)
    if inferred:
        with file.open() as stream:
            texts = _parse_csv(stream, _arrow_parse_types(declared | inferred), use_threads=True)
        declared = declared | _replace_code_types_by_text(texts, inferred)
    for name, type_ in zip(texts.column_names, texts.schema.types, strict=True):
        if pa.types.is_binary(type_) and name not in declared:
            raise bad_record_error(
                file, f"column {name!r} is not UTF-8 text", next="save the file as UTF-8", column=name
            )
    table, refused = _convert_text_columns(texts, declared)
    if refused:
        row = min(refused)
        raise _bad_value_error(file, row + 2, *refused[row], declared)
    return table


def _check_names_differ(file: InputFile, names: Sequence[str]) -> None:
    """Raises BadRecord if the header names a column twice."""
    earlier: set[str] = set()
    for name in names:
        if name.lower() in earlier:
            raise bad_record_error(
                file,
                f"the header names column {name!r} twice",
                line=1,
                found=", ".join(names)[:300],
                expected="names that differ in more than case",
                next="rename one of the columns",
                column=name,
            )
        earlier.add(name.lower())


def _inferred_types(table: pa.Table, declared: Mapping[str, DataType]) -> dict[str, DataType]:
    """Types that pyarrow infers for undeclared columns, except text columns.

    pyarrow rounds values that a type cannot represent. The caller therefore reads these columns again as text and
    converts them by the rules.
    """
    types_by_column: dict[str, DataType] = {}
    for field_ in table.schema:
        if field_.name in declared or pa.types.is_binary(field_.type) or contains_null_type(field_.type):
            continue
        with suppress(NovaError):  # a later step rejects all unsupported types together
            type_ = spark_type(field_.type, field_.name)
            types_by_column |= {field_.name: type_} if type_.name != "string" else {}
    return types_by_column


def _replace_code_types_by_text(texts: pa.Table, inferred_types: Mapping[str, DataType]) -> dict[str, DataType]:
    """Inferred types with text instead of integers for columns of codes.

    A code begins with 0 or is hexadecimal. As numbers, ``007`` and ``7`` would be equal.
    """
    return {
        name: DataType("string") if type_.name == "bigint" and _has_leading_zeros(texts.column(name)) else type_
        for name, type_ in inferred_types.items()
    }


def _has_leading_zeros(column: pa.ChunkedArray) -> bool:
    return bool(pc.any(pc.match_substring_regex(column, r"^\s*[+-]?0[0-9xX]")).as_py())


def read_valid_records(file: InputFile, schema: Schema, drop_undeclared: bool = False) -> ParsedRecords:
    """Read the valid rows of a CSV file, and the refused rows, each with the number of its first line.

    Args:
        file: the file.
        schema: declared columns.
        drop_undeclared: drop undeclared columns instead of refusing the file.

    Raises:
        OSError, EOFError, BadRecord: the file is no CSV file, lacks a column, has an undeclared column, or cannot be
            read to its end.
        EmptyInput: the file has no header.
    """
    _check_quotes_are_closed(file)
    try:
        table = _read_table(file, schema)
        line_numbers: Sequence[int] = range(2, table.num_rows + 2)
        if _count_lines(file) == table.num_rows + 1:
            _check_columns(file, table.column_names, schema, drop_undeclared)
            return ParsedRecords(table, line_numbers)
    except NovaError:
        pass  # the code below identifies the bad rows
    records = list(_read_records(file))
    if not records:
        raise empty_file_error(file)
    header, *rows = records
    reader = _CsvRecordReader(file, header.raw, declared_types(schema))
    names = reader.header_names()
    _check_names_differ(file, names)
    _check_columns(file, names, schema, drop_undeclared)
    reader.add_lines(rows)
    return reader.to_parsed()


@dataclass
class _CsvRecordReader:
    """Reader that separates valid rows from bad rows of a CSV file.

    Args:
        file: the file.
        header: bytes of the header line.
        declared: declared type of each column.
        tables: rows that are read so far.
        line_numbers: line number of each row.
        refused: rows that are refused so far.
    """

    file: InputFile
    header: bytes
    declared: Mapping[str, DataType]
    tables: list[pa.Table] = field(default_factory=list)
    line_numbers: list[int] = field(default_factory=list)
    refused: list[RefusedRecord] = field(default_factory=list)

    def parse_lines(self, lines: Sequence[Line]) -> pa.Table:
        content = io.BytesIO(b"".join(raw + b"\n" for raw in (self.header, *(r.raw for r in lines))))
        texts = _parse_csv(content, _arrow_parse_types(self.declared), use_threads=False)
        return texts.select([n for n in texts.column_names if n in self.declared])  # inferred types vary by part

    def header_names(self) -> list[str]:
        """Column names in the header line."""
        names: list[str] = _parse_csv(io.BytesIO(self.header + b"\n"), {}, use_threads=False).column_names
        return names

    def add_lines(self, lines: Sequence[Line]) -> None:
        """Parse rows together. If that fails, parse each half separately until the bad rows are isolated."""
        if not lines:
            return
        try:
            texts = self.parse_lines(lines)
        except READ_ERRORS as error:
            if len(lines) == 1:
                self._add_refused(lines[0], _reason_without_row_number(error))
            else:
                middle = len(lines) // 2
                self.add_lines(lines[:middle])
                self.add_lines(lines[middle:])
            return
        table, refused = _convert_text_columns(texts, self.declared)
        for row, (column, reason) in refused.items():
            self._add_refused(lines[row], f"column {column!r}: {reason}", column)
        valid_indexes = [n for n in range(len(lines)) if n not in refused]
        self.tables.append(table.take(pa.array(valid_indexes, pa.int64())) if refused else table)
        self.line_numbers += [lines[n].number for n in valid_indexes]

    def _add_refused(self, line: Line, reason: str, column: str | None = None) -> None:
        header = self.header.decode("utf-8", "backslashreplace")
        self.refused.append(RefusedRecord.from_bytes(reason, line.number, line.raw, header=header, column=column))

    def to_parsed(self) -> ParsedRecords:
        table = (
            pa.concat_tables(self.tables)
            if self.tables
            else _convert_text_columns(self.parse_lines([]), self.declared)[0]
        )
        return ParsedRecords(table, self.line_numbers, tuple(self.refused))


def _reason_without_row_number(error: BaseException) -> str:
    """Error text without pyarrow's row number, which counts from the start of the part and not of the file."""
    return re.sub(r"^(CSV parse error|In CSV column #\d+)[^:]*: (Row #\d+: )?", "", str(error))


def _check_columns(file: InputFile, column_names: Sequence[str], schema: Schema, drop_undeclared: bool) -> None:
    if len(set(column_names)) != len(column_names):
        raise bad_record_error(file, "two columns have the same name", found=", ".join(column_names))
    missing = [f.name for f in schema.fields if f.name not in column_names]
    unexpected = [n for n in column_names if n not in schema and n != DELETED and not drop_undeclared]
    if missing or unexpected:
        parts = [f"columns are missing: {', '.join(missing)}"] if missing else []
        parts += [f"columns that the channel does not have: {', '.join(unexpected)}"] if unexpected else []
        raise bad_record_error(file, "; ".join(parts), found=", ".join(column_names), expected=str(schema))


def _read_records(file: InputFile) -> Iterator[Line]:
    """Raw records of a file, header first, each with the number of its first line.

    Raises:
        BadRecord: a line is too long.
        csv.Error: Python's parser rejects the file.
    """
    line_numbers: list[int] = []
    line_texts: list[str] = []

    def read_line_texts() -> Iterator[str]:
        with file.open() as stream:
            for line in read_lines(stream):
                if line.is_truncated:
                    raise bad_record_error(file, f"line {line.number} is too long", line=line.number)
                line_numbers.append(line.number)
                line_texts.append(line.raw.decode("utf-8", "surrogateescape"))
                yield line_texts[-1] + "\n"

    csv.field_size_limit(_MAX_FIELD_BYTES)
    for record in csv.reader(read_line_texts()):
        if record:
            yield Line(line_numbers[0], "\n".join(line_texts).encode("utf-8", "surrogateescape"))
        line_numbers.clear()
        line_texts.clear()


def _count_lines(file: InputFile) -> int:
    """Number of lines, including a last line without a line end."""
    count, last = 0, b""
    with file.open() as stream:
        while chunk := stream.read(1 << 20):
            count += chunk.count(b"\n")
            last = chunk[-1:]
    return count + (last not in (b"", b"\n"))


def _arrow_parse_types(declared_types_by_column: Mapping[str, DataType]) -> dict[str, pa.DataType]:
    """Types in which pyarrow reads the declared columns: binary columns as bytes, all others as text."""
    return {n: pa.binary() if t.name == "binary" else pa.string() for n, t in declared_types_by_column.items()}


def _convert_text_columns(
    texts: pa.Table, declared_types_by_column: Mapping[str, DataType]
) -> tuple[pa.Table, dict[int, tuple[str, str]]]:
    """Convert text columns to the declared types.

    Returns:
        The converted table, and the first bad column and its reason for each bad row, by row index.
    """
    columns, refused = [], {}
    for name, column in zip(texts.column_names, texts.columns, strict=True):
        if name in declared_types_by_column and not pa.types.is_binary(column.type):
            column, reason_by_row = convert_text_column(column, declared_types_by_column[name], CSV)
            refused.update({row: (name, reason) for row, reason in reason_by_row.items() if row not in refused})
        columns.append(column)
    return pa.Table.from_arrays(columns, names=texts.column_names), refused


def _parse_csv(stream: Any, column_types: dict[str, pa.DataType], use_threads: bool) -> pa.Table:
    return pyarrow.csv.read_csv(
        stream,
        read_options=pyarrow.csv.ReadOptions(use_threads=use_threads),
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=column_types, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
        ),
    )


def _bad_csv_error(file: InputFile, column_types: dict[str, pa.DataType], error: BaseException) -> BadRecord:
    """Error with the row number, which pyarrow reports only when it reads with one thread."""
    try:
        with file.open() as stream:
            _parse_csv(stream, column_types, use_threads=False)
    except READ_ERRORS as again:
        error = again
    row = _ROW_NUMBER_PATTERN.search(str(error))
    location = f"row {row[1]} (the header is row 1)" if row else "it"
    return bad_record_error(
        file,
        f"{location} cannot be read as CSV",
        found=str(error).removeprefix("CSV parse error: ").strip(),
        expected="in each row as many fields as in the header, each of the type of its column",
        next="correct the file, or insert it without this row",
        row=int(row[1]) if row else None,
    )


def _bad_value_error(
    file: InputFile, row: int, column: str, reason: str, declared: Mapping[str, DataType]
) -> BadRecord:
    return bad_record_error(
        file,
        f"row {row} (the header is row 1), column {column!r}: {reason}",
        expected=f"{declared[column]}: see the conversion table in the reference",
        next="correct the value, or insert the file without this row",
        row=row,
        column=column,
    )


def _check_quotes_are_closed(file: InputFile) -> None:
    """Raise BadRecord if the file ends inside a quoted value, which is the sign of a truncated file.

    pyarrow treats the end of the file as the closing quote.
    """
    try:
        with file.open() as stream:
            quotes = sum(chunk.count(b'"') for chunk in iter(lambda: stream.read(1 << 20), b""))
        if quotes % 2 == 0:
            return
        with file.open() as stream:
            reader = csv.reader(io.TextIOWrapper(stream, "utf-8", "replace", newline=""), strict=True)
            csv.field_size_limit(_MAX_FIELD_BYTES)
            for _ in reader:
                pass
    except csv.Error as error:
        if "unexpected end of data" in str(error):
            raise bad_record_error(
                file,
                "the file ends inside a quoted value",
                found=f"a quote that begins before line {reader.line_num} and is never closed",
                expected='a closing " for each opening "',
                next="fetch the file again: it seems to be truncated",
                line=reader.line_num,
            ) from error
    except (OSError, EOFError) as error:
        raise unreadable_file_error(file, error) from error
