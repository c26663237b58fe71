"""Routes for rows: streaming reads, and inserts."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any, Literal

import pyarrow as pa
from fastapi import APIRouter, Depends, Header, Query, Request
from starlette.concurrency import run_in_threadpool

from nova_assets.errors import DefinitionError
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
from nova_assets.service.shapes.blocks import CheckedShape, CommitShape
from nova_assets.service.shapes.requests import ReadRequest
from nova_assets.service.shapes.shape import columns_from_schema
from nova_assets.service.streaming import RowStream, RowStreamResponse, open_selected_rows
from nova_assets.service.uploads import DECODE_TIME_SHARE, MAX_EXPANSION, body_format, spool_body

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
    state = service.store.catalog.channel(service.store.known(channel))
    merge_model = merge_model_by_name(state.channel, merge, merge_key or ())
    max_bytes, max_seconds = MAX_EXPANSION * service.config.max_body, DECODE_TIME_SHARE * service.config.request_seconds
    rows = service.decoders.decode(body_file, format_, state.schema, max_bytes, max_seconds)
    if not dry_run:
        return service.store.insert(channel, rows, kind, idempotency_key, partition, merge=merge_model, format=format)
    check = service.store.check_insert(channel, rows, kind, partition, merge=merge_model, format=format)
    return CheckedShape(
        channel=channel, kind=check.kind, head=check.head, columns=columns_from_schema(check.schema) or []
    )


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
    state = service.store.catalog.channel(channel)
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
    table: pa.Table = service.store.engine.convert_input(keys, schema)
    return table
