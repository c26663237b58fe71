"""Retention of partitions: calendar partitions whose retention period is over are dropped (R19). Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from nova_assets.model.partitions import Dimension, partition_values
from nova_assets.model.period import period_seconds
from nova_assets.model.timeline import History
from nova_assets.plan.modes import base_and_deltas


def expired_partitions(
    dimensions: Sequence[Dimension], keep_by_column: Mapping[str, str], partitions: Iterable[str], now: datetime
) -> tuple[str, ...]:
    """Partitions whose retention period is over.

    Args:
        dimensions: dimensions of the channel.
        keep_by_column: column -> how long a partition is kept after its end.
        partitions: partitions with data.
        now: current time, with a zone.
    """
    dimensions_with_period = [
        (d, period_seconds(keep_by_column[d.column])) for d in dimensions if d.column in keep_by_column
    ]

    def is_expired(partition: str) -> bool:
        values = partition_values(partition)
        end_times = [(d.partition_end(values.get(d.column)), seconds) for d, seconds in dimensions_with_period]
        return any(e is not None and s is not None and e + timedelta(seconds=s) <= now for e, s in end_times)

    return tuple(p for p in partitions if is_expired(p))


def nonempty_partitions(history: History, partitions: Collection[str]) -> tuple[str, ...]:
    """The partitions of a collection that may have rows."""
    found = []
    for partition_history in history.partition_histories:
        if partition_history.partition in partitions:
            base, deltas = base_and_deltas(history, partition_history, history.head)
            if deltas or (base is not None and base.rows):
                found.append(partition_history.partition)
    return tuple(found)
