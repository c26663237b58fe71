"""Rows of channels: read as a stream, and put onto them."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any, Literal

import pyarrow as pa
from fastapi import APIRouter, Depends, Header, Query, Request
from starlette.concurrency import run_in_threadpool

from nova_assets.errors import DefinitionError
from nova_assets.model.arrow_types import to_arrow
from nova_assets.model.block import Kind
from nova_assets.model.commit import Commit
from nova_assets.model.schema import Schema
from nova_assets.service.block_visibility import commit_for, refusals_for
from nova_assets.service.deployment import (
    ChannelName,
    Number,
    Partition,
    Reading,
    Served,
    Service,
    problems,
    with_right,
)
from nova_assets.service.http.caller import Caller
from nova_assets.service.http.media_types import ARROW, LINES, PARQUET
from nova_assets.service.shapes.blocks import CheckedShape, CommitShape
from nova_assets.service.shapes.requests import ReadRequest
from nova_assets.service.shapes.shape import columns
from nova_assets.service.streaming import Streamed, StreamedResponse, rows
from nova_assets.service.uploads import DECODES, EXPANDS, kind_of, spooled

router = APIRouter(prefix="/v1/channels/{channel}", tags=["data"], responses=problems(409, 410, 422))

Compression = Annotated[
    Literal["none", "lz4", "zstd"], Query(description="Of the stream's buffers; readers undo it by themselves.")
]
_BINARY: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}
_STREAM: dict[int | str, dict[str, Any]] = {
    200: {"description": "The rows, as an Arrow IPC stream.", "content": {ARROW: _BINARY}}
}


Writing = Annotated[Caller, Depends(with_right("write"))]


@router.get("/data", response_class=StreamedResponse, responses=_STREAM)
def data(
    channel: ChannelName,
    caller: Reading,
    service: Served,
    at: Number = None,
    since: Number = None,
    partition: Partition = None,
    column: Annotated[list[str] | None, Query(max_length=1000, description="These columns only.")] = None,
    compression: Compression = "none",
) -> StreamedResponse:
    """The rows of a channel, or with ``since`` what changed, pinned for the length of the read."""
    wanted = ReadRequest(at=at, since=since, partition=partition, columns=column, keys=None)
    return _streamed(service, channel, wanted, compression)


@router.post("/read", response_class=StreamedResponse, responses=_STREAM | problems(409, 410, 415, 422))
def read(
    channel: ChannelName, caller: Reading, service: Served, wanted: ReadRequest, compression: Compression = "none"
) -> StreamedResponse:
    """The same; and with ``keys`` only their rows."""
    return _streamed(service, channel, wanted, compression)


@router.post(
    "/blocks",
    responses=problems(408, 409, 415, 422),
    response_model=CommitShape | CheckedShape,
    openapi_extra={
        "requestBody": {"required": True, "content": {ARROW: _BINARY, PARQUET: _BINARY, LINES: _BINARY}},
    },
)
async def insert(
    request: Request,
    channel: ChannelName,
    caller: Writing,
    service: Served,
    kind: Annotated[Kind, Query(description="A delta adds, a base replaces.")] = "delta",
    partition: Partition = None,
    dry_run: Annotated[bool, Query(description="Only see whether it could be taken.")] = False,
    idempotency_key: Annotated[
        str | None,
        Header(min_length=1, max_length=512, description="A second insert with the same key changes nothing."),
    ] = None,
) -> CommitShape | CheckedShape:
    """Put one block onto a channel: all of the body, or nothing of it.

    Ask again with the same ``Idempotency-Key`` where no answer came: the rows are there once.
    """
    format_ = kind_of(request)
    async with spooled(request, format_, service.spool) as file:
        with refusals_for(caller, channel):
            done = await run_in_threadpool(
                _inserted, service, channel, (file, format_), kind, partition, idempotency_key, dry_run
            )
    if isinstance(done, Commit):
        request.state.execution_id = done.execution_id
    if isinstance(done, CheckedShape):
        return done if caller.may("read", channel) else done.model_copy(update={"columns": []})
    return commit_for(caller, channel, done)


def _inserted(
    service: Service,
    channel: str,
    body: tuple[Path, str],
    kind: Kind,
    partition: str | None,
    key: str | None,
    dry_run: bool,
) -> Commit | CheckedShape:
    schema = service.store.catalog.channel(service.store.known(channel)).schema
    most, seconds = EXPANDS * service.config.max_body, DECODES * service.config.request_seconds
    given = service.decoders.table(*body, schema, most, seconds)
    if not dry_run:
        return service.store.insert(channel, given, kind, key, partition)
    found = service.store.check_insert(channel, given, kind, partition)
    return CheckedShape(channel=channel, kind=found.kind, head=found.head, columns=columns(found.schema) or [])


def _streamed(service: Service, channel: str, wanted: ReadRequest, compression: str) -> StreamedResponse:
    how = {"partition": wanted.partition, "columns": wanted.columns}
    keys = None if wanted.keys is None else _keys(service, channel, wanted.keys)

    def opened() -> AbstractContextManager[pa.RecordBatchReader]:
        pinned = service.store.pin(channel, at=wanted.at, since=wanted.since, partition=wanted.partition)
        return rows(pinned, lambda held: held.read(channel, since=wanted.since, keys=keys, **how))

    stream = Streamed(opened, None if compression == "none" else compression, service.config.stream_seconds)
    return StreamedResponse(stream, media_type=ARROW, headers={"nova-catalog": service.identity})


def _keys(service: Service, channel: str, keys: list[dict[str, Any]]) -> pa.Table:
    """Keys as a table, in the types that the channel has them in."""
    state = service.store.catalog.channel(channel)
    on = state.channel.merge.key
    if not on:
        raise DefinitionError(f"channel {channel!r} has no key to look for", next="filter what is read of it")
    if state.schema is None:
        return pa.Table.from_pylist(keys)
    schema = Schema(tuple(state.schema.field(k) for k in on))
    if not keys:
        return to_arrow(schema).empty_table()
    table: pa.Table = service.store.engine.take(keys, schema)
    return table
