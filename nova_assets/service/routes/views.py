"""Files of channels, from their views: without a look at the warehouse, and mostly without one at the catalog."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from nova_assets.service.deployment import ChannelName, Fresh, Known, Number, Partition, Reading, Served, problems
from nova_assets.service.shapes import (
    ChangedFiles,
    HistoryShape,
    InstantsShape,
    SnapshotFiles,
    StepShape,
    TouchedShape,
)

router = APIRouter(prefix="/v1/channels/{channel}", tags=["views"], responses=problems(409, 410, 422))

Since = Annotated[int, Query(ge=0, le=2**31 - 1, description="A number: what came after it is asked for.")]


@router.get("/files", response_model=SnapshotFiles)
def files(
    channel: ChannelName,
    caller: Reading,
    service: Served,
    known: Known,
    partition: Partition = None,
    at: Number = None,
    fresh: Fresh = True,
) -> Response:
    """The latest files of a channel or partition, or those at a number: of each partition the newest base, and the
    deltas that lead on."""
    scope = service.scope(channel, partition)
    return service.answer(service.desk.files(channel, scope, at, known, enough=not fresh))


@router.get("/changes", response_model=ChangedFiles)
def changes(
    channel: ChannelName,
    caller: Reading,
    service: Served,
    known: Known,
    since: Since,
    at: Number = None,
    partition: Partition = None,
    fresh: Fresh = True,
) -> Response:
    """The files that tell what changed between two numbers."""
    scope = service.scope(channel, partition)
    return service.answer(service.desk.changed_files(channel, scope, since, at, known, enough=not fresh))


@router.get("/history", response_model=HistoryShape)
def history(
    channel: ChannelName,
    caller: Reading,
    service: Served,
    known: Known,
    partition: Partition = None,
    at: Number = None,
    since: Number = None,
    back_to: Number = None,
    fresh: Fresh = True,
) -> Response:
    """What a plan needs of a channel: for clients that plan by themselves."""
    scope = service.scope(channel, partition)
    return service.answer(service.desk.history(channel, scope, at, since or 0, back_to or 0, known, enough=not fresh))


@router.get("/instants", response_model=InstantsShape)
def instants(channel: ChannelName, caller: Reading, service: Served, known: Known, since: Since = 0) -> InstantsShape:
    """The complete instants after one, and how many of them the asker does not know."""
    position, found = service.desk.instants(channel, since, known)
    return InstantsShape(
        channel=channel,
        since=since,
        position=str(position),
        behind=position.step - (since if known is None else known.step),
        instants=[StepShape(**i.as_json()) for i in found],
    )


@router.get("/touched", response_model=TouchedShape)
def touched(channel: ChannelName, caller: Reading, service: Served, known: Known, since: Since = 0) -> TouchedShape:
    """The partitions that were touched by the instants after one."""
    position, found = service.desk.instants(channel, since, known)
    partitions = sorted({p for i in found for p in i.partitions})
    return TouchedShape(channel=channel, since=since, position=str(position), partitions=partitions)
