"""Routes for operators: compaction, garbage collection, drops and restores."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends

from nova_assets.model.block import Block
from nova_assets.service.http.guard import Caller
from nova_assets.service.redaction import visible_block_shapes, visible_commit_shape
from nova_assets.service.routes.dependencies import (
    ChannelName,
    ReaderDependency,
    ServiceDependency,
    problem_responses,
    require_right,
)
from nova_assets.service.shapes import (
    BlockShape,
    CollectedShape,
    CollectRequest,
    CommitShape,
    CompactedShape,
    CompactRequest,
    CompactShape,
    DropRequest,
    PlanShape,
    RestoreRequest,
)

router = APIRouter(prefix="/v1/channels/{channel}", tags=["upkeep"], responses=problem_responses(409, 410, 415, 422))


OperatorDependency = Annotated[Caller, Depends(require_right("operate"))]


@router.get("/upkeep")
def upkeep(channel: ChannelName, caller: ReaderDependency, service: ServiceDependency) -> PlanShape:
    """Maintenance that is due: compactions that save more than they cost, and blocks that nothing retains."""
    compactions = service.store.compactable(channel, force=False)
    collectable: list[Block] = [v.block for v in service.store.held(channel) if not v.held_by]
    return PlanShape(
        channel=channel,
        compact=[CompactShape.of(c) for c in compactions],
        collect=[BlockShape.of(b) for b in collectable],
    )


@router.post("/compact")
def compact(
    channel: ChannelName, caller: OperatorDependency, service: ServiceDependency, compact_request: CompactRequest
) -> CompactedShape:
    """Compact a channel: add bases or chained deltas at existing numbers. No answer changes; nothing is deleted."""
    force, chained, partitions = compact_request.force, compact_request.chained, compact_request.partitions
    compactions = service.store.compactable(channel, force=force, chained=chained, partitions=partitions)
    commit = None
    if not compact_request.dry_run:
        commit = service.store.compact(channel, force=force, chained=chained, partitions=partitions)
    return CompactedShape(
        channel=channel,
        wanted=[CompactShape.of(c) for c in compactions],
        commit=None if commit is None else visible_commit_shape(caller, channel, commit),
    )


@router.post("/collect")
def collect(
    channel: ChannelName, caller: OperatorDependency, service: ServiceDependency, collect_request: CollectRequest
) -> CollectedShape:
    """Remove the blocks that no retained answer needs. Their files are deleted after a delay."""
    if collect_request.dry_run:
        collectable = [v.block for v in service.store.held(channel, retain=collect_request.retain) if not v.held_by]
        return CollectedShape(channel=channel, blocks=visible_block_shapes(caller, channel, collectable), commit="")
    collected = service.store.collect_garbage(channel, retain=collect_request.retain)
    return CollectedShape(
        channel=channel, blocks=visible_block_shapes(caller, channel, collected.blocks), commit=collected.commit_id
    )


@router.post("/drop")
def drop(
    channel: ChannelName, caller: OperatorDependency, service: ServiceDependency, drop_request: DropRequest
) -> CommitShape | None:
    """Drop one partition, or all partitions with some values. Null if there was nothing to drop."""
    if drop_request.dry_run:
        service.parse_scope(channel, drop_request.partition)
        return None
    commit = service.store.drop(channel, drop_request.partition)
    return None if commit is None else visible_commit_shape(caller, channel, commit)


@router.post("/restore")
def restore(
    channel: ChannelName, caller: OperatorDependency, service: ServiceDependency, restore_request: RestoreRequest
) -> CommitShape | None:
    """Restore an earlier version of a channel by adding a base."""
    if restore_request.dry_run:
        service.store.read(channel, restore_request.at)
        return None
    return visible_commit_shape(caller, channel, service.store.restore(channel, restore_request.at))
