"""Records of a quarantine, read again: as they stand there, or as somebody has mended them."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from nova_assets.errors import BadRecord, EngineUnavailable, NovaError, SourceUnavailable
from nova_assets.formats.input_file import File
from nova_assets.formats.read_outcome import Parsed
from nova_assets.model.channel import Channel
from nova_assets.model.schema import Schema
from nova_assets.sources.batch import read_records


def read_again(
    row: Mapping[str, Any], raw: str | None, channel: Channel, schema: Schema, sealed: Mapping[str, datetime]
) -> Parsed:
    """What a record holds.

    Args:
        row: of the quarantine.
        raw: the record's text.
        sealed: group -> since when nothing more is taken for it.

    Raises:
        BadRecord: it is still not what the channel holds.
    """
    if raw is None or (raw == row["raw"] and not row["whole"]):
        raise BadRecord("the record is too long to be kept, or no text", next="mend it, or let its file come again")
    text = raw if row["header"] is None else f"{row['header']}\n{raw}"
    with tempfile.TemporaryDirectory(prefix="nova-again-") as folder:
        path = Path(folder, "record")
        path.write_bytes(text.encode())
        try:
            parsed = read_records(File(path, "the record"), row["format"], channel, schema, sealed)
        except (SourceUnavailable, EngineUnavailable):
            raise
        except NovaError as error:
            raise BadRecord(error.what, found=error.found) from error
    if parsed.refused:
        raise BadRecord(parsed.refused[0].reason)
    return parsed
