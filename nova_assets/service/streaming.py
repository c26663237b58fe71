"""Streaming of rows as Arrow IPC, pinned until they are sent."""

from __future__ import annotations

import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import anyio
import pyarrow as pa
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from nova_assets.errors import ServiceUnavailable
from nova_assets.store.read import Pinned
from nova_assets.store.selection import Selection

RowsOpener = Callable[[], AbstractContextManager[pa.RecordBatchReader]]


class RowStream:
    """Open stream of rows. Its first bytes are computed, so errors have surfaced before a status is sent.

    Args:
        open_rows: opens the rows. They stay valid while its context lasts.
        compression: compression of the buffers, or None.
        max_seconds: time limit for sending. The pin lasts that long at most.
    """

    def __init__(self, open_rows: RowsOpener, compression: str | None = None, max_seconds: float = 3600.0) -> None:
        self._until = time.monotonic() + max_seconds
        stack = ExitStack()
        self._close = weakref.finalize(self, stack.close)  # runs once, even if the stream is never sent
        try:
            reader = stack.enter_context(open_rows())
            self._chunks = _encode_arrow_stream(reader, compression)
            self._first = next(self._chunks)
        except BaseException:
            self.close()
            raise

    async def body(self) -> AsyncIterator[bytes]:
        """Bytes of the stream."""
        yield self._first
        while (chunk := await run_in_threadpool(next, self._chunks, None)) is not None:
            if time.monotonic() > self._until:  # the error cuts the connection, so the reader sees incomplete rows
                raise ServiceUnavailable(
                    "the client has not read the rows in time", next="read fewer rows at once", reason="slow reader"
                )
            yield chunk

    def close(self) -> None:
        """Release the pin."""
        self._close()


class RowStreamResponse(StreamingResponse):
    """Response that sends a stream and releases its pin in any case."""

    def __init__(
        self, stream: RowStream, status_code: int = 200, headers: Mapping[str, str] | None = None, **options: Any
    ) -> None:
        super().__init__(stream.body(), status_code, headers, **options)
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            with anyio.CancelScope(shield=True):  # the caller may have disconnected
                await run_in_threadpool(self._stream.close)


@contextmanager
def open_selected_rows(
    pinned_channels: AbstractContextManager[Pinned], select_rows: Callable[[Pinned], Selection]
) -> Iterator[pa.RecordBatchReader]:
    """Rows selected from pinned channels.

    Args:
        select_rows: function from the pinned channels to a ``Selection``.
    """
    with pinned_channels as channels, select_rows(channels).to_batches() as reader:
        yield reader


def _encode_arrow_stream(reader: pa.RecordBatchReader, compression: str | None) -> Iterator[bytes]:
    sink = _BufferSink()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), reader.schema, options=options) as writer:
        # The schema is sent together with the first batch, so that errors in the rows surface before a status is sent.
        for batch in reader:
            writer.write_batch(batch)
            yield sink.take_written()
    yield sink.take_written()


class _BufferSink:
    """Sink that collects the bytes written since the last ``take_written``."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True

    def take_written(self) -> bytes:
        written, self._parts = b"".join(self._parts), []
        return written
