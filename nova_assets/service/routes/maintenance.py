"""Routes for operators: compaction, garbage collection, drops and restores."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends

from nova_assets.model.block import Block
from nova_assets.service.block_visibility import visible_block_shapes, visible_commit_shape
from nova_assets.service.deployment import (
    ChannelName,
    ReaderDependency,
    ServiceDependency,
    problem_responses,
    require_right,
)
from nova_assets.service.http.caller import Caller
from nova_assets.service.shapes.blocks import BlockShape, CommitShape
from nova_assets.service.shapes.maintenance import CollectedShape, CompactedShape, CompactShape, PlanShape
from nova_assets.service.shapes.requests import CollectRequest, CompactRequest, DropRequest, RestoreRequest

router = APIRouter(prefix="/v1/channels/{channel}", tags=["upkeep"], responses=problem_responses(409, 410, 415, 422))


OperatorDependency = Annotated[Caller, Depends(require_right("operate"))]


@router.get("/upkeep")
def upkeep(channel: ChannelName, caller: ReaderDependency, service: ServiceDependency) -> PlanShape:
    """What upkeep would add to the channel now, where it is worth it, and which blocks nobody needs any more."""
    compact = service.store.compactable(channel, force=False)
    gone: list[Block] = [v.block for v in service.store.held(channel) if not v.held_by]
    return PlanShape(
        channel=channel,
        compact=[CompactShape.of(c) for c in compact],
        collect=[BlockShape.of(b) for b in gone],
    )


@router.post("/compact")
def compact(
    channel: ChannelName, caller: OperatorDependency, service: ServiceDependency, wanted: CompactRequest
) -> CompactedShape:
    """Add bases, or chained deltas, at numbers that exist. No answer changes, and nothing is deleted."""
    force, chained, partitions = wanted.force, wanted.chained, wanted.partitions
    found = service.store.compactable(channel, force=force, chained=chained, partitions=partitions)
    done = None
    if not wanted.dry_run:
        done = service.store.compact(channel, force=force, chained=chained, partitions=partitions)
    return CompactedShape(
        channel=channel,
        wanted=[CompactShape.of(c) for c in found],
        commit=None if done is None else visible_commit_shape(caller, channel, done),
    )


@router.post("/collect")
def collect(
    channel: ChannelName, caller: OperatorDependency, service: ServiceDependency, wanted: CollectRequest
) -> CollectedShape:
    """Take the blocks that nobody needs any more. Their files are deleted after a grace."""
    if wanted.dry_run:
        found = [v.block for v in service.store.held(channel, retain=wanted.retain) if not v.held_by]
        return CollectedShape(channel=channel, blocks=visible_block_shapes(caller, channel, found), commit="")
    done = service.store.collect_garbage(channel, retain=wanted.retain)
    return CollectedShape(
        channel=channel, blocks=visible_block_shapes(caller, channel, done.blocks), commit=done.commit_id
    )


@router.post("/drop")
def drop(
    channel: ChannelName, caller: OperatorDependency, service: ServiceDependency, wanted: DropRequest
) -> CommitShape | None:
    """Drop a partition, or all that agree with some dimensions. Null where there was nothing to drop."""
    if wanted.dry_run:
        service.parse_scope(channel, wanted.partition)
        return None
    done = service.store.drop(channel, wanted.partition)
    return None if done is None else visible_commit_shape(caller, channel, done)


@router.post("/restore")
def restore(
    channel: ChannelName, caller: OperatorDependency, service: ServiceDependency, wanted: RestoreRequest
) -> CommitShape | None:
    """Make the channel what it was at a number, by a base on top of what is there."""
    if wanted.dry_run:
        service.store.read(channel, wanted.at)
        return None
    return visible_commit_shape(caller, channel, service.store.restore(channel, wanted.at))
