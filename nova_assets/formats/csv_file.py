"""CSV files as Arrow tables: pyarrow tells the fields apart, the table of conversions says what each field means."""

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

from nova_assets.errors import BadRecord, NovaError
from nova_assets.formats.conversion import has_unknown_part
from nova_assets.formats.declared_types import declared_types
from nova_assets.formats.input_file import BROKEN, File, Line, bad, cut_short, empty, lines_of
from nova_assets.formats.read_outcome import Parsed, Refused
from nova_assets.formats.text_columns import convert_text
from nova_assets.model.arrow_types import spark_type
from nova_assets.model.conversion import CSV
from nova_assets.model.schema import DELETED, DataType, Schema

_ROW = re.compile(r"Row #(\d+)")
_LONGEST_FIELD = 1 << 30


def read_csv(file: File, schema: Schema | None) -> pa.Table:
    """A CSV file with a header line. An empty field is null, ``""`` is empty text.

    Raises:
        BadRecord: a row of another length, a value that is not of its column's type, a file that ends inside a value.
        EmptyInput: not even a header.
    """
    _refuse_open_quote(file)
    return _read(file, schema)


def _read(file: File, schema: Schema | None) -> pa.Table:
    declared = declared_types(schema)
    try:
        with file.open() as stream:
            texts = _parsed(stream, _types(declared), threads=True)
    except BROKEN as error:
        if "Empty CSV file" in str(error):
            raise empty(file) from error
        raise _bad_csv(file, _types(declared), error) from error
    undeclared = _inferred_types(texts, declared)
    if undeclared:
        with file.open() as stream:
            texts = _parsed(stream, _types(declared | undeclared), threads=True)
        declared = declared | _of_codes(texts, undeclared)
    for name, type_ in zip(texts.column_names, texts.schema.types, strict=True):
        if pa.types.is_binary(type_) and name not in declared:
            raise bad(file, f"column {name!r} is not UTF-8 text", next="save the file as UTF-8", column=name)
    table, refused = _converted(texts, declared)
    if refused:
        row = min(refused)
        raise _bad_value(file, row + 2, *refused[row], declared)
    return table


def _inferred_types(table: pa.Table, declared: Mapping[str, DataType]) -> dict[str, DataType]:
    """The types that pyarrow infers of columns that are not declared, but for those of text. It rounds what a type
    cannot hold, so their fields are read again as text, and converted by the rules."""
    found: dict[str, DataType] = {}
    for field_ in table.schema:
        if field_.name in declared or pa.types.is_binary(field_.type) or has_unknown_part(field_.type):
            continue
        with suppress(NovaError):  # a type of no channel is refused with all the others
            type_ = spark_type(field_.type, field_.name)
            found |= {field_.name: type_} if type_.name != "string" else {}
    return found


def _of_codes(texts: pa.Table, inferred: Mapping[str, DataType]) -> dict[str, DataType]:
    """The same, but columns of digits that begin with 0, or are no decimal digits, are text: as numbers, ``007`` and
    ``7`` would be one."""
    return {
        name: DataType("string") if type_.name == "bigint" and _has_codes(texts.column(name)) else type_
        for name, type_ in inferred.items()
    }


def _has_codes(column: pa.ChunkedArray) -> bool:
    return bool(pc.any(pc.match_substring_regex(column, r"^\s*[+-]?0[0-9xX]")).as_py())


def what_is_right(file: File, schema: Schema, drop: bool = False) -> Parsed:
    """The rows of a CSV file that are what is declared, and those that are not, each by the line where it begins.

    Args:
        drop: leave out columns that are not declared.

    Raises:
        OSError, EOFError, BadRecord: the file is no such file, lacks a column or has one of its own, or cannot be read
            to its end.
        EmptyInput: not even a header.
    """
    _refuse_open_quote(file)
    try:
        table = _read(file, schema)
        numbers: Sequence[int] = range(2, table.num_rows + 2)
        if _count_lines(file) == table.num_rows + 1:
            _check_columns(file, table.column_names, schema, drop)
            return Parsed(table, numbers)
    except NovaError:
        pass  # which rows it is about is found out below
    records = list(_records(file))
    if not records:
        raise empty(file)
    header, *rows = records
    found = _Found(file, header.raw, declared_types(schema))
    _check_columns(file, found.header_names(), schema, drop)
    found.take(rows)
    return found.parsed()


@dataclass
class _Found:
    """What was read up to now.

    Args:
        header: the first line, as it is.
    """

    file: File
    header: bytes
    declared: Mapping[str, DataType]
    tables: list[pa.Table] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)

    def parse(self, rows: Sequence[Line]) -> pa.Table:
        content = io.BytesIO(b"".join(raw + b"\n" for raw in (self.header, *(r.raw for r in rows))))
        texts = _parsed(content, _types(self.declared), threads=False)
        return texts.select([n for n in texts.column_names if n in self.declared])  # others differ from part to part

    def header_names(self) -> list[str]:
        """What the first line calls the columns."""
        names: list[str] = _parsed(io.BytesIO(self.header + b"\n"), {}, threads=False).column_names
        return names

    def take(self, rows: Sequence[Line]) -> None:
        """All of them at once if their fields can be told apart; otherwise each half by itself."""
        if not rows:
            return
        try:
            texts = self.parse(rows)
        except BROKEN as error:
            if len(rows) == 1:
                self._refuse(rows[0], _reason(error))
            else:
                middle = len(rows) // 2
                self.take(rows[:middle])
                self.take(rows[middle:])
            return
        table, refused = _converted(texts, self.declared)
        for row, (column, reason) in refused.items():
            self._refuse(rows[row], f"column {column!r}: {reason}", column)
        kept = [n for n in range(len(rows)) if n not in refused]
        self.tables.append(table.take(pa.array(kept, pa.int64())) if refused else table)
        self.numbers += [rows[n].number for n in kept]

    def _refuse(self, row: Line, reason: str, column: str | None = None) -> None:
        header = self.header.decode("utf-8", "backslashreplace")
        self.refused.append(Refused.of_bytes(reason, row.number, row.raw, header=header, column=column))

    def parsed(self) -> Parsed:
        table = pa.concat_tables(self.tables) if self.tables else _converted(self.parse([]), self.declared)[0]
        return Parsed(table, self.numbers, tuple(self.refused))


def _reason(error: BaseException) -> str:
    """What is wrong with a row, without the number that it has by itself."""
    return re.sub(r"^(CSV parse error|In CSV column #\d+)[^:]*: (Row #\d+: )?", "", str(error))


def _check_columns(file: File, names: Sequence[str], schema: Schema, drop: bool) -> None:
    if len(set(names)) != len(names):
        raise bad(file, "a column is named twice", found=", ".join(names))
    lacking = [f.name for f in schema.fields if f.name not in names]
    strange = [n for n in names if n not in schema and n != DELETED and not drop]
    if lacking or strange:
        parts = [f"columns are missing: {', '.join(lacking)}"] if lacking else []
        parts += [f"columns are not the channel's: {', '.join(strange)}"] if strange else []
        raise bad(file, "; ".join(parts), found=", ".join(names), expected=str(schema))


def _records(file: File) -> Iterator[Line]:
    """The records of a file as they stand there, each by the line where it begins; the header first.

    Raises:
        BadRecord: a line is too long, or quotes are not where they belong.
    """
    numbers: list[int] = []
    texts: list[str] = []

    def lines() -> Iterator[str]:
        with file.open() as stream:
            for line in lines_of(stream):
                if line.cut:
                    raise bad(file, f"line {line.number} is too long", line=line.number)
                numbers.append(line.number)
                texts.append(line.raw.decode("utf-8", "surrogateescape"))
                yield texts[-1] + "\n"

    csv.field_size_limit(_LONGEST_FIELD)
    for record in csv.reader(lines()):
        if record:
            yield Line(numbers[0], "\n".join(texts).encode("utf-8", "surrogateescape"))
        numbers.clear()
        texts.clear()


def _count_lines(file: File) -> int:
    """Line ends, and what follows the last."""
    count, last = 0, b""
    with file.open() as stream:
        while chunk := stream.read(1 << 20):
            count += chunk.count(b"\n")
            last = chunk[-1:]
    return count + (last not in (b"", b"\n"))


def _types(declared: Mapping[str, DataType]) -> dict[str, pa.DataType]:
    """What pyarrow is to parse: bytes as they are, and everything else as text."""
    return {n: pa.binary() if t.name == "binary" else pa.string() for n, t in declared.items()}


def _converted(texts: pa.Table, declared: Mapping[str, DataType]) -> tuple[pa.Table, dict[int, tuple[str, str]]]:
    """Texts in the declared types, and the rows that cannot be, each with the first column that is wrong and why."""
    columns, refused = [], {}
    for name, column in zip(texts.column_names, texts.columns, strict=True):
        if name in declared and not pa.types.is_binary(column.type):
            column, wrong = convert_text(column, declared[name], CSV)
            refused.update({row: (name, reason) for row, reason in wrong.items() if row not in refused})
        columns.append(column)
    return pa.Table.from_arrays(columns, names=texts.column_names), refused


def _parsed(stream: Any, types: dict[str, pa.DataType], threads: bool) -> pa.Table:
    return pyarrow.csv.read_csv(
        stream,
        read_options=pyarrow.csv.ReadOptions(use_threads=threads),
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=types, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
        ),
    )


def _bad_csv(file: File, types: dict[str, pa.DataType], error: BaseException) -> BadRecord:
    """The error with the row's number, which pyarrow only knows when it reads with one thread."""
    try:
        with file.open() as stream:
            _parsed(stream, types, threads=False)
    except BROKEN as again:
        error = again
    row = _ROW.search(str(error))
    where = f"row {row[1]} (the header is row 1)" if row else "it"
    return bad(
        file,
        f"{where} cannot be read as CSV",
        found=str(error).removeprefix("CSV parse error: ").strip(),
        expected="as many fields in each row as in the header, each of its column's type",
        next="mend the file, or insert it without that row",
        row=int(row[1]) if row else None,
    )


def _bad_value(file: File, row: int, column: str, reason: str, declared: Mapping[str, DataType]) -> BadRecord:
    return bad(
        file,
        f"row {row} (the header is row 1), column {column!r}: {reason}",
        expected=f"{declared[column]}: see the conversion table in the reference",
        next="mend the value, or insert the file without that row",
        row=row,
        column=column,
    )


def _refuse_open_quote(file: File) -> None:
    """pyarrow takes a quote that is never closed for one that ends with the file: the mark of a file cut short."""
    try:
        with file.open() as stream:
            quotes = sum(chunk.count(b'"') for chunk in iter(lambda: stream.read(1 << 20), b""))
        if quotes % 2 == 0:
            return
        with file.open() as stream:
            reader = csv.reader(io.TextIOWrapper(stream, "utf-8", "replace", newline=""), strict=True)
            csv.field_size_limit(_LONGEST_FIELD)
            for _ in reader:
                pass
    except csv.Error as error:
        if "unexpected end of data" in str(error):
            raise bad(
                file,
                "the file ends inside a quoted value",
                found=f"a quote that is opened before line {reader.line_num} and never closed",
                expected='a closing " for every opening one',
                next="fetch the file again: it looks cut short",
                line=reader.line_num,
            ) from error
    except (OSError, EOFError) as error:
        raise cut_short(file, error) from error
