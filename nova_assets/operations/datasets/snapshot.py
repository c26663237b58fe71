"""How the datasets of a project stand, look by look.

The first look of a process judges every task. Later ones ask the catalog for the heads of all channels, and judge
again only what changes of these concern: the partitions that were given something, and the tasks that read one of them.
All of that can be forgotten at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from graphlib import CycleError, TopologicalSorter

from nova_assets.execution.runtime import Runtime
from nova_assets.model.catalog import Catalog
from nova_assets.model.partition_state import MaterializedPartition
from nova_assets.plan.staleness import PartitionLookup, StalenessReport, TaskInputs, check_staleness, recheck_staleness
from nova_assets.sql.datasets.datasets import dataset_queries_by_name
from nova_assets.sql.datasets.required_reads import ExpectedPartitions
from nova_assets.sql.datasets.task import DatasetQuery

CALENDAR_STEP = timedelta(minutes=15)
"""Days and hours begin, in every zone, at multiples of it: in between no task comes or goes."""

MAX_REJUDGED_SHARE = 0.5
"""Where more of a dataset's tasks are concerned, all are judged."""

MAX_SINGLE_LOOKUPS = 300
"""Where more of a channel's partitions are asked for, all are."""

MAX_CACHED_CHANNELS = 256
"""Channels all of whose partitions are kept in mind during a look, those that were asked for last. Datasets are looked
at each after those that it reads, so that what is forgotten is seldom asked for again."""


@dataclass(frozen=True)
class SchedulerSnapshot:
    """The tasks that there are, and the partitions that there are, at a moment.

    Args:
        tasks: dataset -> the partitions that its tasks write; each dataset after those that it reads.
        states_by_channel: dataset or channel -> its partitions that are there.
        needs: what a task reads.
        verdicts_by_dataset: dataset -> which of its partitions are not as they should be.
    """

    now: datetime
    tasks: Mapping[str, Mapping[str, int]]
    states_by_channel: Mapping[str, Mapping[str, MaterializedPartition]]
    needs: TaskInputs
    verdicts_by_dataset: Mapping[str, StalenessReport]


@dataclass(frozen=True)
class _CachedVerdict:
    """What was found out of a dataset.

    Args:
        follows_late_data: whether it followed late data then.
        expected_partitions: the partitions that there should be, of itself and of what it reads.
        judged_heads: of these channels, the numbers up to which it is known.
    """

    verdict: StalenessReport
    follows_late_data: bool
    expected_partitions: Mapping[str, ExpectedPartitions]
    judged_heads: Mapping[str, int]


class StalenessTracker:
    """Looks at the datasets of a project, and remembers what it has seen."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.catalog = runtime.catalog
        self.judged_task_count = 0
        self._cached_verdicts: dict[str, _CachedVerdict] = {}
        self._last_heads: Mapping[str, int] = {}
        self._last_follows_late_data: Mapping[str, bool] = {}
        self._last_tasks: Mapping[str, Mapping[str, int]] | None = None  # the tasks that all were judged by
        self._tasks_in_slot: tuple[datetime, Mapping[str, Mapping[str, int]]] | None = None

    @cached_property
    def queries(self) -> Mapping[str, DatasetQuery]:
        """The datasets of the project, each after those that it reads."""
        found = dataset_queries_by_name(self.runtime.project)
        return {name: found[name] for name in _topological_order(found)}

    @cached_property
    def _judging_order(self) -> Sequence[str]:
        """All datasets, each after those that it reads, and soon after: what is known of these is still in mind."""
        found: dict[str, None] = {}
        opened: set[str] = set()
        waiting = list(self.queries)
        while waiting:  # the last ones first, each of which waits for those that it reads
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
        """Channel -> the datasets that it is of, or that read it."""
        found: dict[str, dict[str, None]] = {}
        for name, query in self.queries.items():
            for channel in (name, *query.reads):
                found.setdefault(channel, {})[name] = None
        return {channel: tuple(names) for channel, names in found.items()}

    def current_snapshot(self) -> SchedulerSnapshot:
        """The tasks and the partitions that there are now, without a verdict on any."""
        now, made = self.catalog.now(), _PartitionStatesByChannel(self.catalog, {})
        return SchedulerSnapshot(now, self._list_tasks(now), made, self._needs_lookup(now, made), {})

    def judge_datasets(self, follows_late_data: Mapping[str, bool]) -> SchedulerSnapshot:
        """How the datasets stand now.

        Args:
            follows_late_data: dataset -> whether data that comes to an input after it was read makes what was made of
                it stale.
        """
        heads = self.catalog.heads()  # before anything else: what comes later is seen the next time
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
        """The partitions of a dataset that can be otherwise than they were known to be."""
        graph, found = self.queries[name].graph, set[str]()
        for channel, partitions in expected_partitions.items():
            since, before = cached.judged_heads[channel], cached.expected_partitions[channel]
            changed = (
                set() if heads[channel] == since else set(states_by_channel.partitions_updated_since(channel, since))
            )
            if before is not partitions:
                changed |= partitions.position_by_name.keys() ^ before.position_by_name.keys()
                found |= cached.verdict.stale.keys()  # what is not asked for any more is no reason any more
            if channel == name:
                found |= changed
            elif changed:
                found |= set(
                    graph.partitions_reading(name, channel, changed, now, states_by_channel.existing_partitions)
                )
        return found


class _LazyPartitionStates(PartitionLookup):
    """The partitions of a channel that are there: some, or all, asked for when they are wanted."""

    def __init__(self, catalog: Catalog, name: str, head: int | None, on_loaded: Callable[[str], None]) -> None:
        self._catalog = catalog
        self._name = name
        self._on_loaded = on_loaded
        self._looked_up_states: dict[str, MaterializedPartition | None] = {}
        self._all_states: Mapping[str, MaterializedPartition] | None = None
        super().__init__(head)

    def load_all(self) -> Mapping[str, MaterializedPartition]:
        """All of them."""
        found = self._all_states
        if found is None:
            found = self._all_states = self._catalog.materialized_partitions(self._name)
        self._on_loaded(self._name)
        return found

    def forget_all(self) -> None:
        self._all_states = None

    def find(self, partitions: Collection[str]) -> Iterable[MaterializedPartition]:
        """Those of some that are there."""
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
    """What there is, channel by channel, as it was at one look."""

    def __init__(self, catalog: Catalog, heads: Mapping[str, int]) -> None:
        self._catalog = catalog
        self._heads = heads
        self._states_by_channel: dict[str, _LazyPartitionStates] = {}
        self._fully_loaded_channels: dict[str, None] = {}  # last the one that was asked for last
        self._updated_since_cache: dict[tuple[str, int], list[str]] = {}

    def existing_partitions(self, channel: str) -> list[str]:
        return list(self[channel])

    def partitions_updated_since(self, channel: str, after_version: int) -> list[str]:
        """The partitions that were given something after a number, or dropped."""
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
        """Between two datasets: what was asked for longest ago."""
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
    """All datasets, each after those that it reads, of whichever folder these are."""
    reads = {name: [r for r in q.reads if r in queries] for name, q in queries.items()}
    try:
        return list(TopologicalSorter(reads).static_order())
    except CycleError:  # folders that read each other in a circle: each waits for the others
        return list(reads)
