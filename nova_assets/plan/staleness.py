"""Staleness of dataset partitions, with the reason (BigDataFlow, part 2), and how long it may last. Pure.

A verdict stays valid until its inputs change: a new sequence number of the dataset's channel or of a channel that it
reads, or other expected partitions. Then only the affected partitions are checked again.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from typing import Literal, TypeAlias

from nova_assets.model.period import period_seconds
from nova_assets.model.scheduler_state import MaterializedPartition

StaleReason = Literal["missing", "dirty", "late data"]

TaskInputs: TypeAlias = Callable[[str, str], Sequence[tuple[str, Collection[str]]]]
"""Function from (dataset, partition) to the inputs of its task, each as (dataset or channel, partitions)."""

PartitionsByDataset: TypeAlias = Mapping[str, Mapping[str, MaterializedPartition]]
"""Dataset or channel -> its existing partitions."""


class PartitionLookup(Mapping[str, MaterializedPartition]):
    """Existing partitions of a channel, with bulk lookup.

    Args:
        head: upper bound on the newest sequence number that added data to any partition; None if unknown.
    """

    def __init__(self, head: int | None) -> None:
        self.head = head

    @abstractmethod
    def find(self, partitions: Collection[str]) -> Iterable[MaterializedPartition]:
        """The existing ones of the given partitions."""


@dataclass(frozen=True, slots=True)
class StalePartition:
    """Reason why a task has to run.

    Args:
        seq: current sequence number of its partition; 0 if it does not exist.
    """

    reason: StaleReason
    seq: int = 0


@dataclass(frozen=True)
class StalenessReport:
    """Staleness of all partitions of a dataset.

    Args:
        stale: partitions whose tasks have to run. All other expected partitions are up to date.
        orphaned: existing partitions that no task writes any more.
    """

    stale: Mapping[str, StalePartition] = field(default_factory=dict)
    orphaned: tuple[str, ...] = ()


def check_staleness(
    dataset: str,
    expected_partitions: Collection[str],
    task_inputs: TaskInputs,
    partitions_by_dataset: PartitionsByDataset,
    *,
    late_data_is_stale: bool = True,
) -> StalenessReport:
    """Check all partitions of a dataset.

    Args:
        dataset: name of the dataset.
        expected_partitions: partitions that its tasks write, oldest first.
        task_inputs: returns the inputs of a task.
        partitions_by_dataset: the existing partitions.
        late_data_is_stale: whether a partition is stale if an input got data after it was read.
    """
    is_set = isinstance(expected_partitions, Mapping | set | frozenset)
    return recheck_staleness(
        StalenessReport(),
        dataset,
        expected_partitions if is_set else frozenset(expected_partitions),
        dict.fromkeys((*expected_partitions, *partitions_by_dataset.get(dataset, {}))),
        task_inputs,
        partitions_by_dataset,
        late_data_is_stale=late_data_is_stale,
    )


def recheck_staleness(
    previous: StalenessReport,
    dataset: str,
    expected_partitions: Collection[str],
    changed_partitions: Iterable[str],
    task_inputs: TaskInputs,
    partitions_by_dataset: PartitionsByDataset,
    *,
    late_data_is_stale: bool = True,
) -> StalenessReport:
    """Update a report after changes of some partitions.

    Args:
        previous: the previous report.
        dataset: name of the dataset.
        expected_partitions: all partitions that its tasks write now; only membership is tested.
        changed_partitions: partitions to check again, including former ones.
        task_inputs: returns the inputs of a task.
        partitions_by_dataset: the existing partitions.
        late_data_is_stale: as for ``check_staleness``.
    """
    checker = StalenessChecker(dataset, task_inputs, partitions_by_dataset, late_data_is_stale=late_data_is_stale)
    stale, orphaned = dict(previous.stale), dict.fromkeys(previous.orphaned)
    for partition in changed_partitions:
        stale.pop(partition, None)
        orphaned.pop(partition, None)
        if partition in expected_partitions:
            found = checker.check_partition(partition)
            if found is not None:
                stale[partition] = found
        elif partition in partitions_by_dataset.get(dataset, {}):
            orphaned[partition] = None
    return StalenessReport(stale, tuple(orphaned))


class StalenessChecker:
    """Checks single partitions of a dataset."""

    def __init__(
        self,
        dataset: str,
        task_inputs: TaskInputs,
        partitions_by_dataset: PartitionsByDataset,
        *,
        late_data_is_stale: bool = True,
    ) -> None:
        self.dataset = dataset
        self.task_inputs = task_inputs
        self.partitions_by_dataset = partitions_by_dataset
        self.late_data_is_stale = late_data_is_stale
        self._newest_data_sequence = cache(lambda name: newest_data_sequence(partitions_by_dataset.get(name, {})))
        """Dataset or channel -> upper bound on the newest sequence number that added data to it."""

    def check_partition(self, partition: str) -> StalePartition | None:
        """Reason why the partition's task has to run; None if the partition is up to date."""
        state = self.partitions_by_dataset.get(self.dataset, {}).get(partition)
        if state is None:
            return StalePartition("missing")
        return (
            StalePartition("late data", state.seq)
            if self.late_data_is_stale and self._has_late_data(partition, state)
            else None
        )

    def _has_late_data(self, partition: str, state: MaterializedPartition) -> bool:
        """Whether an input of a partition got data after it was read."""
        if not any(
            self._newest_data_sequence(read) > read_version for read, read_version in state.read_versions.items()
        ):
            return False  # no input changed in any partition
        for read, partitions in self.task_inputs(self.dataset, partition):
            seen = state.read_versions.get(read)
            if seen is not None and any(
                m.has_data_after(seen) for m in find_existing(self.partitions_by_dataset.get(read, {}), partitions)
            ):
                return True
        return False


def find_existing(
    partitions_by_name: Mapping[str, MaterializedPartition], partitions: Collection[str]
) -> Iterable[MaterializedPartition]:
    """The existing ones of the given partitions."""
    return (
        partitions_by_name.find(partitions)
        if isinstance(partitions_by_name, PartitionLookup)
        else (partitions_by_name[p] for p in partitions if p in partitions_by_name)
    )


def newest_data_sequence(partitions_by_name: Mapping[str, MaterializedPartition]) -> int:
    """Upper bound on the newest sequence number that added data to any of the partitions; 0 without partitions."""
    if isinstance(partitions_by_name, PartitionLookup) and partitions_by_name.head is not None:
        return partitions_by_name.head
    return max((m.last_data_seq for m in partitions_by_name.values()), default=0)


# freshness limits


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
