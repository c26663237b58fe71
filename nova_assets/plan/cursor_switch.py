"""Switching a binding between executions of the whole and executions per partition (R13). Pure.

Each kind keeps cursors of its own. A switch replaces the ones by the others, so that exactly the same rows have been
read afterwards: none is lost, and none is read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nova_assets.errors import PartitionError
from nova_assets.model.binding import Binding
from nova_assets.model.channel_state import Cursor, PartitionState
from nova_assets.model.cursor_switch import CursorAt, Kind, Switch
from nova_assets.model.partitions import WHOLE, scope_of


def plan_switch(
    binding: Binding,
    to: Kind,
    cursors: Iterable[Cursor],
    heads: Mapping[str, int],
    partitions: Mapping[str, Iterable[PartitionState]],
) -> Switch:
    """The cursors of a binding after it is switched.

    To partitions: each partition that exists stands where the whole stood. A partition that comes later has no cursor,
    and nothing of it has been read.

    To the whole: one cursor cannot say that one partition has been read further than another, so nothing may be unread
    in any of them. The cursor then stands at the head.

    Args:
        heads: channel -> its head. They are read before ``partitions``, so that no block lies between both.
        partitions: channel -> its partitions, dropped ones included.

    Raises:
        PartitionError: the binding has no partitions; or some of them have unread data.
    """
    before = tuple(CursorAt(c.channel, c.seq, c.partition, c.channel_partition) for c in cursors)
    if not binding.dimensions:
        raise PartitionError(
            f"binding {binding.name!r} has no partitions, so it always runs whole",
            expected="a binding whose inputs and outputs share a partition column",
            binding=binding.name,
        )
    of_other_kind = [c for c in before if (c.partition == WHOLE) != (to == "whole")]
    if not of_other_kind:
        return Switch(binding.name, to, before, before)
    names = _partitions(binding, before, partitions)
    if to == "partitions":
        after = {(c.partition, c.channel): c for c in before if c.partition != WHOLE}
        for c in of_other_kind:
            for name in names:
                scope = scope_of(_shared(binding, c.channel), name)
                own = after.get((name, c.channel))
                if own is None or own.seq < c.seq:  # it ran before there was anything in it, and the whole has read it
                    after[name, c.channel] = CursorAt(c.channel, c.seq, name, scope)
        return Switch(binding.name, to, before, tuple(after.values()))
    unread = _unread(binding, names, before, heads, partitions)
    if unread:
        raise PartitionError(
            f"binding {binding.name!r} cannot be switched to the whole yet: {len(unread)} partitions have unread data",
            found=", ".join(unread[:3]) + (" and more" if len(unread) > 3 else ""),
            expected="nothing unread: one cursor cannot say that partitions were read to different numbers",
            next=f"nova run {binding.name} --missing, and then again: nova switch {binding.name} --to whole",
            binding=binding.name,
            unread=len(unread),
        )
    return Switch(binding.name, to, before, tuple(CursorAt(c, heads[c]) for c in sorted({c.channel for c in before})))


def _partitions(
    binding: Binding, before: Iterable[CursorAt], partitions: Mapping[str, Iterable[PartitionState]]
) -> list[str]:
    """The partitions of a binding of which a channel has something, or that have a cursor."""
    columns = [d.column for d in binding.dimensions]
    scopes = {scope_of(columns, state.partition) for states in partitions.values() for state in states}
    return sorted(
        {s for s in scopes if s.count("/") == len(columns) - 1 and s} | {c.partition for c in before} - {WHOLE}
    )


def _shared(binding: Binding, channel: str) -> list[str]:
    columns = {d.column for d in binding.dimensions}
    return [p for c in binding.cursor_channels if c.name == channel for p in c.partition_columns if p in columns]


def _unread(
    binding: Binding,
    names: Iterable[str],
    before: Iterable[CursorAt],
    heads: Mapping[str, int],
    partitions: Mapping[str, Iterable[PartitionState]],
) -> list[str]:
    """The partitions of a binding with news beyond their cursors; of a channel that none of them reads, its own."""
    at = {(c.partition, c.channel): c.seq for c in before}
    found: dict[str, None] = {}
    for channel in binding.cursor_channels:
        shared = _shared(binding, channel.name)
        newest: dict[str, int] = {}
        for state in partitions.get(channel.name, ()):
            scope = scope_of(shared, state.partition) if state.partition else WHOLE
            newest[scope] = max(newest.get(scope, 0), state.news)
        readers = {name: scope_of(shared, name) for name in names}
        for name, scope in readers.items():
            if newest.get(scope, 0) > at.get((name, channel.name), 0):
                found[name] = None
        found |= dict.fromkeys(s or channel.name for s, n in newest.items() if n and s not in readers.values())
    return list(found)
