"""Freshness limits of datasets: how long the changes of their inputs may wait. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeAlias

from nova_assets.model.period import period_seconds

DOWNSTREAM = "downstream"
"""Freshness of a dataset that runs only when one of its readers is due."""

UnreadSince: TypeAlias = Callable[[str, str, Collection[str]], datetime | None]
"""Function from (dataset, partition, names) to the time at which the oldest data arrived that the partition's task has
not read; None if there is none. Data of the named inputs has waited already.
"""


@dataclass(frozen=True)
class FreshnessLimits:
    """How long the changes of a dataset's inputs may wait until its task runs.

    Args:
        by_dataset: dataset -> limit; None if no reader of the dataset ever needs it. The changes of other datasets do
            not wait.
        downstream: the datasets that run only when one of their readers is due. Their changes have waited already when
            they reach a reader.
    """

    by_dataset: Mapping[str, timedelta | None] = field(default_factory=dict)
    downstream: frozenset[str] = frozenset()

    def reason_to_wait(self, dataset: str, partition: str, now: datetime, unread_since: UnreadSince) -> str | None:
        """What the task of a stale partition waits for; None if it is due."""
        if dataset not in self.by_dataset:
            return None
        limit = self.by_dataset[dataset]
        if limit is None:
            return "a dataset that reads it"
        oldest = unread_since(dataset, partition, self.downstream)
        if oldest is None or now - oldest >= limit:
            return None
        return f"its freshness limit, at {oldest + limit:%Y-%m-%d %H:%M:%S}"


def freshness_limits(
    freshness_by_dataset: Mapping[str, str], readers: Mapping[str, Sequence[str]], read_by_others: Collection[str]
) -> FreshnessLimits:
    """The limits that follow from what is declared.

    A dataset with ``"downstream"`` has the smallest limit of its readers. Readers without a limit do not wait at all.

    Args:
        freshness_by_dataset: dataset -> period, or ``"downstream"``.
        readers: dataset -> the datasets that read it.
        read_by_others: datasets that are read by tasks other than those of datasets.
    """
    limits: dict[str, timedelta | None] = {}

    def limit_of(dataset: str) -> timedelta | None:
        freshness = freshness_by_dataset.get(dataset)
        if freshness is None or (freshness == DOWNSTREAM and dataset in read_by_others):
            return timedelta(0)
        if freshness != DOWNSTREAM:
            return timedelta(seconds=period_seconds(freshness) or 0)
        if dataset not in limits:
            limits[dataset] = None  # in a cycle, no dataset needs another
            of_readers = [limit for reader in readers.get(dataset, ()) if (limit := limit_of(reader)) is not None]
            limits[dataset] = min(of_readers, default=None)
        return limits[dataset]

    by_dataset = {dataset: limit_of(dataset) for dataset in freshness_by_dataset}
    downstream = frozenset(d for d, freshness in freshness_by_dataset.items() if freshness == DOWNSTREAM)
    return FreshnessLimits({d: limit for d, limit in by_dataset.items() if limit != timedelta(0)}, downstream)
