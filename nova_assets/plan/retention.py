"""Partitions that are over for longer than they are kept: what retention drops (R19). Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from nova_assets.model.partitions import Dimension, partition_values
from nova_assets.model.period import seconds_of
from nova_assets.model.timeline import History
from nova_assets.plan.modes import state


def expired(
    dimensions: Sequence[Dimension], keep: Mapping[str, str], partitions: Iterable[str], now: datetime
) -> tuple[str, ...]:
    """The partitions that are no longer kept.

    Args:
        dimensions: of the channel.
        keep: column -> for how long after its end a partition is kept.
        partitions: those that hold anything.
        now: with a zone.
    """
    kept = [(d, seconds_of(keep[d.column])) for d in dimensions if d.column in keep]

    def is_over(partition: str) -> bool:
        values = partition_values(partition)
        ends = [(d.ends(values.get(d.column)), seconds) for d, seconds in kept]
        return any(e is not None and s is not None and e + timedelta(seconds=s) <= now for e, s in ends)

    return tuple(p for p in partitions if is_over(p))


def droppable(history: History, names: Collection[str]) -> tuple[str, ...]:
    """Those of some partitions in which anything may be read."""
    found = []
    for track in history.tracks:
        if track.partition in names:
            base, deltas = state(history, track, history.head)
            if deltas or (base is not None and base.rows):
                found.append(track.partition)
    return tuple(found)
