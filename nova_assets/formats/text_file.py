"""Text files, each line a row of one column."""

from __future__ import annotations

import pyarrow as pa

from nova_assets.formats.input_file import File, bad, lines_of
from nova_assets.formats.read_outcome import Parsed, Refused
from nova_assets.model.schema import Schema


def what_is_right(file: File, schema: Schema, drop: bool = False) -> Parsed:
    """The lines that are UTF-8 text, and those that are not.

    Raises:
        BadRecord: the channel has several columns.
        OSError, EOFError: it cannot be read to its end.
    """
    if len(schema.names) != 1:
        raise bad(file, "lines of text are rows of one column", expected=f"a file of rows of {schema}")
    texts: list[str] = []
    numbers: list[int] = []
    refused: list[Refused] = []
    with file.open() as stream:
        for line in lines_of(stream):
            try:
                if line.cut:
                    raise ValueError("the line is too long")
                texts.append(line.raw.decode("utf-8"))
                numbers.append(line.number)
            except ValueError as error:
                refused.append(Refused.of_bytes(str(error), line.number, line.raw))
    return Parsed(pa.table({schema.names[0]: pa.array(texts, pa.string())}), numbers, tuple(refused))
