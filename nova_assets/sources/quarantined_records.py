"""Parsing of quarantined records again, unchanged or repaired by a person."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from nova_assets.errors import BadRecord, EngineUnavailable, SourceUnavailable
from nova_assets.formats.input_file import InputFile
from nova_assets.formats.parsed_records import ParsedRecords
from nova_assets.model.channel import Channel
from nova_assets.model.schema import Schema
from nova_assets.nova_error import NovaError
from nova_assets.sources.batch import read_records


def reparse_record(
    quarantine_row: Mapping[str, Any],
    record_text: str | None,
    channel: Channel,
    schema: Schema,
    sealed_at_by_group: Mapping[str, datetime],
) -> ParsedRecords:
    """Parse a quarantined record again.

    Args:
        quarantine_row: the record's row in the quarantine channel.
        record_text: text of the record, as stored or as repaired; None if no text was kept.
        channel: channel for which the record is meant.
        schema: schema to which the record must conform.
        sealed_at_by_group: time at which each sealed group was sealed. Later records of a group are rejected.

    Returns:
        The parsed rows, none refused.

    Raises:
        BadRecord: the record still does not conform to the channel, or its text was not kept.
        SourceUnavailable, EngineUnavailable: the record cannot be parsed now.
    """
    if record_text is None or (record_text == quarantine_row["raw"] and not quarantine_row["whole"]):
        raise BadRecord(
            "the quarantine does not hold the text of the record: it is too long, or not text",
            next="repair the record with --mended, or send its file again",
        )
    file_text = record_text if quarantine_row["header"] is None else f"{quarantine_row['header']}\n{record_text}"
    with tempfile.TemporaryDirectory(prefix="nova-again-") as folder:
        path = Path(folder, "record")
        path.write_bytes(file_text.encode())
        try:
            parsed = read_records(
                InputFile(path, "the record"), quarantine_row["format"], channel, schema, sealed_at_by_group
            )
        except (SourceUnavailable, EngineUnavailable):
            raise
        except NovaError as error:
            raise BadRecord(error.what, found=error.found) from error
    if parsed.refused:
        raise BadRecord(parsed.refused[0].reason)
    return parsed
