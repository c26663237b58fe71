"""Routes of file views: file lists without access to the warehouse, and mostly without access to the catalog."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict

from nova_assets.service.routes.dependencies import (
    ChannelName,
    Fresh,
    KnownPosition,
    Limit,
    PartitionFilter,
    ReaderDependency,
    ServiceDependency,
    VersionNumber,
    problem_responses,
)
from nova_assets.service.shapes import FileShape, InstantsShape, StepShape, TouchedShape

router = APIRouter(prefix="/v1/channels/{channel}", tags=["views"], responses=problem_responses(409, 410, 422))

Since = Annotated[int, Query(ge=0, le=2**31 - 1, description="Return the changes after this number.")]


# file_views/responses writes the answers of these shapes.


class KeptBlock(BaseModel):
    """A block of a file view with its files. ``schema``, ``merge`` and ``layout`` are hashes."""

    model_config = ConfigDict(extra="allow")
    block: dict[str, Any]
    files: list[FileShape]


class SnapshotFiles(BaseModel):
    """Files of a snapshot: the newest base of each partition, and the deltas that follow it.

    ``links`` lead from the position that the caller gave to the position of the answer.
    """

    channel: str
    partition: str
    at: int
    position: str
    links: list[list[str]]
    kind: Literal["snapshot"]
    blocks: list[KeptBlock]


class ChangedPart(BaseModel):
    """Changes of some partitions: a ``chain`` of deltas, all rows of a ``snapshot``, or the ``diff`` of two states."""

    how: Literal["chain", "diff", "snapshot"]
    old: list[KeptBlock]
    new: list[KeptBlock]


class ChangedFiles(BaseModel):
    """Files that hold the changes after ``since``, up to ``at``."""

    channel: str
    partition: str
    at: int
    since: int
    position: str
    links: list[list[str]]
    kind: Literal["changes"]
    parts: list[ChangedPart]


class HistoryShape(BaseModel):
    """Part of a channel's history that a plan needs."""

    model_config = ConfigDict(extra="allow")
    channel: str
    scope: str
    head: int
    position: str
    links: list[list[str]]
    blocks: list[KeptBlock]


@router.get("/files", response_model=SnapshotFiles)
def files(
    channel: ChannelName,
    caller: ReaderDependency,
    service: ServiceDependency,
    known: KnownPosition,
    partition: PartitionFilter = None,
    at: VersionNumber = None,
    fresh: Fresh = True,
) -> Response:
    """Files of a snapshot at the head or at a number: the newest base of each partition, and the deltas after it."""
    scope = service.parse_scope(channel, partition)
    service.check_not_lost(channel, known, at)
    return service.json_response(service.query_handler.files_answer(channel, scope, at, known, allow_stale=not fresh))


@router.get("/changes", response_model=ChangedFiles)
def changes(
    channel: ChannelName,
    caller: ReaderDependency,
    service: ServiceDependency,
    known: KnownPosition,
    since: Since,
    at: VersionNumber = None,
    partition: PartitionFilter = None,
    fresh: Fresh = True,
) -> Response:
    """Files that hold the changes between two numbers."""
    scope = service.parse_scope(channel, partition)
    service.check_not_lost(channel, known, at, since)
    return service.json_response(
        service.query_handler.changed_files_answer(channel, scope, since, at, known, allow_stale=not fresh)
    )


@router.get("/history", response_model=HistoryShape)
def history(
    channel: ChannelName,
    caller: ReaderDependency,
    service: ServiceDependency,
    known: KnownPosition,
    partition: PartitionFilter = None,
    at: VersionNumber = None,
    since: VersionNumber = None,
    back_to: VersionNumber = None,
    fresh: Fresh = True,
) -> Response:
    """Part of a channel's history for clients that plan their own reads."""
    scope = service.parse_scope(channel, partition)
    service.check_not_lost(channel, known, at, since)
    return service.json_response(
        service.query_handler.history_answer(channel, scope, at, since or 0, back_to or 0, known, allow_stale=not fresh)
    )


After = Annotated[
    int, Query(ge=0, le=2**31 - 1, description="Ordinal of an instant, from 1. Return the instants after it.")
]


@router.get("/instants", response_model=InstantsShape)
def instants(
    channel: ChannelName,
    caller: ReaderDependency,
    service: ServiceDependency,
    known: KnownPosition,
    after: After = 0,
    limit: Limit = 1000,
) -> InstantsShape:
    """Complete instants after an ordinal, oldest first, and the number of instants after ``known``."""
    position, instants_after = service.query_handler.instants(channel, after, limit, known)
    return InstantsShape(
        channel=channel,
        after=after,
        position=str(position),
        behind=max(0, position.step - (after if known is None else known.step)),
        instants=[StepShape(**i.as_json()) for i in instants_after],
    )


@router.get("/touched", response_model=TouchedShape)
def touched(
    channel: ChannelName,
    caller: ReaderDependency,
    service: ServiceDependency,
    known: KnownPosition,
    after: After = 0,
    limit: Limit = 1000,
) -> TouchedShape:
    """Partitions that the instants after an ordinal changed, up to ``until``. A rollback changes none."""
    position, instants_after = service.query_handler.instants(channel, after, limit, known)
    return TouchedShape(
        channel=channel,
        after=after,
        until=instants_after[-1].n if instants_after else after,
        position=str(position),
        partitions=sorted({p for i in instants_after if i.action != "rollback" for p in i.partitions}),
    )
