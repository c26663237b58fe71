"""Rows as an Arrow IPC stream: read while they are sent, and pinned until they are."""

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

RowsOpener = Callable[[], AbstractContextManager[pa.RecordBatchReader]]


class RowStream:
    """A stream of rows that is open: its first bytes are there, so whatever was wrong with it has been said.

    Args:
        opened: the rows, for as long as its block lasts.
        compression: of the buffers; None for none.
        seconds: that it may take to be sent: as long as it does, it holds what is pinned.
    """

    def __init__(self, open_rows: RowsOpener, compression: str | None = None, max_seconds: float = 3600.0) -> None:
        self._until = time.monotonic() + max_seconds
        stack = ExitStack()
        self._close = weakref.finalize(self, stack.close)  # once; also of what was answered too late to be sent
        try:
            reader = stack.enter_context(open_rows())
            self._chunks = _encode_arrow_stream(reader, compression)
            self._first = next(self._chunks)
        except BaseException:
            self.close()
            raise

    async def body(self) -> AsyncIterator[bytes]:
        """The bytes."""
        yield self._first
        while (chunk := await run_in_threadpool(next, self._chunks, None)) is not None:
            if time.monotonic() > self._until:  # the connection is cut, which its reader takes for no end
                raise ServiceUnavailable(
                    "the rows are not read in time", next="read less at once", reason="slow reader"
                )
            yield chunk

    def close(self) -> None:
        """Let go of the pin."""
        self._close()


class RowStreamResponse(StreamingResponse):
    """Sends a stream. However that ends, its pin is let go of."""

    def __init__(
        self, stream: RowStream, status_code: int = 200, headers: Mapping[str, str] | None = None, **options: Any
    ) -> None:
        super().__init__(stream.body(), status_code, headers, **options)
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            with anyio.CancelScope(shield=True):  # the caller may have gone
                await run_in_threadpool(self._stream.close)


@contextmanager
def open_selected_rows(
    pinned: AbstractContextManager[Any], select: Callable[[Any], Any]
) -> Iterator[pa.RecordBatchReader]:
    """Rows that are selected from what is pinned.

    Args:
        select: gives a ``Selection`` of what was pinned.
    """
    with pinned as held, select(held).to_batches() as reader:
        yield reader


def _encode_arrow_stream(reader: pa.RecordBatchReader, compression: str | None) -> Iterator[bytes]:
    sink = _BufferSink()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), reader.schema, options=options) as writer:
        # The first batch goes with the schema: what is wrong with the rows shows before a status is sent.
        for batch in reader:
            writer.write_batch(batch)
            yield sink.take_written()
    yield sink.take_written()


class _BufferSink:
    """What a writer has written since it was looked at last."""

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
        found, self._parts = b"".join(self._parts), []
        return found
