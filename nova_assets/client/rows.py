"""Rows that a service streams."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from nova_assets.errors import ServiceUnavailable
from nova_assets.formats.pandas_frame import PandasTypes, to_pandas_frame

if TYPE_CHECKING:
    import pandas as pd

_ARROW_END_MARKER = b"\xff\xff\xff\xff\x00\x00\x00\x00"
"""Last bytes of a complete Arrow stream. A stream without them was cut off."""


Streamed = Callable[[str, Mapping[str, Any]], AbstractContextManager[pa.RecordBatchReader]]
"""Function from path and request body to a stream of rows."""


class RemoteSelection:
    """Rows that ``Connection.read`` has selected. The request is sent when the selection is converted to a frame.

    Args:
        attempts: how often a frame is requested if the stream of its rows is cut off.
    """

    def __init__(self, streamed: Streamed, path: str, body: Mapping[str, Any], attempts: int = 1) -> None:
        self._open_stream = streamed
        self._attempts = attempts
        self._path = path
        self._body = body

    def __repr__(self) -> str:
        return f"<RemoteSelection {self._path} {json.dumps(dict(self._body))[:200]}>"

    @contextmanager
    def batches(self) -> Iterator[pa.RecordBatchReader]:
        """Stream the rows batch by batch. One batch is in memory at a time.

            with connection.read("articles").batches() as reader:
                for batch in reader: ...

        Raises:
            ServiceUnavailable: the stream ended before the last row.
        """
        with self._open_stream(self._path, self._body) as reader:
            yield reader

    def to_arrow(self) -> pa.Table:
        """All rows, as a ``pyarrow.Table`` in memory.

        If the connection has several addresses, and a stream is cut off, the rows are read again from another address.
        """
        for attempt in range(1, self._attempts + 1):
            try:
                with self.batches() as reader:
                    return reader.read_all()
            except ServiceUnavailable as error:
                if not error.fields.get("interrupted") or attempt == self._attempts:
                    raise
        raise AssertionError("unreachable")

    def to_pandas(self, *, types: PandasTypes = "nullable") -> pd.DataFrame:
        """All rows, as a pandas DataFrame in memory, in the types of ``Selection.to_pandas``."""
        return to_pandas_frame(self.to_arrow(), types)


class ByteStreamFile(io.RawIOBase):
    """Readable file over an iterator of byte chunks."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._unread_bytes = b""
        self._last_bytes = b""
        self._ended = False

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        parts, length = [self._unread_bytes], len(self._unread_bytes)
        while size < 0 or length < size:
            chunk = next(self._chunks, None)
            if chunk is None:
                self._ended = True
                break
            parts.append(chunk)
            length += len(chunk)
            self._last_bytes = (self._last_bytes + chunk)[-len(_ARROW_END_MARKER) :]
        joined = b"".join(parts)
        requested, self._unread_bytes = (joined, b"") if size < 0 else (joined[:size], joined[size:])
        return requested

    @property
    def is_truncated(self) -> bool:
        """Whether the stream has ended without the Arrow end marker."""
        return self._ended and self._last_bytes != _ARROW_END_MARKER

    def check_complete(self) -> None:
        """Check that the stream was not cut off. A stream that the caller did not read to its end passes.

        Raises:
            ServiceUnavailable: the stream was cut off.
        """
        if self._unread_bytes == b"" and next(self._chunks, None) is None:
            self._ended = True
        if self.is_truncated:
            raise truncated_stream_error()


def truncated_stream_error() -> ServiceUnavailable:
    return ServiceUnavailable(
        "the stream of rows ended before the last row", next="read the rows again", interrupted=True
    )
