"""Staleness of a project's datasets, tracked incrementally.

The first call in a process checks every task. Later calls read the heads of all channels, and check only the tasks that
the changes can concern: the changed partitions, and the tasks that read one of them. All cached state can be dropped at
any time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from graphlib import CycleError, TopologicalSorter

from nova_assets.execution.runtime import Runtime
from nova_assets.execution.shared_rows import FewRowsAtHeads
from nova_assets.model.partition_rule import InputState
from nova_assets.model.partitions import WHOLE
from nova_assets.model.scheduler_state import MaterializedPartition
from nova_assets.plan.staleness import StalenessReport, TaskInputs, check_staleness, recheck_staleness
from nova_assets.sql.datasets.dataset_bindings import dataset_queries_by_name
from nova_assets.sql.datasets.dataset_query import DatasetQuery
from nova_assets.sql.datasets.required_reads import ExpectedPartitions
from nova_assets.store.partition_states import PartitionStatesByChannel

CALENDAR_STEP = timedelta(minutes=15)
"""Granularity of the calendar. In every time zone, days and hours begin at multiples of it, so tasks appear or vanish
only then.
"""

MAX_RECHECKED_SHARE = 0.5
"""Share of changed tasks of a dataset above which all its tasks are checked again."""


@dataclass(frozen=True)
class SchedulerSnapshot:
    """Tasks, partitions and staleness of all datasets at one moment.

    Args:
        partition_ordinals: dataset -> partition that a task writes -> its index among the expected partitions.
        states_by_channel: dataset or channel -> state of its existing partitions.
        task_inputs: lookup of the inputs of a task.
        staleness_by_dataset: dataset -> its stale and missing partitions.
    """

    now: datetime
    partition_ordinals: Mapping[str, Mapping[str, int]]
    states_by_channel: Mapping[str, Mapping[str, MaterializedPartition]]
    task_inputs: TaskInputs
    staleness_by_dataset: Mapping[str, StalenessReport]


@dataclass(frozen=True)
class _CachedStaleness:
    """Cached staleness of one dataset.

    Args:
        follows_late_data: whether late data made partitions stale in that check.
        expected_partitions: expected partitions of the dataset and of its inputs.
        checked_heads: channel -> head up to which the check is valid.
    """

    staleness: StalenessReport
    follows_late_data: bool
    expected_partitions: Mapping[str, ExpectedPartitions]
    checked_heads: Mapping[str, int]


class StalenessTracker:
    """Checks the staleness of a project's datasets, with a cache of earlier checks."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.catalog = runtime.catalog
        self.checked_task_count = 0
        self._cached_staleness: dict[str, _CachedStaleness] = {}
        self._last_heads: Mapping[str, int] = {}
        self._last_follows_late_data: Mapping[str, bool] = {}
        self._last_partition_ordinals: Mapping[str, Mapping[str, int]] | None = None  # the tasks of the last check
        self._ordinals_in_slot: tuple[datetime, Mapping[str, Mapping[str, int]]] | None = None

    @cached_property
    def queries(self) -> Mapping[str, DatasetQuery]:
        """Datasets of the project in topological order."""
        query_by_name = dataset_queries_by_name(self.runtime.project)
        return {name: query_by_name[name] for name in _topological_order(query_by_name)}

    @cached_property
    def maintained_datasets(self) -> frozenset[str]:
        """Datasets that are maintained from the changes of their inputs."""
        return frozenset(name for name, query in self.queries.items() if query.is_maintained)

    @cached_property
    def datasets_with_cursors(self) -> frozenset[str]:
        """Maintained datasets without partitions. Their cursors tell what they have read of their inputs."""
        return frozenset(name for name, query in self.queries.items() if query.reads_all_partitions)

    def _partition_states(self, heads: Mapping[str, int]) -> PartitionStatesByChannel:
        return PartitionStatesByChannel(self.catalog, heads, self.maintained_datasets, self.datasets_with_cursors)

    @cached_property
    def _check_order(self) -> Sequence[str]:
        """All datasets in depth-first topological order: each soon after the datasets that it reads, whose states are
        still cached.
        """
        ordered: dict[str, None] = {}
        visited: set[str] = set()
        stack = list(self.queries)
        while stack:  # depth-first: a dataset stays on the stack until its inputs are done
            name = stack[-1]
            unvisited_inputs = [] if name in visited else [r for r in self.queries[name].reads if r in self.queries]
            unvisited_inputs = [r for r in unvisited_inputs if r not in visited]
            visited.add(name)
            if unvisited_inputs:
                stack += unvisited_inputs
            else:
                ordered.setdefault(stack.pop())
        return tuple(ordered)

    @cached_property
    def _datasets_affected_by_channel(self) -> Mapping[str, tuple[str, ...]]:
        """Channel -> the dataset that writes it and the datasets that read it."""
        datasets: dict[str, dict[str, None]] = {}
        for name, query in self.queries.items():
            for channel in (name, *query.reads):
                datasets.setdefault(channel, {})[name] = None
        return {channel: tuple(names) for channel, names in datasets.items()}

    def snapshot_without_staleness(self) -> SchedulerSnapshot:
        """Current tasks and partitions, without a staleness check."""
        now, states_by_channel = self.catalog.now(), self._partition_states({})
        return SchedulerSnapshot(
            now,
            self._expected_partition_ordinals(now),
            states_by_channel,
            self._make_task_inputs(now, states_by_channel, self.catalog.scheduler.heads()),
            {},
        )

    def check_all_datasets(self, follows_late_data: Mapping[str, bool]) -> SchedulerSnapshot:
        """Check the staleness of all datasets.

        Args:
            follows_late_data: dataset -> whether late input data makes its results stale.
        """
        heads = self.catalog.scheduler.heads()  # read first, so that the next call sees any later commit
        now = self.catalog.now()
        partition_ordinals, states_by_channel = self._expected_partition_ordinals(now), self._partition_states(heads)
        task_inputs = self._make_task_inputs(now, states_by_channel, heads)
        changed_channels = [c for c, head in heads.items() if self._last_heads.get(c, 0) != head]
        checks_everything = (
            self._last_partition_ordinals is not partition_ordinals
            or follows_late_data != self._last_follows_late_data
            or not self._cached_staleness
        )
        datasets_to_check = (
            self._check_order
            if checks_everything
            else dict.fromkeys(d for c in changed_channels for d in self._datasets_affected_by_channel.get(c, ()))
            | dict.fromkeys(d for d in self.maintained_datasets if self._cached_staleness[d].staleness.stale)
        )
        for name in datasets_to_check:
            self._cached_staleness[name] = self._check_dataset(
                name, now, partition_ordinals, states_by_channel, task_inputs, follows_late_data.get(name, True), heads
            )
            states_by_channel.evict_least_recent()
        self._last_partition_ordinals, self._last_heads, self._last_follows_late_data = (
            partition_ordinals,
            heads,
            dict(follows_late_data),
        )
        return SchedulerSnapshot(
            now,
            partition_ordinals,
            states_by_channel,
            task_inputs,
            {n: self._cached_staleness[n].staleness for n in self.queries},
        )

    def _expected_partition_ordinals(self, now: datetime) -> Mapping[str, Mapping[str, int]]:
        slot = datetime.min + (now.replace(tzinfo=None) - datetime.min) // CALENDAR_STEP * CALENDAR_STEP
        if self._ordinals_in_slot is None or self._ordinals_in_slot[0] != slot:
            self._ordinals_in_slot = (
                slot,
                {n: q.graph.expected_partitions(n, now).ordinal_by_name for n, q in self.queries.items()},
            )
        return self._ordinals_in_slot[1]

    def _make_task_inputs(
        self, now: datetime, states_by_channel: PartitionStatesByChannel, heads: Mapping[str, int]
    ) -> TaskInputs:
        inputs = InputState(states_by_channel.existing_partitions, FewRowsAtHeads(self.runtime.few_rows, lambda: heads))

        def find_task_inputs(dataset: str, partition: str) -> Sequence[tuple[str, Sequence[str]]]:
            found = self.queries[dataset].required_reads(partition, now, inputs)
            if dataset not in self.datasets_with_cursors:
                return tuple((n.dataset, n.partitions) for n in found)
            existing = {n.dataset: states_by_channel.existing_partitions(n.dataset) for n in found}
            return tuple((n.dataset, n.partitions if n.dataset in self.queries else existing[n.dataset]) for n in found)

        return find_task_inputs

    def _check_dataset(
        self,
        name: str,
        now: datetime,
        partition_ordinals: Mapping[str, Mapping[str, int]],
        states_by_channel: PartitionStatesByChannel,
        task_inputs: TaskInputs,
        follows_late_data: bool,
        heads: Mapping[str, int],
    ) -> _CachedStaleness:
        graph, reads = self.queries[name].graph, self.queries[name].reads
        inputs = InputState(states_by_channel.existing_partitions)
        expected_partitions = {n: graph.expected_partitions(n, now, inputs) for n in (name, *reads)}
        checked_heads = {n: heads.get(n, 0) for n in expected_partitions}
        cached = self._cached_staleness.get(name)
        changed_partitions = (
            None
            if cached is None or cached.follows_late_data != follows_late_data
            else self._find_partitions_to_recheck(
                name, cached, expected_partitions, checked_heads, now, states_by_channel
            )
        )
        if (
            cached is not None
            and changed_partitions is not None
            and len(changed_partitions) <= MAX_RECHECKED_SHARE * len(partition_ordinals[name])
        ):
            self.checked_task_count += len(changed_partitions)
            states_by_channel[name].find(changed_partitions)
            staleness = recheck_staleness(
                cached.staleness,
                name,
                partition_ordinals[name],
                changed_partitions,
                task_inputs,
                states_by_channel,
                late_data_is_stale=follows_late_data,
            )
        else:
            self.checked_task_count += len(partition_ordinals[name])
            for channel in expected_partitions:
                states_by_channel[channel].load_all()
            staleness = check_staleness(
                name, partition_ordinals[name], task_inputs, states_by_channel, late_data_is_stale=follows_late_data
            )
        return _CachedStaleness(staleness, follows_late_data, expected_partitions, checked_heads)

    def _find_partitions_to_recheck(
        self,
        name: str,
        cached: _CachedStaleness,
        expected_partitions: Mapping[str, ExpectedPartitions],
        heads: Mapping[str, int],
        now: datetime,
        states_by_channel: PartitionStatesByChannel,
    ) -> set[str]:
        """Partitions of a dataset whose staleness may have changed since the cached check."""
        if name in self.datasets_with_cursors:  # it reads all partitions, and a run may have moved its cursors only
            return {WHOLE}
        graph, partitions_to_recheck = self.queries[name].graph, set[str]()
        inputs = InputState(states_by_channel.existing_partitions)
        if name in self.maintained_datasets:  # an execution may have read its inputs, and changed nothing
            partitions_to_recheck |= cached.staleness.stale.keys()
        for channel, partitions in expected_partitions.items():
            cached_head, cached_partitions = cached.checked_heads[channel], cached.expected_partitions[channel]
            changed = (
                set()
                if heads[channel] == cached_head
                else set(states_by_channel.partitions_updated_since(channel, cached_head))
            )
            if cached_partitions is not partitions:
                changed |= partitions.ordinal_by_name.keys() ^ cached_partitions.ordinal_by_name.keys()
                partitions_to_recheck |= (
                    cached.staleness.stale.keys()
                )  # unexpected partitions no longer make others stale
            if channel == name:
                partitions_to_recheck |= changed
            elif changed:
                partitions_to_recheck |= set(graph.partitions_reading(name, channel, changed, now, inputs))
        return partitions_to_recheck


def _topological_order(queries: Mapping[str, DatasetQuery]) -> list[str]:
    """All datasets in topological order, across folders."""
    reads = {name: [r for r in q.reads if r in queries] for name, q in queries.items()}
    try:
        return list(TopologicalSorter(reads).static_order())
    except CycleError:  # folders that read each other in a cycle: their tasks wait for each other
        return list(reads)
