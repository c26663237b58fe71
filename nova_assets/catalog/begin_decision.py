"""Decision of ``begin``: executions to supersede, and heads and cursors to pin (R2, R4, R13)."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, select

from nova_assets.catalog.channel_rows import channel_not_found_error
from nova_assets.catalog.cursors import partition_of_conflicting_cursor
from nova_assets.catalog.database.transactions import Database, query_as_dict
from nova_assets.catalog.definition_states import check_not_removed
from nova_assets.catalog.leases import supersedable_executions
from nova_assets.catalog.tables import bindings, channels, cursors, executions
from nova_assets.errors import PartitionError, VersionNotFound
from nova_assets.model.execution import BeginRequest, Pin
from nova_assets.model.registered_definition import DefinitionKey


@dataclass(frozen=True, slots=True)
class BeginDecision:
    """Rows that ``begin`` writes after all checks.

    Args:
        superseded_ids: executions to abort.
        pins: pins of the new execution.
    """

    superseded_ids: tuple[str, ...]
    pins: tuple[Pin, ...]


def decide_begin(c: Connection, database: Database, request: BeginRequest, *, lock: bool) -> BeginDecision:
    """Run all checks of ``begin``, and determine what it would write.

    Args:
        lock: lock the rows on which the decision depends. ``preview_pins`` decides without locks.

    Raises:
        ExecutionInProgress, ChannelNotFound, DefinitionRemoved, VersionNotFound, PartitionError: as
            ``Executions.begin``.
    """
    superseded_ids = () if request.binding is None else _lock_executions_to_supersede(c, database, request, lock)
    heads = _heads_to_pin(c, database, request, lock)
    check_not_removed(c, _definitions_in_use(request))
    cursor_positions = _cursor_positions(c, request)
    last_read = {n: v for n, v in request.last_read_version_by_channel.items() if v <= heads.get(n, -1)}
    if request.binding is not None and request.cursor_channels:
        _check_one_cursor_kind(c, request)
    return BeginDecision(
        superseded_ids,
        tuple(
            Pin(
                name,
                head,
                cursor_positions.get(name, 0)
                if name in request.cursor_channels
                else request.changes_after_by_channel.get(name, last_read.get(name)),
                request.scope_by_channel.get(name, ""),
                has_run=name in last_read or (name in request.cursor_channels and name in cursor_positions),
            )
            for name, head in heads.items()
        ),
    )


def _definitions_in_use(request: BeginRequest) -> list[DefinitionKey]:
    channel_names = {*request.pinned_channels, *request.cursor_channels}
    binding = [] if request.binding is None else [DefinitionKey("binding", request.binding)]
    return [*binding, *(DefinitionKey("channel", name) for name in channel_names)]


def _lock_executions_to_supersede(
    c: Connection, database: Database, request: BeginRequest, lock: bool
) -> tuple[str, ...]:
    """Earlier executions of the binding's partition. With ``lock``, only one begin of a binding runs at a time."""
    if lock:
        c.execute(select(bindings.c.name).where(bindings.c.name == request.binding).with_for_update())
    is_same_partition = (executions.c.binding == request.binding) & (executions.c.partition == request.partition)
    return supersedable_executions(c, database, is_same_partition, request.dead_owners, lock=lock)


def _heads_to_pin(c: Connection, database: Database, request: BeginRequest, lock: bool) -> dict[str, int]:
    """Heads of all channels to pin, at one moment. The locks wait for running commits and delay later ones (R2)."""
    channel_names = sorted(set(request.pinned_channels) | set(request.cursor_channels))
    query = select(channels.c.name, channels.c.head).where(channels.c.name.in_(channel_names)).order_by(channels.c.name)
    heads = (
        query_as_dict(c, query.with_for_update(read=True))
        if lock
        else dict.fromkeys(channel_names, 0) | query_as_dict(c, query)
    )
    for name in channel_names:
        if name not in heads:
            raise channel_not_found_error(database, name)
    for name, number in (*request.pinned_version_by_channel.items(), *request.changes_after_by_channel.items()):
        if not 0 <= number <= heads[name]:
            raise VersionNotFound.of(name, number, heads[name])
    return {**heads, **request.pinned_version_by_channel}


def _cursor_positions(c: Connection, request: BeginRequest) -> dict[str, int]:
    query = select(cursors.c.channel, cursors.c.channel_partition, cursors.c.seq).where(
        cursors.c.binding == (request.binding or ""), cursors.c.partition == request.partition
    )
    rows = c.execute(query).all()
    return {name: seq for name, scope, seq in rows if scope == request.scope_by_channel.get(name, "")}


def _check_one_cursor_kind(c: Connection, request: BeginRequest) -> None:
    """Check that a binding always runs either unpartitioned or per partition. Otherwise it would read rows twice (R13).

    Raises:
        PartitionError: the binding has cursors of the other kind.
    """
    other_partition = partition_of_conflicting_cursor(c, request.binding or "", request.partition)
    if other_partition is None:
        return
    before = f"for single partitions (such as {other_partition})" if other_partition else "whole"
    now = "whole" if other_partition else f"for {request.partition} alone"
    target_kind, options = ("whole", "--partition, or --missing") if other_partition else ("partitions", "--whole")
    raise PartitionError(
        f"binding {request.binding!r} has run {before}, and would read the same rows again {now}",
        found=f"cursors of executions {before}",
        expected="runs of one kind, since each kind has its own cursors (R13)",
        next=f"run it as before: nova run {request.binding} with {options}; or switch its cursors, which neither loses "
        f"nor repeats rows: nova switch {request.binding} --to {target_kind}",
        binding=request.binding,
    )
