"""Routes for operators: compaction, garbage collection, drops and restores."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends

from nova_assets.model.block import Block
from nova_assets.service.http.caller import Caller
from nova_assets.service.redaction import visible_block_shapes, visible_commit_shape
from nova_assets.service.routes.dependencies import (
    ChannelName,
    ReaderDependency,
    ServiceDependency,
    problem_responses,
    require_right,
)
from nova_assets.service.shapes.blocks import BlockShape, CommitShape
from nova_assets.service.shapes.maintenance import CollectedShape, CompactedShape, CompactShape, PlanShape
from nova_assets.service.shapes.requests import CollectRequest, CompactRequest, DropRequest, RestoreRequest

router = APIRouter(prefix="/v1/channels/{channel}", tags=["upkeep"], responses=problem_responses(409, 410, 415, 422))


OperatorDependency = Annotated[Caller, Depends(require_right("operate"))]


@router.get("/upkeep")
def upkeep(channel: ChannelName, caller: ReaderDependency, service: ServiceDependency) -> PlanShape:
    """Maintenance that is due: compactions that save more than they cost, and blocks that nothing retains."""
    compact = service.store.compactable(channel, force=False)
    gone: list[Block] = [v.block for v in service.store.held(channel) if not v.held_by]
    return PlanShape(
        channel=channel,
        compact=[CompactShape.from_compact(c) for c in compact],
        collect=[BlockShape.from_block(b) for b in gone],
    )


@router.post("/compact")
def compact(
    channel: ChannelName, caller: OperatorDependency, service: ServiceDependency, compact_request: CompactRequest
) -> CompactedShape:
    """Compact a channel: add bases or chained deltas at existing numbers. No answer changes; nothing is deleted."""
    force, chained, partitions = compact_request.force, compact_request.chained, compact_request.partitions
    found = service.store.compactable(channel, force=force, chained=chained, partitions=partitions)
    done = None
    if not compact_request.dry_run:
        done = service.store.compact(channel, force=force, chained=chained, partitions=partitions)
    return CompactedShape(
        channel=channel,
        wanted=[CompactShape.from_compact(c) for c in found],
        commit=None if done is None else visible_commit_shape(caller, channel, done),
    )


@router.post("/collect")
def collect(
    channel: ChannelName, caller: OperatorDependency, service: ServiceDependency, collect_request: CollectRequest
) -> CollectedShape:
    """Remove the blocks that no retained answer needs. Their files are deleted after a delay."""
    if collect_request.dry_run:
        found = [v.block for v in service.store.held(channel, retain=collect_request.retain) if not v.held_by]
        return CollectedShape(channel=channel, blocks=visible_block_shapes(caller, channel, found), commit="")
    done = service.store.collect_garbage(channel, retain=collect_request.retain)
    return CollectedShape(
        channel=channel, blocks=visible_block_shapes(caller, channel, done.blocks), commit=done.commit_id
    )


@router.post("/drop")
def drop(
    channel: ChannelName, caller: OperatorDependency, service: ServiceDependency, drop_request: DropRequest
) -> CommitShape | None:
    """Drop one partition, or all partitions with some values. Null if there was nothing to drop."""
    if drop_request.dry_run:
        service.parse_scope(channel, drop_request.partition)
        return None
    done = service.store.drop(channel, drop_request.partition)
    return None if done is None else visible_commit_shape(caller, channel, done)


@router.post("/restore")
def restore(
    channel: ChannelName, caller: OperatorDependency, service: ServiceDependency, restore_request: RestoreRequest
) -> CommitShape | None:
    """Restore an earlier version of a channel by adding a base."""
    if restore_request.dry_run:
        service.store.read(channel, restore_request.at)
        return None
    return visible_commit_shape(caller, channel, service.store.restore(channel, restore_request.at))
