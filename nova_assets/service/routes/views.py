"""Routes of file views: file lists without access to the warehouse, and mostly without access to the catalog."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from nova_assets.service.deployment import (
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
from nova_assets.service.shapes.timeline import InstantsShape, StepShape, TouchedShape
from nova_assets.service.shapes.views import ChangedFiles, HistoryShape, SnapshotFiles

router = APIRouter(prefix="/v1/channels/{channel}", tags=["views"], responses=problem_responses(409, 410, 422))

Since = Annotated[int, Query(ge=0, le=2**31 - 1, description="A number: what came after it is asked for.")]


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
    """The latest files of a channel or partition, or those at a number: of each partition the newest base, and the
    deltas that lead on."""
    scope = service.parse_scope(channel, partition)
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
    """The files that tell what changed between two numbers."""
    scope = service.parse_scope(channel, partition)
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
    """What a plan needs of a channel: for clients that plan by themselves."""
    scope = service.parse_scope(channel, partition)
    return service.json_response(
        service.query_handler.history_answer(channel, scope, at, since or 0, back_to or 0, known, allow_stale=not fresh)
    )


After = Annotated[
    int, Query(ge=0, le=2**31 - 1, description="An instant: those after it are asked for. They are counted from 1.")
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
    """The first complete instants after one, and how many there are that the asker does not know."""
    position, found = service.query_handler.instants(channel, after, limit, known)
    return InstantsShape(
        channel=channel,
        after=after,
        position=str(position),
        behind=max(0, position.step - (after if known is None else known.step)),
        instants=[StepShape(**i.as_json()) for i in found],
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
    """The partitions that were touched by the first instants after one, up to ``until``."""
    position, found = service.query_handler.instants(channel, after, limit, known)
    return TouchedShape(
        channel=channel,
        after=after,
        until=found[-1].n if found else after,
        position=str(position),
        partitions=sorted({p for i in found for p in i.partitions}),
    )
