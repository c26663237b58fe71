"""Outcome of reading a file: parsed rows and refused records."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa

from nova_assets.formats.input_file import MAX_RECORD_CHARACTERS, TRUNCATION_SUFFIX
from nova_assets.model.file_source import Format


@dataclass(frozen=True, slots=True)
class RefusedRecord:
    """A record that does not conform to the channel, or a whole file, which has no line number.

    Args:
        reason: explanation for people.
        line: line number in the file, from 1, or the record number in a file without lines; None for a whole file.
        raw: text of the record in the file, truncated if too long; None if there is no text.
        format: format of ``raw``, if it differs from the file's format.
        header: first line of the file, if the record cannot be parsed without it.
        whole: whether ``raw`` is the exact record and not only an approximation for display.
        column: column with the bad value, if the reason concerns one column.
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
    """Refused record from a row without text, with the row as JSON.

    If JSON cannot express a value exactly, the text serves only for display (``whole`` is false).
    """
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
"""Fields of ``RefusedRecord`` as columns."""


@dataclass(frozen=True, slots=True)
class ParsedRecords:
    """Rows of a file and its refused records.

    Args:
        table: the accepted rows in the declared types.
        line_numbers: line number of each row of ``table``.
        refused: the refused records.
    """

    table: pa.Table
    line_numbers: Sequence[int]
    refused: tuple[RefusedRecord, ...] = ()
