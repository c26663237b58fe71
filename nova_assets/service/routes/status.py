"""Status routes from the catalog: channels, blocks, schemas, cursors, executions and firings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query

from nova_assets.errors import ExecutionNotLive, NotAllowed
from nova_assets.model.execution import Execution, ExecutionState
from nova_assets.model.timeline import Instant
from nova_assets.service.deployment import (
    CallerDependency,
    ChannelName,
    Limit,
    PartitionFilter,
    ReaderDependency,
    ServiceDependency,
    VersionNumber,
    problem_responses,
)
from nova_assets.service.http.caller import Caller
from nova_assets.service.shapes.blocks import BlockShape
from nova_assets.service.shapes.channels import ChannelShape, PartitionShape, SchemaShape
from nova_assets.service.shapes.executions import CursorShape, ExecutionShape, FiringShape, PendingShape
from nova_assets.service.shapes.shape import columns_of_schema
from nova_assets.service.shapes.timeline import InstantShape

router = APIRouter(prefix="/v1", tags=["looking"], responses=problem_responses(410, 422))

Binding = Annotated[str | None, Query(max_length=256, description="Of this binding alone.")]


@router.get("/channels")
def channels(caller: CallerDependency, service: ServiceDependency) -> list[ChannelShape]:
    """Every channel that the caller may read, with its head; rows and bytes are those of all that is retained."""
    found = {s.channel.name: s for s in service.store.channels()}
    return [ChannelShape.of(found[name]) for name in caller.channels_with_right("read", found)]


@router.get("/channels/{channel}")
def channel(channel: ChannelName, caller: ReaderDependency, service: ServiceDependency) -> ChannelShape:
    """One channel, with its head; its rows and bytes are those of all that is retained."""
    found = service.store.catalog.channels(channel)
    return ChannelShape.of(found[0] if found else service.store.catalog.channel(channel))


@router.get("/channels/{channel}/schema")
def schema(
    channel: ChannelName, caller: ReaderDependency, service: ServiceDependency, at: VersionNumber = None
) -> SchemaShape:
    """The columns of a channel, now or at a number."""
    head = service.store.catalog.channel(channel).head
    known = service.store.catalog.history(channel, at, since=head if at is None else at)
    return SchemaShape(channel=channel, at=known.head, columns=columns_of_schema(known.schema))


@router.get("/channels/{channel}/partitions")
def partitions(
    channel: ChannelName, caller: ReaderDependency, service: ServiceDependency, partition: PartitionFilter = None
) -> list[PartitionShape]:
    """The partitions that hold anything, by name; rows and bytes are those of all that is retained."""
    scope = service.parse_scope(channel, partition)
    return [PartitionShape.of(p) for p in service.store.catalog.partitions(channel, scope)]


@router.get("/channels/{channel}/blocks")
def blocks(
    channel: ChannelName,
    caller: ReaderDependency,
    service: ServiceDependency,
    partition: PartitionFilter = None,
    at: VersionNumber = None,
    limit: Limit = 1000,
) -> list[BlockShape]:
    """The blocks that are there, newest first, with their files: as many as the limit, and what else is of the last
    number among them. Those before them are told with that number less one as ``at``."""
    scope = service.parse_scope(channel, partition)
    return [BlockShape.of(b) for b in service.store.catalog.blocks(channel, at, scope, limit)]


@router.get("/channels/{channel}/timeline")
def timeline(
    channel: ChannelName, caller: ReaderDependency, service: ServiceDependency, limit: Limit = 1000
) -> list[InstantShape]:
    """The latest instants, oldest first; those under way last. By whom, and what was read for them, is told to who may
    read that."""
    bound = service.store.catalog.bindings()
    return [InstantShape.of(_redact_instant(caller, i, bound)) for i in service.store.timeline(channel, limit)]


@router.get("/channels/{channel}/pending")
def pending(channel: ChannelName, caller: ReaderDependency, service: ServiceDependency) -> PendingShape:
    """What is under way on a channel."""
    service.channel_definition(channel)
    bound = service.store.catalog.bindings()
    found = [e for e in service.store.catalog.running_executions() if _changes_channel(e, channel, bound)]
    shown = [ExecutionShape.of(_redact_execution(caller, e)) for e in found]
    return PendingShape(
        channel=channel,
        compactions=[e for e in shown if e.purpose == "compact"],
        executions=[e for e in shown if e.purpose != "compact"],
    )


@router.get("/cursors")
def cursors(caller: CallerDependency, service: ServiceDependency, binding: Binding = None) -> list[CursorShape]:
    """How far bindings have read the channels that the caller may read."""
    return [CursorShape.of(c) for c in service.store.catalog.cursors(binding) if caller.has_right("read", c.channel)]


@router.get("/executions")
def executions(
    caller: CallerDependency,
    service: ServiceDependency,
    binding: Binding = None,
    state: Annotated[ExecutionState | None, Query(description="In this state alone.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> list[ExecutionShape]:
    """Executions of bindings, latest first, of which the caller may read every channel."""
    may = None if caller.token is None else caller.channels_with_right("read", service.store.catalog.heads())
    return [
        ExecutionShape.of(e) for e in service.store.catalog.executions(binding, limit, state=state, among_channels=may)
    ]


@router.get("/executions/{execution}")
def execution(
    caller: CallerDependency, service: ServiceDependency, execution: Annotated[str, Path(pattern=r"^[0-9a-f]{32}$")]
) -> ExecutionShape:
    """One execution."""
    try:
        found = service.store.catalog.execution(execution)
    except ExecutionNotLive:
        found = None
    if found is None or not _may_read_all(caller, found.pins):
        raise NotAllowed(
            f"there is no execution {execution!r} that this caller may see",
            expected="the id of one that reads channels which the caller may read",
            next="GET /v1/executions lists them",
        )
    return ExecutionShape.of(found)


@router.get("/firings")
def firings(
    caller: CallerDependency,
    service: ServiceDependency,
    binding: Binding = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> list[FiringShape]:
    """What triggers have fired, latest first, of bindings of which the caller may read every channel."""
    bound = service.store.catalog.bindings()
    may = [name for name, definition in bound.items() if _may_read_all(caller, definition["channels"].values())]
    return [FiringShape.of(f) for f in service.store.catalog.firings(binding, limit, among_bindings=may)]


def _may_read_all(caller: Caller, channel_names: Iterable[str]) -> bool:
    some = list(channel_names)
    return caller.token is None or (bool(some) and caller.channels_with_right("read", some) == some)


def _redact_execution(caller: Caller, execution: Execution) -> Execution:
    """Execution without the channels that the caller may not read."""
    visible_pins = {c: p for c, p in execution.pins.items() if caller.has_right("read", c)}
    return (
        execution
        if len(visible_pins) == len(execution.pins)
        else replace(execution, pins=visible_pins, binding=None, error=None)
    )


def _redact_instant(caller: Caller, instant: Instant, bindings: Mapping[str, Any]) -> Instant:
    """Instant without its binding's details, if the caller may not read all channels of the binding."""
    if caller.token is None or instant.binding is None:
        return instant
    bound = bindings.get(instant.binding)
    if bound is not None and _may_read_all(caller, bound["channels"].values()):
        return instant
    return replace(instant, binding=None, details={})


def _changes_channel(execution: Execution, channel: str, bindings: Mapping[str, Any]) -> bool:
    """Whether an execution is about to change a channel."""
    if execution.purpose == "read":
        return False
    if execution.binding is None:
        return channel in execution.pins
    bound = bindings.get(execution.binding)
    if bound is None:
        return False
    ports = {e["port"] for t in bound["tasks"] for e in t["produces"]}
    return channel in {c for port, c in bound["channels"].items() if port in ports}
