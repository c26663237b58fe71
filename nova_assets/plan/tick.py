"""Scheduler tick: compares the expected tasks with the existing partitions (BigDataFlow, part 2).

Pure and without state of its own. A task runs if its partition is missing, marked dirty, or older than its inputs, once
all inputs exist and are up to date. A partition that no task writes any more is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache

from nova_assets.model.scheduler_state import MaterializedPartition, RunningTask, TaskFailures
from nova_assets.plan.due import next_attempt_time
from nova_assets.plan.staleness import FreshnessLimits, StalenessReport, StaleReason, TaskInputs, UnreadSince

_MAX_WAITING_LISTED = 3
"""Maximum number of waiting tasks that the summary of a tick lists."""


@dataclass(frozen=True)
class SchedulerState:
    """State on which a tick is based, from the catalog and from definitions.

    Args:
        now: current time.
        existing_partitions: dataset or channel -> its existing partitions.
        is_complete: (channel, partition) of a channel that no task writes -> whether all its data has arrived.
        dirty_priorities: dataset -> dirty partition -> priority. Higher priorities run first. Missing and stale
            partitions have priority 0.
        running_tasks: (dataset, partition) -> its running execution.
        failures_by_task: failures of tasks whose last run failed.
        freshness: how long the changes of a dataset's inputs may wait.
        unread_since: returns since when the oldest unread data of a task has waited.
        is_frozen: (dataset, partition) -> whether the partition is never made again for changes of its inputs.
        incremental_datasets: datasets that are maintained from changes. They take data that arrives later as a change,
            so they do not wait until a channel is complete.
        paused_datasets: dataset that is paused or removed -> why.
    """

    now: datetime
    existing_partitions: Mapping[str, Mapping[str, MaterializedPartition]]
    is_complete: Callable[[str, str], bool] = lambda channel, partition: True
    dirty_priorities: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    running_tasks: Mapping[tuple[str, str], RunningTask] = field(default_factory=dict)
    failures_by_task: Mapping[tuple[str, str], TaskFailures] = field(default_factory=dict)
    incremental_datasets: Collection[str] = ()
    freshness: FreshnessLimits = field(default_factory=FreshnessLimits)
    unread_since: UnreadSince = lambda dataset, partition, names: None
    is_frozen: Callable[[str, str], bool] = lambda dataset, partition: False
    paused_datasets: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Policy:
    """Limits for one tick.

    Args:
        at_once: maximum number of concurrent tasks, including running ones.
        batch: maximum number of neighbouring partitions of a dataset in one run.
        attempts: number of attempts before a person has to intervene.
        backoff: seconds before the second attempt; doubles for each further attempt, up to one hour.
        late: dataset -> whether its partitions become stale if an input gets data after it was read.
        drops: maximum share of a dataset's partitions that one tick drops automatically.
        few: number of partitions that may always be dropped, whatever their share.
    """

    at_once: int = 8
    batch: int = 8
    attempts: int = 3
    backoff: float = 30.0
    late: Mapping[str, bool] = field(default_factory=dict)
    drops: float = 0.25
    few: int = 10


@dataclass(frozen=True, slots=True)
class Batch:
    """Partitions of a dataset that one run computes in sequence, with the reasons.

    Args:
        previous_seqs: their previous sequence numbers; 0 for missing partitions.
    """

    dataset: str
    partitions: tuple[str, ...]
    why: tuple[StaleReason, ...]
    previous_seqs: tuple[int, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class WaitingTask:
    """A task that has to run but must wait."""

    dataset: str
    partition: str
    why: StaleReason
    waits_for: str


@dataclass(frozen=True)
class Tick:
    """Decisions of one tick.

    Args:
        run: batches, in the order in which to request them.
        waits: waiting tasks, with the reasons.
        drop: dataset -> partitions that no task writes any more.
        held: dataset -> such partitions that are too many to drop without confirmation.
    """

    run: tuple[Batch, ...] = ()
    waits: tuple[WaitingTask, ...] = ()
    drop: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    held: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def decide_from_staleness(
    partitions_by_dataset: Mapping[str, Collection[str]],
    staleness_by_dataset: Mapping[str, StalenessReport],
    task_inputs: TaskInputs,
    state: SchedulerState,
    policy: Policy,
) -> Tick:
    """Decide a tick.

    Args:
        partitions_by_dataset: dataset -> partitions that its tasks write, oldest first; each dataset after its inputs.
        staleness_by_dataset: dataset -> its stale and missing partitions.
        task_inputs: returns the inputs of a task.
        state: state of the scheduler.
        policy: the limits.
    """
    return _TickPlanner(partitions_by_dataset, staleness_by_dataset, task_inputs, state, policy).decide()


class _TickPlanner:
    def __init__(
        self,
        partitions_by_dataset: Mapping[str, Collection[str]],
        staleness_by_dataset: Mapping[str, StalenessReport],
        task_inputs: TaskInputs,
        state: SchedulerState,
        policy: Policy,
    ) -> None:
        self.partitions_by_dataset = partitions_by_dataset
        self.staleness_by_dataset = staleness_by_dataset
        self.task_inputs = task_inputs
        self.state = state
        self.policy = policy
        self.inputs_in_use = self._inputs_of_running_tasks()
        self._reason_to_hold = cache(self._find_reason_to_hold)

    def decide(self) -> Tick:
        ready: list[tuple[str, str, StaleReason]] = []
        waiting: list[WaitingTask] = []
        for dataset, partition in self._tasks_to_run():
            reason = self.reason_to_run(dataset, partition)
            if reason is None:
                continue
            running = self.state.running_tasks.get((dataset, partition))
            if running is not None:
                waiting.append(WaitingTask(dataset, partition, reason, str(running)))
                continue
            obstacle = self._reason_to_hold(dataset, partition) or self._blocking_reason(dataset, partition)
            if obstacle is None:
                ready.append((dataset, partition, reason))
            else:
                waiting.append(WaitingTask(dataset, partition, reason, obstacle))
        ready.sort(key=lambda task: -self._priority(*task))  # a stable sort keeps the order of inputs
        free_slots = max(0, self.policy.at_once - len(self.state.running_tasks))
        run = tuple(self._group_into_batches(ready[:free_slots]))
        waiting += [WaitingTask(d, p, why, "tasks that come first") for d, p, why in ready[free_slots:]]
        drop, held = self._partitions_to_drop()
        return Tick(run, tuple(waiting), drop, held)

    def _tasks_to_run(self) -> Iterator[tuple[str, str]]:
        """All tasks that have to run, in order."""
        for dataset, partitions in self.partitions_by_dataset.items():
            stale, dirty = self.staleness_by_dataset[dataset].stale, self.state.dirty_priorities.get(dataset, {})
            if not stale and not dirty:
                continue
            for partition in partitions:
                if partition in stale or partition in dirty:
                    yield dataset, partition

    def _priority(self, dataset: str, partition: str, reason: StaleReason) -> int:
        """Priority of a task.

        Missing and stale partitions have at least normal priority. A mark can raise it, but not lower it.
        """
        requested_priority = self.state.dirty_priorities.get(dataset, {}).get(partition, 0)
        return requested_priority if reason == "dirty" else max(0, requested_priority)

    def reason_to_run(self, dataset: str, partition: str) -> StaleReason | None:
        """Reason why a task has to run; None if its partition is up to date."""
        stale = self.staleness_by_dataset[dataset].stale.get(partition)
        if stale is not None and stale.reason == "missing":
            return "missing"
        if partition in self.state.dirty_priorities.get(dataset, ()):
            return "dirty"
        return None if stale is None else stale.reason

    def _find_reason_to_hold(self, dataset: str, partition: str) -> str | None:
        """What a stale task waits for although it could run: its freshness limit, or nothing if it is frozen."""
        if self.reason_to_run(dataset, partition) != "late data":
            return None
        if self.state.is_frozen(dataset, partition):
            return "another FROZEN WHERE"
        return self.state.freshness.reason_to_wait(dataset, partition, self.state.now, self.state.unread_since)

    def _blocking_reason(self, dataset: str, partition: str) -> str | None:
        """Reason why a task has to wait; None if it can run."""
        if dataset in self.state.paused_datasets:
            return self.state.paused_datasets[dataset]
        failure = self.state.failures_by_task.get((dataset, partition))
        if failure is not None:
            attempts, backoff = self.policy.attempts, self.policy.backoff
            retry_time = next_attempt_time(failure.consecutive, failure.at, attempts=attempts, backoff=backoff)
            if retry_time is None:
                return f"a person, after {failure.consecutive} failures"
            if retry_time > self.state.now:
                return f"its retry at {retry_time:%Y-%m-%d %H:%M:%S}"
        if (dataset, partition) in self.inputs_in_use:
            return "a running task that reads its current data"
        for read, partitions in self.task_inputs(dataset, partition):
            if dataset in self.state.incremental_datasets and read not in self.partitions_by_dataset:
                if not partitions and not self._has_read(dataset, partition, read):
                    return read
                continue
            for p in partitions:
                if not self._is_up_to_date(read, p):
                    return f"{read}/{p}" if p else read
        return None

    def _has_read(self, dataset: str, partition: str, channel: str) -> bool:
        state = self.state.existing_partitions.get(dataset, {}).get(partition)
        return state is not None and channel in state.read_versions

    def _is_up_to_date(self, name: str, partition: str) -> bool:
        """Whether an input partition exists and will not be recomputed first. Readers do not wait for a task that its
        freshness limit holds back, or for a partition that is frozen.
        """
        if name not in self.partitions_by_dataset:
            return self.state.is_complete(name, partition)
        if (name, partition) in self.state.running_tasks:
            return False
        if partition in self.partitions_by_dataset[name]:
            return self.reason_to_run(name, partition) is None or self._reason_to_hold(name, partition) is not None
        return partition in self.state.existing_partitions.get(name, {})

    def _inputs_of_running_tasks(self) -> frozenset[tuple[str, str]]:
        """Input partitions of running tasks, which must not be written meanwhile."""
        return frozenset(
            (read, p)
            for dataset, partition in self.state.running_tasks
            if partition in self.partitions_by_dataset.get(dataset, ())
            for read, partitions in self.task_inputs(dataset, partition)
            for p in partitions
        )

    def _group_into_batches(self, ready: Sequence[tuple[str, str, StaleReason]]) -> Iterator[Batch]:
        """Batches of ready tasks with the same dataset and priority."""
        tasks_by_priority: dict[tuple[str, int], list[tuple[str, StaleReason]]] = {}
        for dataset, partition, why in ready:
            tasks_by_priority.setdefault((dataset, self._priority(dataset, partition, why)), []).append(
                (partition, why)
            )
        for (dataset, _), some in tasks_by_priority.items():
            for n in range(0, len(some), self.policy.batch):
                part = some[n : n + self.policy.batch]
                previous_seqs = tuple(self._current_seq(dataset, p) for p, _ in part)
                yield Batch(dataset, tuple(p for p, _ in part), tuple(w for _, w in part), previous_seqs)

    def _current_seq(self, dataset: str, partition: str) -> int:
        stale = self.staleness_by_dataset[dataset].stale.get(partition)
        if stale is not None:
            return stale.seq
        existing = self.state.existing_partitions.get(dataset, {}).get(partition)
        return 0 if existing is None else existing.seq

    def _partitions_to_drop(self) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
        drop: dict[str, tuple[str, ...]] = {}
        held: dict[str, tuple[str, ...]] = {}
        busy = {*self.inputs_in_use, *self.state.running_tasks}
        for dataset in (d for d in self.partitions_by_dataset if d not in self.state.paused_datasets):
            orphaned = tuple(p for p in self.staleness_by_dataset[dataset].orphaned if (dataset, p) not in busy)
            if orphaned:
                existing_count = len(self.state.existing_partitions.get(dataset, {}))
                is_too_many = len(orphaned) > max(self.policy.few, self.policy.drops * existing_count)
                (held if is_too_many else drop)[dataset] = orphaned
        return drop, held


def describe_tick(tick: Tick) -> str:
    """One-line summary of a planned tick: partitions to compute, to wait for and to drop."""
    parts = []
    if tick.run:
        batch_texts = ", ".join(f"{len(b.partitions)} of {b.dataset}" for b in tick.run)
        parts.append(f"to compute: {batch_texts}")
    if tick.waits:
        listed_texts = ", ".join(
            f"{w.dataset} {w.partition}".rstrip() + f" for {w.waits_for}" for w in tick.waits[:_MAX_WAITING_LISTED]
        )
        parts.append(f"{len(tick.waits)} wait: {listed_texts}{', …' if len(tick.waits) > _MAX_WAITING_LISTED else ''}")
    if tick.drop:
        parts.append(f"to drop: {', '.join(f'{len(p)} of {d}' for d, p in tick.drop.items())}")
    for dataset, partitions in tick.held.items():
        parts.append(
            f"{len(partitions)} of {dataset} have no task any more, too many to drop automatically: use nova drop"
        )
    return "; ".join(parts) or "no partition is missing, dirty or stale"
