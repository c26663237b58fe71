"""Reader for text files. Each line is a row of one column."""

from __future__ import annotations

import pyarrow as pa

from nova_assets.formats.input_file import InputFile, bad_record_error, read_lines
from nova_assets.formats.parsed_records import ParsedRecords, RefusedRecord
from nova_assets.model.schema import Schema


def read_valid_records(file: InputFile, schema: Schema, drop_undeclared: bool = False) -> ParsedRecords:
    """Read the lines of a text file. Lines that are too long or not UTF-8 are refused.

    Args:
        file: the file.
        schema: schema with exactly one column.
        drop_undeclared: unused, since a text file has one column.

    Raises:
        BadRecord: the schema has several columns.
        OSError, EOFError: the file cannot be read to its end.
    """
    if len(schema.names) != 1:
        raise bad_record_error(
            file, "a text file can fill only a channel of one column", expected=f"a file with rows of {schema}"
        )
    texts: list[str] = []
    line_numbers: list[int] = []
    refused: list[RefusedRecord] = []
    with file.open() as stream:
        for line in read_lines(stream):
            try:
                if line.is_truncated:
                    raise ValueError("the line is too long")
                texts.append(line.raw.decode("utf-8"))
                line_numbers.append(line.number)
            except ValueError as error:
                refused.append(RefusedRecord.from_bytes(str(error), line.number, line.raw))
    return ParsedRecords(pa.table({schema.names[0]: pa.array(texts, pa.string())}), line_numbers, tuple(refused))
