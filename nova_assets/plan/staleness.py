"""Which partitions of datasets are not as they should be, and why (BigDataFlow, part 2). Pure.

What was judged once stays so until something of it changes: another number on its own channel or on one that it reads,
or other partitions that there should be. Then only what that concerns is judged again.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from nova_assets.model.partition_state import MaterializedPartition

StaleReason = Literal["missing", "dirty", "late data"]

TaskInputs: TypeAlias = Callable[[str, str], Sequence[tuple[str, Collection[str]]]]
"""(dataset, partition) -> what its task reads: (dataset or channel, partitions)."""

PartitionsByDataset: TypeAlias = Mapping[str, Mapping[str, MaterializedPartition]]
"""Dataset or channel -> its partitions that are there."""


class PartitionLookup(Mapping[str, MaterializedPartition]):
    """The partitions of a channel that are there, to be asked for some of them at once.

    Args:
        head: the number at which one of them was given something last, at most; None where that is not known.
    """

    def __init__(self, head: int | None) -> None:
        self.head = head

    @abstractmethod
    def find(self, partitions: Collection[str]) -> Iterable[MaterializedPartition]:
        """Those of some that are there."""


@dataclass(frozen=True, slots=True)
class StalePartition:
    """Why a task has to run.

    Args:
        seq: the number at which its partition stands; 0 where it is not there.
    """

    reason: StaleReason
    seq: int = 0


@dataclass(frozen=True)
class StalenessReport:
    """How the partitions of a dataset were found to be.

    Args:
        stale: those whose tasks have to run. All other tasks' partitions are as they should be.
        orphaned: those that are there, and that no task writes any more.
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
    """How all partitions of a dataset are.

    Args:
        expected_partitions: the partitions that its tasks write, oldest first.
        late_data_is_stale: whether data that came to an input after it was read makes what was made of it stale.
    """
    existing = partitions_by_dataset.get(dataset, {})
    checker = StalenessChecker(dataset, task_inputs, partitions_by_dataset, late_data_is_stale=late_data_is_stale)
    stale = {p: found for p in expected_partitions if (found := checker.check_partition(p)) is not None}
    expected_set = (
        expected_partitions
        if isinstance(expected_partitions, Mapping | set | frozenset)
        else frozenset(expected_partitions)
    )
    return StalenessReport(stale, tuple(p for p in existing if p not in expected_set))


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
    """The same, where only some partitions can be otherwise than before.

    Args:
        previous: what was found then.
        expected_partitions: all that there are now; asked for single ones only.
        changed_partitions: of the tasks and partitions that there are or were.
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
    """Judges single partitions of a dataset."""

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
        self._newest_by_name: dict[str, int] = {}

    def check_partition(self, partition: str) -> StalePartition | None:
        """Why its task has to run; None where it is as it should be."""
        state = self.partitions_by_dataset.get(self.dataset, {}).get(partition)
        if state is None:
            return StalePartition("missing")
        return (
            StalePartition("late data", state.seq)
            if self.late_data_is_stale and self._has_late_data(partition, state)
            else None
        )

    def _has_late_data(self, partition: str, state: MaterializedPartition) -> bool:
        """Whether something that it was made of was given something since."""
        if not any(self._newest_data(read) > read_version for read, read_version in state.read_versions.items()):
            return False  # whatever of it was read
        for read, partitions in self.task_inputs(self.dataset, partition):
            seen = state.read_versions.get(read)
            if seen is not None and any(
                m.has_data_after(seen) for m in find_existing(self.partitions_by_dataset.get(read, {}), partitions)
            ):
                return True
        return False

    def _newest_data(self, name: str) -> int:
        """The last number at which something of a dataset or channel was given something, at most."""
        if name not in self._newest_by_name:
            self._newest_by_name[name] = newest_data_sequence(self.partitions_by_dataset.get(name, {}))
        return self._newest_by_name[name]


def find_existing(
    partitions_by_name: Mapping[str, MaterializedPartition], partitions: Collection[str]
) -> Iterable[MaterializedPartition]:
    """Of some partitions those that are there."""
    return (
        partitions_by_name.find(partitions)
        if isinstance(partitions_by_name, PartitionLookup)
        else (partitions_by_name[p] for p in partitions if p in partitions_by_name)
    )


def newest_data_sequence(partitions_by_name: Mapping[str, MaterializedPartition]) -> int:
    """The last number at which one of some partitions was given something, at most."""
    if isinstance(partitions_by_name, PartitionLookup) and partitions_by_name.head is not None:
        return partitions_by_name.head
    return max((m.last_data_seq for m in partitions_by_name.values()), default=0)
