"""Ticks of the dataset scheduler: read the state from the catalog, decide with ``plan/tick``, run the decided tasks.

The catalog holds the existing, marked, running and failing partitions. Everything else follows from definitions. So a
scheduler may be stopped at any moment, and any process may continue. The cache of earlier checks (``snapshot``) only
avoids repeated work.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING

from nova_assets.catalog.catalog import Catalog
from nova_assets.errors import DefinitionConflict, ExecutionInProgress
from nova_assets.execution.lease import is_owner_dead
from nova_assets.execution.runtime import Runtime
from nova_assets.masking import get_logger
from nova_assets.model.binding import Binding
from nova_assets.model.channel import Channel
from nova_assets.model.channel_state import PartitionState
from nova_assets.model.execution import Execution
from nova_assets.model.partitions import WHOLE, partition_values
from nova_assets.model.project import Project
from nova_assets.model.scheduler_state import DirtyPartition, MaterializedPartition
from nova_assets.nova_error import NovaError
from nova_assets.plan.due import why_trigger_is_off
from nova_assets.plan.required_base import channels_of_other_queries
from nova_assets.plan.staleness import FreshnessLimits, freshness_limits
from nova_assets.plan.tick import Batch, Policy, SchedulerState, Tick, decide_from_staleness
from nova_assets.store.external_tables import ExternalTables
from nova_assets.store.retention import ChannelRetention

if TYPE_CHECKING:  # these load the SQL parser, and a command that only prints its help must stay fast
    from nova_assets.sql.datasets.dataset_query import DatasetQuery
    from nova_assets.store.scheduler_snapshot import SchedulerSnapshot, StalenessTracker

log = get_logger("nova_assets.scheduler")


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """A task that a tick has run.

    Args:
        error: the error if the task failed, otherwise None.
    """

    dataset: str
    partition: str
    execution: Execution | None = None
    error: Exception | None = None


class DatasetScheduler:
    """Store methods that plan and run ticks.

    Args:
        runtime: carries out the tasks.
        external: refreshes the external channels.
        retention: drops partitions.
    """

    def __init__(self, runtime: Runtime, external: ExternalTables, retention: ChannelRetention) -> None:
        self.runtime = runtime
        self.catalog = runtime.catalog
        self.external = external
        self.retention = retention
        self._redefinitions: _Redefinitions | None = None

    @cached_property
    def staleness_tracker(self) -> StalenessTracker:
        from nova_assets.store.scheduler_snapshot import StalenessTracker

        return StalenessTracker(self.runtime)

    def next_tick(self, policy: Policy | None = None) -> Tick:
        """Dry run of ``tick``: the tasks that ``tick`` would run now, and the tasks that wait for other tasks.

        Args:
            policy: limits of one tick, such as the number of tasks that run at once.
        """
        late_by_dataset = {name: q.rebuilds_on_late_data for name, q in self.staleness_tracker.queries.items()}
        policy = policy or Policy()
        policy = replace(policy, late={**late_by_dataset, **policy.late})
        snapshot = self.staleness_tracker.check_all_datasets(policy.late)
        redefinitions = self._find_redefinitions()
        scheduler_state = SchedulerState(
            snapshot.now,
            snapshot.states_by_channel,
            _InputCompleteness(self.catalog, self.runtime, snapshot.now, snapshot.states_by_channel),
            _backfill_priorities_by_channel(self.catalog.scheduler.dirty_partitions(), redefinitions.channels),
            # The execution of a process that is certainly dead is superseded, although its lease still holds.
            {task: r for task, r in self.catalog.scheduler.running_partitions().items() if not is_owner_dead(r.owner)},
            self.catalog.scheduler.failing_partitions(),
            self.staleness_tracker.datasets_with_cursors,
            _freshness_limits(self.staleness_tracker.queries, self.runtime.project),
            _UnreadData(self.catalog, snapshot),
            partial(self._is_frozen, cache(self.catalog.histories.partitions)),
            self._find_paused_datasets() | redefinitions.refused,
        )
        return decide_from_staleness(
            snapshot.partition_ordinals, snapshot.staleness_by_dataset, snapshot.task_inputs, scheduler_state, policy
        )

    def _find_paused_datasets(self) -> dict[str, str]:
        """Dataset that is paused or removed -> why."""
        statuses = self.catalog.definition_states.statuses()
        names = self.staleness_tracker.queries if statuses else ()
        reasons = {name: why_trigger_is_off(self.runtime.project.binding(name), statuses) for name in names}
        return {name: why for name, why in reasons.items() if why}

    def _find_redefinitions(self) -> _Redefinitions:
        """The datasets whose query is another than the registered one. Their next execution registers the query.

        The project of a process does not change: once all its queries are registered, the catalog is not asked again.
        """
        if self._redefinitions is None or self._redefinitions.channels:
            registered, redefinitions = self.catalog.definitions.bindings(), _Redefinitions()
            for binding in map(self.runtime.project.binding, self.staleness_tracker.queries):
                if binding.name not in registered:
                    continue
                channels = channels_of_other_queries(registered[binding.name], binding.as_json())
                redefinitions.channels.update(channels)
                if channels and (reason := self._reason_to_refuse(binding)):
                    redefinitions.refused[binding.name] = reason
            self._redefinitions = redefinitions
        return self._redefinitions

    def _reason_to_refuse(self, binding: Binding) -> str:
        """What the execution of a binding waits for; empty if it can register its channels."""
        channels = self.runtime.project_channels(binding)
        try:
            self.catalog.definitions.check_registration(channels)
        except DefinitionConflict as conflict:
            refused = self.catalog.definitions.preview_replacements(channels, self.runtime.project.bindings).refused
            return next((e.what for e in refused.values()), f"nova init --replace: {conflict.what}")
        return ""

    def _is_frozen(
        self, load_partitions: Callable[[str], Sequence[PartitionState]], dataset: str, partition: str
    ) -> bool:
        """Whether a partition has rows, all of which are frozen.

        Args:
            load_partitions: returns the partitions of a dataset. It asks the catalog once per tick.
        """
        from nova_assets.sql.datasets.maintained_dataset import MaintainedDataset

        query = self.staleness_tracker.queries[dataset]
        if not isinstance(query, MaintainedDataset) or not query.is_frozen(partition, self.catalog.now()):
            return False
        return any(state.rows for state in load_partitions(dataset) if state.partition == partition)

    def tick(
        self,
        found: Tick | None = None,
        tell: Callable[[TaskOutcome], None] = lambda ran: None,
        run_id: str | None = None,
    ) -> list[TaskOutcome]:
        """Run due tasks of the SQL datasets, as many as the policy of ``next_tick`` allows (eight by default), and drop
        partitions that no task writes any more.

        A task is due if its partition is missing, marked for a backfill, or older than its inputs. A due task runs as
        soon as all its inputs exist. A failed task does not stop the other tasks, and a later tick retries the failed
        task. A tick keeps no state for the next tick.

        Args:
            found: the result of ``next_tick``, which is then carried out. By default, ``tick`` refreshes the external
                channels and makes a new plan.
            tell: function that is called with the outcome of each task when the task has ended.
            run_id: id of the orchestrator's run that executes the tick.

        Returns:
            The tasks that were run. Empty if no task is due or all due tasks wait.
        """
        if found is None:
            self.external.refresh_all()
            found = self.next_tick()
        for dataset, partitions in found.drop.items():
            self.retention.drop_partitions(dataset, partitions)
            log.info("dropped %d partitions of %s that no task writes any more", len(partitions), dataset)
        outcomes = []
        for outcome in (outcome for batch in found.run for outcome in self._run_batch(batch, run_id)):
            try:
                tell(outcome)
            except Exception:  # a failing callback must not stop the tick
                log.exception("tell failed for %s %s", outcome.dataset, outcome.partition)
            outcomes.append(outcome)
        return outcomes

    def _run_batch(self, batch: Batch, run_id: str | None) -> Iterator[TaskOutcome]:
        """Run the partitions of a batch. Skips partitions that another process computes or has computed meanwhile."""
        for partition, expected_seq in zip(batch.partitions, batch.previous_seqs, strict=True):
            is_still_needed = partial(self._is_partition_unchanged, batch.dataset, partition, expected_seq)
            if not is_still_needed():
                continue
            try:
                execution = self.runtime.run(batch.dataset, partition, run_id=run_id, is_still_needed=is_still_needed)
                if execution.state == "committed":
                    yield TaskOutcome(batch.dataset, partition, execution)
            except ExecutionInProgress:
                continue
            except NovaError as error:
                log.warning("%s %s failed: %s", batch.dataset, partition, error.what)
                yield TaskOutcome(batch.dataset, partition, error=error)

    def _is_partition_unchanged(self, dataset: str, partition: str, expected_seq: int) -> bool:
        state = self.catalog.partitions.materialized(dataset, [partition]).get(partition)
        return (0 if state is None else state.seq) == expected_seq


@dataclass(frozen=True, slots=True)
class _Redefinitions:
    """Datasets of the project whose registered definition is another.

    Args:
        channels: channels of the datasets with another query. They are computed again.
        refused: dataset whose channel has another definition -> what it waits for.
    """

    channels: set[str] = field(default_factory=set)
    refused: dict[str, str] = field(default_factory=dict)


class _InputCompleteness:
    """Whether a partition of a source channel has all its data.

    A partition of an external channel is complete if it exists. A partition of a channel with seals is complete if it
    is sealed. Otherwise its period has to be over, or, without a period, it has to exist.
    """

    def __init__(
        self,
        catalog: Catalog,
        runtime: Runtime,
        now: datetime,
        states_by_channel: Mapping[str, Mapping[str, MaterializedPartition]],
    ) -> None:
        self.catalog = catalog
        self.channels = {c.name: c for c in runtime.project.channels}
        self.now = now
        self.states_by_channel = states_by_channel
        self.cached_sealed_groups = cache(self._load_sealed_groups)

    def __call__(self, name: str, partition: str) -> bool:
        channel = self.channels[name]
        if channel.external is not None:
            return partition in self.states_by_channel[name]
        if channel.seal is not None:
            return str(partition_values(partition).get(channel.seal.by)) in self.cached_sealed_groups(name)
        ends = list(_partition_end_times(channel, partition))
        return all(end <= self.now for end in ends) if ends else partition in self.states_by_channel[name]

    def _load_sealed_groups(self, name: str) -> frozenset[str]:
        return frozenset(group for group, seal in self.catalog.seals.latest(name).items() if seal.state == "sealed")


class _UnreadData:
    """Since when the data has waited that a task has not read."""

    def __init__(self, catalog: Catalog, snapshot: SchedulerSnapshot) -> None:
        self.catalog = catalog
        self.snapshot = snapshot

    def __call__(self, dataset: str, partition: str, waited: Collection[str]) -> datetime | None:
        """Time at which the oldest unread data arrived; None if no data is unread.

        Args:
            waited: inputs whose data has waited already.
        """
        states = self.snapshot.states_by_channel
        state = states[dataset].get(partition)
        versions = {} if state is None else state.read_versions
        times = []
        for name, partitions in self.snapshot.task_inputs(dataset, partition):
            if name in versions:
                at = self.catalog.partitions.oldest_data_time(name, versions[name], partitions)
                times += [] if at is None else [datetime.min.replace(tzinfo=at.tzinfo) if name in waited else at]
        return min(times, default=None)


def _freshness_limits(queries: Mapping[str, DatasetQuery], project: Project) -> FreshnessLimits:
    declared = {name: query.freshness for name, query in queries.items() if query.freshness}
    if not declared:
        return FreshnessLimits()
    readers: dict[str, list[str]] = {}
    for name, query in queries.items():
        for read in query.reads:
            readers.setdefault(read, []).append(name)
    others = {c.name for b in project.bindings if b.name not in queries for c in b.reads}
    return freshness_limits(declared, readers, others)


def _partition_end_times(channel: Channel, partition: str) -> Iterator[datetime]:
    """End times of the days and hours of a partition."""
    values = partition_values(partition)
    for dimension in channel.partitions:
        end = dimension.partition_end(values.get(dimension.column))
        if end is not None:
            yield end


def _backfill_priorities_by_channel(
    backfill_requests: Iterable[DirtyPartition], redefined_channels: Iterable[str]
) -> dict[str, dict[str, int]]:
    priorities: dict[str, dict[str, int]] = {channel: {WHOLE: 0} for channel in redefined_channels}
    for request in backfill_requests:
        priorities.setdefault(request.channel, {})[request.partition] = request.priority
    return priorities
