"""Data of an insert as the body of an HTTP request."""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from nova_assets.engine.inputs.insert_data import convert_insert_data
from nova_assets.errors import ChannelNotFound, NotAllowed
from nova_assets.model.schema import Schema
from nova_assets.service.http.media_types import ARROW, LINES, PARQUET

_MEDIA_TYPE_BY_SUFFIX = {".parquet": PARQUET, ".jsonl": LINES, ".ndjson": LINES}


@contextmanager
def open_insert_body(data: Any, fetch_schema: Callable[[], Schema | None]) -> Iterator[tuple[IO[bytes], str]]:
    """Request body as a file, with its media type.

    Args:
        data: as for ``Connection.insert``.
        fetch_schema: fetches the channel's schema. Called if only the channel can tell the column types of the data.
    """
    if isinstance(data, str | Path) and Path(data).suffix in _MEDIA_TYPE_BY_SUFFIX and Path(data).is_file():
        with Path(data).open("rb") as file:
            yield file, _MEDIA_TYPE_BY_SUFFIX[Path(data).suffix]
        return
    try:
        schema = fetch_schema() if _needs_channel_schema(data) else None
    # A token without read access gets no schema, and the channel may be defined only in the service's project.
    except (NotAllowed, ChannelNotFound):
        if not isinstance(data, str | Path):
            yield io.BytesIO("".join(map(_json_line, data)).encode()), LINES
            return
        schema = None
    table = convert_insert_data(data, schema)
    with tempfile.TemporaryFile() as file:
        with pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table)
        yield file, ARROW


def _needs_channel_schema(data: Any) -> bool:
    """Whether only the channel can tell the column types of the data."""
    return isinstance(data, str | Path) or (isinstance(data, Sequence) and not isinstance(data, pa.Table))


def _json_line(row: Any) -> str:
    """Row as a line of JSON. Values without a JSON type become text, which the service parses by the schema."""
    return json.dumps(row, default=str) + "\n"
