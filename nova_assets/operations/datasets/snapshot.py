"""Staleness of a project's datasets, tracked incrementally.

The first call in a process checks every task. Later calls read the heads of all channels, and check only the tasks that
the changes can concern: the changed partitions, and the tasks that read one of them. All cached state can be dropped at
any time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from graphlib import CycleError, TopologicalSorter

from nova_assets.execution.runtime import Runtime
from nova_assets.model.catalog import Catalog
from nova_assets.model.scheduler_state import MaterializedPartition
from nova_assets.plan.staleness import PartitionLookup, StalenessReport, TaskInputs, check_staleness, recheck_staleness
from nova_assets.sql.datasets.dataset_bindings import dataset_queries_by_name
from nova_assets.sql.datasets.dataset_query import DatasetQuery
from nova_assets.sql.datasets.required_reads import ExpectedPartitions

CALENDAR_STEP = timedelta(minutes=15)
"""Granularity of the calendar. In every time zone, days and hours begin at multiples of it, so tasks appear or vanish
only then.
"""

MAX_REJUDGED_SHARE = 0.5
"""Share of changed tasks of a dataset above which all its tasks are checked again."""

MAX_SINGLE_LOOKUPS = 300
"""Number of single partition lookups of a channel above which all its partitions are loaded."""

MAX_CACHED_CHANNELS = 256
"""Number of channels whose partitions are all cached during a check, most recently used.

A dataset is checked soon after the datasets that it reads, so evicted channels are seldom loaded again.
"""


@dataclass(frozen=True)
class SchedulerSnapshot:
    """Tasks, partitions and staleness of all datasets at one moment.

    Args:
        tasks: dataset -> partitions that its tasks write, in topological order.
        states_by_channel: dataset or channel -> state of its existing partitions.
        needs: lookup of the inputs of a task.
        verdicts_by_dataset: dataset -> its stale and missing partitions.
    """

    now: datetime
    tasks: Mapping[str, Mapping[str, int]]
    states_by_channel: Mapping[str, Mapping[str, MaterializedPartition]]
    needs: TaskInputs
    verdicts_by_dataset: Mapping[str, StalenessReport]


@dataclass(frozen=True)
class _CachedVerdict:
    """Cached staleness of one dataset.

    Args:
        follows_late_data: whether late data made partitions stale in that check.
        expected_partitions: expected partitions of the dataset and of its inputs.
        judged_heads: channel -> head up to which the check is valid.
    """

    verdict: StalenessReport
    follows_late_data: bool
    expected_partitions: Mapping[str, ExpectedPartitions]
    judged_heads: Mapping[str, int]


class StalenessTracker:
    """Checks the staleness of a project's datasets, with a cache of earlier checks."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.catalog = runtime.catalog
        self.judged_task_count = 0
        self._cached_verdicts: dict[str, _CachedVerdict] = {}
        self._last_heads: Mapping[str, int] = {}
        self._last_follows_late_data: Mapping[str, bool] = {}
        self._last_tasks: Mapping[str, Mapping[str, int]] | None = None  # the tasks of the last check
        self._tasks_in_slot: tuple[datetime, Mapping[str, Mapping[str, int]]] | None = None

    @cached_property
    def queries(self) -> Mapping[str, DatasetQuery]:
        """Datasets of the project in topological order."""
        found = dataset_queries_by_name(self.runtime.project)
        return {name: found[name] for name in _topological_order(found)}

    @cached_property
    def _judging_order(self) -> Sequence[str]:
        """All datasets in depth-first topological order: each soon after the datasets that it reads, whose states are
        still cached.
        """
        found: dict[str, None] = {}
        opened: set[str] = set()
        waiting = list(self.queries)
        while waiting:  # depth-first: a dataset stays on the stack until its inputs are done
            name = waiting[-1]
            new = [] if name in opened else [r for r in self.queries[name].reads if r in self.queries]
            new = [r for r in new if r not in opened]
            opened.add(name)
            if new:
                waiting += new
            else:
                found.setdefault(waiting.pop())
        return tuple(found)

    @cached_property
    def _datasets_by_channel(self) -> Mapping[str, tuple[str, ...]]:
        """Channel -> the dataset that writes it and the datasets that read it."""
        found: dict[str, dict[str, None]] = {}
        for name, query in self.queries.items():
            for channel in (name, *query.reads):
                found.setdefault(channel, {})[name] = None
        return {channel: tuple(names) for channel, names in found.items()}

    def current_snapshot(self) -> SchedulerSnapshot:
        """Current tasks and partitions, without a staleness check."""
        now, made = self.catalog.now(), _PartitionStatesByChannel(self.catalog, {})
        return SchedulerSnapshot(now, self._list_tasks(now), made, self._needs_lookup(now, made), {})

    def judge_datasets(self, follows_late_data: Mapping[str, bool]) -> SchedulerSnapshot:
        """Check the staleness of all datasets.

        Args:
            follows_late_data: dataset -> whether late input data makes its results stale.
        """
        heads = self.catalog.heads()  # read first, so that the next call sees any later commit
        now = self.catalog.now()
        tasks, states_by_channel = self._list_tasks(now), _PartitionStatesByChannel(self.catalog, heads)
        needs = self._needs_lookup(now, states_by_channel)
        changed_channels = [c for c, head in heads.items() if self._last_heads.get(c, 0) != head]
        everything = (
            self._last_tasks is not tasks
            or follows_late_data != self._last_follows_late_data
            or not self._cached_verdicts
        )
        datasets_to_judge = (
            self._judging_order
            if everything
            else dict.fromkeys(d for c in changed_channels for d in self._datasets_by_channel.get(c, ()))
        )
        for name in datasets_to_judge:
            self._cached_verdicts[name] = self._judge_dataset(
                name, now, tasks, states_by_channel, needs, follows_late_data.get(name, True), heads
            )
            states_by_channel.evict_least_recent()
        self._last_tasks, self._last_heads, self._last_follows_late_data = tasks, heads, dict(follows_late_data)
        return SchedulerSnapshot(
            now, tasks, states_by_channel, needs, {n: self._cached_verdicts[n].verdict for n in self.queries}
        )

    def _list_tasks(self, now: datetime) -> Mapping[str, Mapping[str, int]]:
        slot = datetime.min + (now.replace(tzinfo=None) - datetime.min) // CALENDAR_STEP * CALENDAR_STEP
        if self._tasks_in_slot is None or self._tasks_in_slot[0] != slot:
            self._tasks_in_slot = (
                slot,
                {n: q.graph.expected_partitions(n, now).position_by_name for n, q in self.queries.items()},
            )
        return self._tasks_in_slot[1]

    def _needs_lookup(self, now: datetime, states_by_channel: _PartitionStatesByChannel) -> TaskInputs:
        def needs(dataset: str, partition: str) -> Sequence[tuple[str, Sequence[str]]]:
            found = self.queries[dataset].required_reads(partition, now, states_by_channel.existing_partitions)
            return tuple((n.dataset, n.partitions) for n in found)

        return needs

    def _judge_dataset(
        self,
        name: str,
        now: datetime,
        tasks: Mapping[str, Mapping[str, int]],
        states_by_channel: _PartitionStatesByChannel,
        needs: TaskInputs,
        follows_late_data: bool,
        heads: Mapping[str, int],
    ) -> _CachedVerdict:
        graph, reads = self.queries[name].graph, self.queries[name].reads
        expected_partitions = {
            n: graph.expected_partitions(n, now, states_by_channel.existing_partitions) for n in (name, *reads)
        }
        at = {n: heads.get(n, 0) for n in expected_partitions}
        cached = self._cached_verdicts.get(name)
        changed_partitions = (
            None
            if cached is None or cached.follows_late_data != follows_late_data
            else self._partitions_to_rejudge(name, cached, expected_partitions, at, now, states_by_channel)
        )
        if (
            cached is not None
            and changed_partitions is not None
            and len(changed_partitions) <= MAX_REJUDGED_SHARE * len(tasks[name])
        ):
            self.judged_task_count += len(changed_partitions)
            states_by_channel[name].find(changed_partitions)
            verdict = recheck_staleness(
                cached.verdict,
                name,
                tasks[name],
                changed_partitions,
                needs,
                states_by_channel,
                late_data_is_stale=follows_late_data,
            )
        else:
            self.judged_task_count += len(tasks[name])
            for channel in expected_partitions:
                states_by_channel[channel].load_all()
            verdict = check_staleness(name, tasks[name], needs, states_by_channel, late_data_is_stale=follows_late_data)
        return _CachedVerdict(verdict, follows_late_data, expected_partitions, at)

    def _partitions_to_rejudge(
        self,
        name: str,
        cached: _CachedVerdict,
        expected_partitions: Mapping[str, ExpectedPartitions],
        heads: Mapping[str, int],
        now: datetime,
        states_by_channel: _PartitionStatesByChannel,
    ) -> set[str]:
        """Partitions of a dataset whose staleness may have changed since the cached check."""
        graph, found = self.queries[name].graph, set[str]()
        for channel, partitions in expected_partitions.items():
            since, before = cached.judged_heads[channel], cached.expected_partitions[channel]
            changed = (
                set() if heads[channel] == since else set(states_by_channel.partitions_updated_since(channel, since))
            )
            if before is not partitions:
                changed |= partitions.position_by_name.keys() ^ before.position_by_name.keys()
                found |= cached.verdict.stale.keys()  # a partition that is no longer expected is no reason any more
            if channel == name:
                found |= changed
            elif changed:
                found |= set(
                    graph.partitions_reading(name, channel, changed, now, states_by_channel.existing_partitions)
                )
        return found


class _LazyPartitionStates(PartitionLookup):
    """Existing partitions of a channel, loaded one by one or all at once on demand."""

    def __init__(self, catalog: Catalog, name: str, head: int | None, on_loaded: Callable[[str], None]) -> None:
        self._catalog = catalog
        self._name = name
        self._on_loaded = on_loaded
        self._looked_up_states: dict[str, MaterializedPartition | None] = {}
        self._all_states: Mapping[str, MaterializedPartition] | None = None
        super().__init__(head)

    def load_all(self) -> Mapping[str, MaterializedPartition]:
        """States of all partitions."""
        found = self._all_states
        if found is None:
            found = self._all_states = self._catalog.materialized_partitions(self._name)
        self._on_loaded(self._name)
        return found

    def forget_all(self) -> None:
        self._all_states = None

    def find(self, partitions: Collection[str]) -> Iterable[MaterializedPartition]:
        """States of the given partitions that exist."""
        known = self._all_states
        if known is not None:
            return [known[p] for p in partitions if p in known]
        new = [p for p in partitions if p not in self._looked_up_states]
        if len(self._looked_up_states) + len(new) > MAX_SINGLE_LOOKUPS:
            self.load_all()
            return self.find(partitions)
        if new:
            found = self._catalog.materialized_partitions(self._name, new)
            self._looked_up_states |= {p: found.get(p) for p in new}
        return [made for p in partitions if (made := self._looked_up_states[p]) is not None]

    def __getitem__(self, partition: str) -> MaterializedPartition:
        for found in self.find((partition,)):
            return found
        raise KeyError(partition)

    def __iter__(self) -> Iterator[str]:
        return iter(self.load_all())

    def __len__(self) -> int:
        return len(self.load_all())


class _PartitionStatesByChannel(Mapping[str, _LazyPartitionStates]):
    """Partition states by channel during one check."""

    def __init__(self, catalog: Catalog, heads: Mapping[str, int]) -> None:
        self._catalog = catalog
        self._heads = heads
        self._states_by_channel: dict[str, _LazyPartitionStates] = {}
        self._fully_loaded_channels: dict[str, None] = {}  # in order of last use
        self._updated_since_cache: dict[tuple[str, int], list[str]] = {}

    def existing_partitions(self, channel: str) -> list[str]:
        return list(self[channel])

    def partitions_updated_since(self, channel: str, after_version: int) -> list[str]:
        """Partitions that got data after a sequence number, or were dropped."""
        if (channel, after_version) not in self._updated_since_cache:
            self._updated_since_cache[channel, after_version] = self._catalog.partitions_updated_since(
                channel, after_version
            )
        return self._updated_since_cache[channel, after_version]

    def __getitem__(self, name: str) -> _LazyPartitionStates:
        if name not in self._states_by_channel:
            self._states_by_channel[name] = _LazyPartitionStates(
                self._catalog, name, self._heads.get(name), self._record_fully_loaded
            )
        return self._states_by_channel[name]

    def _record_fully_loaded(self, name: str) -> None:
        self._fully_loaded_channels.pop(name, None)
        self._fully_loaded_channels[name] = None

    def evict_least_recent(self) -> None:
        """Evict the least recently used channels. Called between two datasets."""
        for name in list(self._fully_loaded_channels)[: max(0, len(self._fully_loaded_channels) - MAX_CACHED_CHANNELS)]:
            del self._fully_loaded_channels[name]
            self._states_by_channel[name].forget_all()

    def __contains__(self, name: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(self._states_by_channel)

    def __len__(self) -> int:
        return len(self._states_by_channel)


def _topological_order(queries: Mapping[str, DatasetQuery]) -> list[str]:
    """All datasets in topological order, across folders."""
    reads = {name: [r for r in q.reads if r in queries] for name, q in queries.items()}
    try:
        return list(TopologicalSorter(reads).static_order())
    except CycleError:  # folders that read each other in a cycle: their tasks wait for each other
        return list(reads)
