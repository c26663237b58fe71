"""What came of reading a file of which some records may be damaged."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa

from nova_assets.formats.input_file import MAX_RECORD_CHARACTERS, TRUNCATION_SUFFIX
from nova_assets.model.file_format import Format


@dataclass(frozen=True, slots=True)
class RefusedRecord:
    """A record that is not what the channel holds; or a whole file, which has no line then.

    Args:
        line: of the file, from 1; of files without lines, the number of the record.
        reason: for people: what is wrong.
        raw: the record as it stands in the file; of one that is too long, its beginning.
        format: of that text, where it is not the file's own.
        header: the first line of the file, where the record cannot be read without.
        whole: that text is the record, and not only what can be shown of it.
        column: whose value is wrong, where it is one.
    """

    reason: str
    line: int | None = None
    raw: str | None = None
    format: Format | None = None
    header: str | None = None
    whole: bool = True
    column: str | None = None

    @staticmethod
    def from_bytes(reason: str, line: int, raw: bytes, **fields: Any) -> RefusedRecord:
        text = raw[: MAX_RECORD_CHARACTERS * 4].decode("utf-8", "backslashreplace")
        is_complete = len(text) <= MAX_RECORD_CHARACTERS and text.encode() == raw
        displayed = text if len(text) <= MAX_RECORD_CHARACTERS else text[:MAX_RECORD_CHARACTERS] + TRUNCATION_SUFFIX
        return RefusedRecord(reason, line, displayed, **{"whole": is_complete, **fields})


def refused_record_from_row(reason: str, line: int, row: Mapping[str, Any], column: str | None = None) -> RefusedRecord:
    """A record of which there is no text, as JSON. What JSON cannot say exactly is only shown."""
    is_exact = True

    def to_text(value: Any) -> str:
        nonlocal is_exact
        is_exact = is_exact and isinstance(value, date | Decimal)  # a datetime is a date
        return value.isoformat() if isinstance(value, date) else str(value)

    raw = json.dumps(row, default=to_text).encode()
    return RefusedRecord.from_bytes(
        reason, line, raw, format="json", column=column, **({} if is_exact else {"whole": False})
    )


REFUSED_SCHEMA = pa.schema(
    [
        ("reason", pa.string()),
        ("line", pa.int64()),
        ("raw", pa.string()),
        ("format", pa.string()),
        ("header", pa.string()),
        ("whole", pa.bool_()),
        ("column", pa.string()),
    ]
)
"""The fields of ``Refused`` as columns."""


@dataclass(frozen=True, slots=True)
class ParsedRecords:
    """The rows of a file, and what of it was refused.

    Args:
        table: in the declared types.
        line_numbers: of the lines, row by row.
    """

    table: pa.Table
    line_numbers: Sequence[int]
    refused: tuple[RefusedRecord, ...] = ()
