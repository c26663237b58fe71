"""Routes for rows: streaming reads, and inserts."""

from __future__ import annotations

import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import anyio
import pyarrow as pa
from fastapi import APIRouter, Depends, Header, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from nova_assets.errors import DefinitionError, ServiceUnavailable
from nova_assets.model.arrow_types import to_arrow_schema
from nova_assets.model.block import Kind
from nova_assets.model.block_options import BlockFormat, MergeName, merge_model_by_name
from nova_assets.model.commit import Commit
from nova_assets.model.schema import Schema
from nova_assets.service.http.asgi import ARROW, LINES, PARQUET
from nova_assets.service.http.guard import Caller
from nova_assets.service.redaction import redact_errors, visible_commit_shape
from nova_assets.service.routes.dependencies import (
    ChannelName,
    PartitionFilter,
    ReaderDependency,
    ServiceDependency,
    VersionNumber,
    problem_responses,
    require_right,
)
from nova_assets.service.service_state import ServiceState
from nova_assets.service.shapes import CheckedShape, Column, CommitShape, ReadRequest
from nova_assets.service.uploads import DECODE_TIME_SHARE, MAX_EXPANSION, body_format, spool_body
from nova_assets.store.read import Pinned, Selection

router = APIRouter(prefix="/v1/channels/{channel}", tags=["data"], responses=problem_responses(409, 410, 422))

Compression = Annotated[
    Literal["none", "lz4", "zstd"],
    Query(description="Compression of the stream's buffers. Arrow readers decompress them."),
]
_BINARY_BODY: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}
_ROW_STREAM_RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {"description": "The rows, as an Arrow IPC stream.", "content": {ARROW: _BINARY_BODY}}
}


WriterDependency = Annotated[Caller, Depends(require_right("write"))]


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


@router.get("/data", response_class=RowStreamResponse, responses=_ROW_STREAM_RESPONSE)
def data(
    channel: ChannelName,
    caller: ReaderDependency,
    service: ServiceDependency,
    at: VersionNumber = None,
    since: VersionNumber = None,
    partition: PartitionFilter = None,
    column: Annotated[list[str] | None, Query(max_length=1000, description="Only these columns.")] = None,
    compression: Compression = "none",
) -> RowStreamResponse:
    """Rows of a channel: a snapshot, or with ``since`` the changes after a number. The read pins its blocks."""
    read_request = ReadRequest(at=at, since=since, partition=partition, columns=column, keys=None)
    return _stream_response(service, channel, read_request, compression)


@router.post(
    "/read", response_class=RowStreamResponse, responses=_ROW_STREAM_RESPONSE | problem_responses(409, 410, 415, 422)
)
def read(
    channel: ChannelName,
    caller: ReaderDependency,
    service: ServiceDependency,
    read_request: ReadRequest,
    compression: Compression = "none",
) -> RowStreamResponse:
    """Rows like ``GET …/data``. With ``keys``, only the rows with these keys."""
    return _stream_response(service, channel, read_request, compression)


@router.post(
    "/blocks",
    responses=problem_responses(408, 409, 415, 422),
    response_model=CommitShape | CheckedShape,
    openapi_extra={
        "requestBody": {"required": True, "content": {ARROW: _BINARY_BODY, PARQUET: _BINARY_BODY, LINES: _BINARY_BODY}},
    },
)
async def insert(
    request: Request,
    channel: ChannelName,
    caller: WriterDependency,
    service: ServiceDependency,
    kind: Annotated[Kind, Query(description="A delta adds rows, a base replaces them.")] = "delta",
    partition: PartitionFilter = None,
    merge: Annotated[
        MergeName | None, Query(description="Merge model of this delta. Without it, the model of the channel.")
    ] = None,
    merge_key: Annotated[
        list[str] | None, Query(max_length=1000, description="Key of an upsert. Without it, the key of the channel.")
    ] = None,
    format: Annotated[BlockFormat | None, Query(description="File format of the block.")] = None,
    dry_run: Annotated[bool, Query(description="Check the rows, and insert nothing.")] = False,
    idempotency_key: Annotated[
        str | None,
        Header(min_length=1, max_length=512, description="A second insert with the same key changes nothing."),
    ] = None,
) -> CommitShape | CheckedShape:
    """Insert the rows of the body into a channel as one block: either all rows or none.

    After a lost response, repeat the request with the same ``Idempotency-Key``: the rows are inserted once.
    """
    body_format_ = body_format(request)
    async with spool_body(request, body_format_, service.spool) as file:
        with redact_errors(caller, channel):
            result = await run_in_threadpool(
                _insert_body,
                service,
                channel,
                file,
                body_format_,
                kind,
                partition,
                merge,
                merge_key,
                format,
                idempotency_key,
                dry_run,
            )
    if isinstance(result, Commit):
        request.state.execution_id = result.execution_id
    if isinstance(result, CheckedShape):
        return result if caller.has_right("read", channel) else result.model_copy(update={"columns": []})
    return visible_commit_shape(caller, channel, result)


def _insert_body(
    service: ServiceState,
    channel: str,
    body_file: Path,
    format_: str,
    kind: Kind,
    partition: str | None,
    merge: MergeName | None,
    merge_key: list[str] | None,
    format: BlockFormat | None,
    idempotency_key: str | None,
    dry_run: bool,
) -> Commit | CheckedShape:
    state = service.store.catalog.definitions.channel(service.store.known(channel))
    merge_model = merge_model_by_name(state.channel, merge, merge_key or ())
    max_bytes, max_seconds = MAX_EXPANSION * service.config.max_body, DECODE_TIME_SHARE * service.config.request_seconds
    rows = service.decoders.decode(body_file, format_, state.schema, max_bytes, max_seconds)
    if not dry_run:
        return service.store.insert(channel, rows, kind, idempotency_key, partition, merge=merge_model, format=format)
    check = service.store.check_insert(channel, rows, kind, partition, merge=merge_model, format=format)
    columns = [Column(**c) for c in check.schema.as_json()]
    return CheckedShape(channel=channel, kind=check.kind, head=check.head, columns=columns)


def _stream_response(
    service: ServiceState, channel: str, read_request: ReadRequest, compression: str
) -> RowStreamResponse:
    keys = None if read_request.keys is None else _keys_as_table(service, channel, read_request.keys)

    def open_rows() -> AbstractContextManager[pa.RecordBatchReader]:
        pinned_channels = service.store.pin(
            channel, at=read_request.at, since=read_request.since, partition=read_request.partition
        )
        return open_selected_rows(
            pinned_channels,
            lambda pinned: pinned.read(
                channel,
                since=read_request.since,
                partition=read_request.partition,
                columns=read_request.columns,
                keys=keys,
            ),
        )

    stream = RowStream(open_rows, None if compression == "none" else compression, service.config.stream_seconds)
    return RowStreamResponse(stream, media_type=ARROW, headers={"nova-catalog": service.identity})


def _keys_as_table(service: ServiceState, channel: str, keys: list[dict[str, Any]]) -> pa.Table:
    """Keys as a table with the types of the channel."""
    state = service.store.catalog.definitions.channel(channel)
    key_columns = state.channel.merge.key
    if not key_columns:
        raise DefinitionError(
            f"channel {channel!r} has no key", next="read the channel without keys, and filter the rows"
        )
    if state.schema is None:
        return pa.Table.from_pylist(keys)
    schema = Schema(tuple(state.schema.field(k) for k in key_columns))
    if not keys:
        return to_arrow_schema(schema).empty_table()
    table: pa.Table = service.store.engine.inputs.convert(keys, schema)
    return table
