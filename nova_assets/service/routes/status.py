"""Status routes from the catalog: channels, blocks, schemas, cursors, executions and firings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query

from nova_assets.errors import ExecutionNotLive, NotAllowed
from nova_assets.model.execution import Execution, ExecutionState
from nova_assets.model.timeline import Instant
from nova_assets.service.http.guard import Caller
from nova_assets.service.routes.dependencies import (
    CallerDependency,
    ChannelName,
    Limit,
    PartitionFilter,
    ReaderDependency,
    ServiceDependency,
    VersionNumber,
    problem_responses,
)
from nova_assets.service.shapes import (
    BlockShape,
    ChannelShape,
    Column,
    CursorShape,
    ExecutionShape,
    FiringShape,
    InstantShape,
    PartitionShape,
    PendingShape,
    SchemaShape,
)

router = APIRouter(prefix="/v1", tags=["looking"], responses=problem_responses(410, 422))

Binding = Annotated[str | None, Query(max_length=256, description="Only this binding.")]


@router.get("/channels")
def channels(caller: CallerDependency, service: ServiceDependency) -> list[ChannelShape]:
    """Channels that the caller may read, with their heads. Rows and bytes count all retained blocks."""
    state_by_channel = {s.channel.name: s for s in service.store.channels()}
    return [ChannelShape.of(state_by_channel[name]) for name in caller.channels_with_right("read", state_by_channel)]


@router.get("/channels/{channel}")
def channel(channel: ChannelName, caller: ReaderDependency, service: ServiceDependency) -> ChannelShape:
    """One channel, with its head. Rows and bytes count all retained blocks."""
    states = service.store.catalog.definitions.channels(channel)
    return ChannelShape.of(states[0] if states else service.store.catalog.definitions.channel(channel))


@router.get("/channels/{channel}/schema")
def schema(
    channel: ChannelName, caller: ReaderDependency, service: ServiceDependency, at: VersionNumber = None
) -> SchemaShape:
    """Columns of a channel at its head or at a number."""
    head = service.store.catalog.definitions.channel(channel).head
    history = service.store.catalog.histories.of(channel, at, since=head if at is None else at)
    columns = None if history.schema is None else [Column(**c) for c in history.schema.as_json()]
    return SchemaShape(channel=channel, at=history.head, columns=columns)


@router.get("/channels/{channel}/partitions")
def partitions(
    channel: ChannelName, caller: ReaderDependency, service: ServiceDependency, partition: PartitionFilter = None
) -> list[PartitionShape]:
    """Partitions that have or had blocks, by name. Rows and bytes count all retained blocks."""
    scope = service.parse_scope(channel, partition)
    return [PartitionShape.of(p) for p in service.store.catalog.histories.partitions(channel, scope)]


@router.get("/channels/{channel}/blocks")
def blocks(
    channel: ChannelName,
    caller: ReaderDependency,
    service: ServiceDependency,
    partition: PartitionFilter = None,
    at: VersionNumber = None,
    limit: Limit = 1000,
) -> list[BlockShape]:
    """Blocks with their files, newest first, up to the limit. All blocks of the last number are included. For the next
    page, pass that number minus one as ``at``."""
    scope = service.parse_scope(channel, partition)
    return [BlockShape.of(b) for b in service.store.catalog.histories.blocks(channel, at, scope, limit)]


@router.get("/channels/{channel}/timeline")
def timeline(
    channel: ChannelName, caller: ReaderDependency, service: ServiceDependency, limit: Limit = 1000
) -> list[InstantShape]:
    """The latest instants, oldest first, with instants in progress last. Binding and details are included only if the
    caller may read all channels of the binding."""
    definition_by_binding = service.store.catalog.definitions.bindings()
    return [
        InstantShape.of(_redact_instant(caller, i, definition_by_binding))
        for i in service.store.timeline(channel, limit)
    ]


@router.get("/channels/{channel}/pending")
def pending(channel: ChannelName, caller: ReaderDependency, service: ServiceDependency) -> PendingShape:
    """Executions in progress that will change a channel."""
    service.channel_definition(channel)
    definition_by_binding = service.store.catalog.definitions.bindings()
    executions = [
        e for e in service.store.catalog.executions.running() if _will_change_channel(e, channel, definition_by_binding)
    ]
    shapes = [ExecutionShape.of_execution(_redact_execution(caller, e)) for e in executions]
    return PendingShape(
        channel=channel,
        compactions=[e for e in shapes if e.purpose == "compact"],
        executions=[e for e in shapes if e.purpose != "compact"],
    )


@router.get("/cursors")
def cursors(caller: CallerDependency, service: ServiceDependency, binding: Binding = None) -> list[CursorShape]:
    """Cursors of bindings on the channels that the caller may read."""
    return [
        CursorShape.of(c) for c in service.store.catalog.cursors.find(binding) if caller.has_right("read", c.channel)
    ]


@router.get("/executions")
def executions(
    caller: CallerDependency,
    service: ServiceDependency,
    binding: Binding = None,
    state: Annotated[ExecutionState | None, Query(description="Only executions in this state.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> list[ExecutionShape]:
    """Executions of bindings, latest first. Only those whose channels the caller may all read."""
    readable_channels = (
        None if caller.token is None else caller.channels_with_right("read", service.store.catalog.scheduler.heads())
    )
    return [
        ExecutionShape.of_execution(e)
        for e in service.store.catalog.executions.find(binding, limit, state=state, among_channels=readable_channels)
    ]


@router.get("/executions/{execution}")
def execution(
    caller: CallerDependency, service: ServiceDependency, execution: Annotated[str, Path(pattern=r"^[0-9a-f]{32}$")]
) -> ExecutionShape:
    """One execution of a binding, an insert or a read."""
    try:
        stored_execution = service.store.catalog.executions.get(execution)
    except ExecutionNotLive:
        stored_execution = None
    if stored_execution is None or not _may_read_all(caller, stored_execution.pins):
        raise NotAllowed(
            f"there is no execution {execution!r} that this caller may read",
            expected="the id of an execution whose channels the caller may read",
            next="GET /v1/executions lists executions",
        )
    return ExecutionShape.of_execution(stored_execution)


@router.get("/firings")
def firings(
    caller: CallerDependency,
    service: ServiceDependency,
    binding: Binding = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> list[FiringShape]:
    """Firings of triggers, latest first. Only those of bindings whose channels the caller may all read."""
    definition_by_binding = service.store.catalog.definitions.bindings()
    readable_bindings = [
        name
        for name, definition in definition_by_binding.items()
        if _may_read_all(caller, definition["channels"].values())
    ]
    return [
        FiringShape.of(f) for f in service.store.catalog.firings.find(binding, limit, among_bindings=readable_bindings)
    ]


def _may_read_all(caller: Caller, channel_names: Iterable[str]) -> bool:
    channels = list(channel_names)
    return caller.token is None or (bool(channels) and caller.channels_with_right("read", channels) == channels)


def _redact_execution(caller: Caller, execution: Execution) -> Execution:
    """Execution without the channels that the caller may not read."""
    visible_pins = {c: p for c, p in execution.pins.items() if caller.has_right("read", c)}
    return (
        execution
        if len(visible_pins) == len(execution.pins)
        else replace(execution, pins=visible_pins, binding=None, error=None)
    )


def _redact_instant(caller: Caller, instant: Instant, definition_by_binding: Mapping[str, Any]) -> Instant:
    """Instant without its binding's details, if the caller may not read all channels of the binding."""
    if caller.token is None or instant.binding is None:
        return instant
    definition = definition_by_binding.get(instant.binding)
    if definition is not None and _may_read_all(caller, definition["channels"].values()):
        return instant
    return replace(instant, binding=None, details={})


def _will_change_channel(execution: Execution, channel: str, definition_by_binding: Mapping[str, Any]) -> bool:
    """Whether an execution is about to change a channel."""
    if execution.purpose == "read":
        return False
    if execution.binding is None:
        return channel in execution.pins
    definition = definition_by_binding.get(execution.binding)
    if definition is None:
        return False
    ports = {e["port"] for t in definition["tasks"] for e in t["produces"]}
    return channel in {c for port, c in definition["channels"].items() if port in ports}
