"""Planner for switching a binding between unpartitioned and per-partition executions (R13). Pure.

Each form has its own cursors. A switch replaces the cursors of one form by those of the other, so that exactly the same
rows count as read: no row is lost, and no row is read twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nova_assets.errors import PartitionError
from nova_assets.model.binding import Binding
from nova_assets.model.channel_state import Cursor, PartitionState
from nova_assets.model.execution import CursorPosition, CursorSwitch, SwitchTarget
from nova_assets.model.partitions import WHOLE, scope_for_columns


def plan_cursor_switch(
    binding: Binding,
    target: SwitchTarget,
    cursors: Iterable[Cursor],
    head_by_channel: Mapping[str, int],
    partition_states_by_channel: Mapping[str, Iterable[PartitionState]],
) -> CursorSwitch:
    """New cursors of a binding after a switch.

    To partitions: each existing partition starts at the position of the unpartitioned cursor. Partitions that are
    created later have no cursor and are unread.

    To unpartitioned: a single cursor cannot represent partitions at different positions, so no partition may have
    unread data. The new cursor is at the head.

    Args:
        binding: the binding.
        target: the target form.
        cursors: current cursors of the binding.
        head_by_channel: channel -> its head. It must be read before ``partition_states_by_channel``, so that no block
            is missed between the two queries.
        partition_states_by_channel: channel -> its partitions, including dropped ones.

    Raises:
        PartitionError: the binding has no partitions, or some partitions have unread data.
    """
    current_cursors = tuple(CursorPosition(c.channel, c.seq, c.partition, c.channel_partition) for c in cursors)
    if not binding.dimensions:
        raise PartitionError(
            f"binding {binding.name!r} has no partitions, so it always runs unpartitioned",
            expected="a binding whose inputs and outputs share a partition column",
            binding=binding.name,
        )
    of_other_kind = [c for c in current_cursors if (c.partition == WHOLE) != (target == "whole")]
    if not of_other_kind:
        return CursorSwitch(binding.name, target, current_cursors, current_cursors)
    binding_partitions = _binding_partitions(binding, current_cursors, partition_states_by_channel)
    if target == "partitions":
        new_cursors = {(c.partition, c.channel): c for c in current_cursors if c.partition != WHOLE}
        for c in of_other_kind:
            for name in binding_partitions:
                scope = scope_for_columns(_shared_partition_columns(binding, c.channel), name)
                own_cursor = new_cursors.get((name, c.channel))
                if (
                    own_cursor is None or own_cursor.seq < c.seq
                ):  # the unpartitioned cursor has read data that came after this partition's own run
                    new_cursors[name, c.channel] = CursorPosition(c.channel, c.seq, name, scope)
        return CursorSwitch(binding.name, target, current_cursors, tuple(new_cursors.values()))
    unread = _unread_partitions(
        binding, binding_partitions, current_cursors, head_by_channel, partition_states_by_channel
    )
    if unread:
        raise PartitionError(
            f"binding {binding.name!r} cannot switch to whole runs yet: {len(unread)} partitions have unread data",
            found=", ".join(unread[:3]) + (" and more" if len(unread) > 3 else ""),
            expected="no unread data, because one cursor cannot represent partitions at different positions",
            next=f"nova run {binding.name} --missing; then nova switch {binding.name} --to whole",
            binding=binding.name,
            unread=len(unread),
        )
    return CursorSwitch(
        binding.name,
        target,
        current_cursors,
        tuple(CursorPosition(c, head_by_channel[c]) for c in sorted({c.channel for c in current_cursors})),
    )


def _binding_partitions(
    binding: Binding,
    current_cursors: Iterable[CursorPosition],
    partition_states_by_channel: Mapping[str, Iterable[PartitionState]],
) -> list[str]:
    """Partitions of a binding for which a channel has data or a cursor exists."""
    columns = [d.column for d in binding.dimensions]
    scopes = {
        scope_for_columns(columns, state.partition)
        for states in partition_states_by_channel.values()
        for state in states
    }
    return sorted(
        {s for s in scopes if s.count("/") == len(columns) - 1 and s} | {c.partition for c in current_cursors} - {WHOLE}
    )


def _shared_partition_columns(binding: Binding, channel: str) -> list[str]:
    columns = {d.column for d in binding.dimensions}
    return [p for c in binding.cursor_channels if c.name == channel for p in c.partition_columns if p in columns]


def _unread_partitions(
    binding: Binding,
    binding_partitions: Iterable[str],
    current_cursors: Iterable[CursorPosition],
    head_by_channel: Mapping[str, int],
    partition_states_by_channel: Mapping[str, Iterable[PartitionState]],
) -> list[str]:
    """Partitions of a binding with data beyond their cursors, and channel partitions that no binding
    partition reads.
    """
    cursor_seqs = {(c.partition, c.channel): c.seq for c in current_cursors}
    found: dict[str, None] = {}
    for channel in binding.cursor_channels:
        shared = _shared_partition_columns(binding, channel.name)
        newest_data_by_scope: dict[str, int] = {}
        for state in partition_states_by_channel.get(channel.name, ()):
            scope = scope_for_columns(shared, state.partition) if state.partition else WHOLE
            newest_data_by_scope[scope] = max(newest_data_by_scope.get(scope, 0), state.last_data_seq)
        scope_by_partition = {name: scope_for_columns(shared, name) for name in binding_partitions}
        for name, scope in scope_by_partition.items():
            if newest_data_by_scope.get(scope, 0) > cursor_seqs.get((name, channel.name), 0):
                found[name] = None
        found |= dict.fromkeys(
            s or channel.name for s, n in newest_data_by_scope.items() if n and s not in scope_by_partition.values()
        )
    return list(found)
