"""State on which triggers decide, from the catalog, per partition or for unpartitioned executions.

Sensors, ``nova run --missing`` and ``nova bindings`` use the same functions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial

from nova_assets.catalog.catalog import Catalog
from nova_assets.errors import ChannelNotFound, PartitionError
from nova_assets.execution.lease import is_owner_dead
from nova_assets.model.binding import Binding
from nova_assets.model.channel import Channel
from nova_assets.model.channel_state import Cursor, PartitionState, UnreadData
from nova_assets.model.execution import CursorSwitch, Execution, Firing, FiringRun, SwitchTarget
from nova_assets.model.partitions import WHOLE, partition_name, partition_values, scope_for_columns
from nova_assets.model.scheduler_state import RunningTask
from nova_assets.model.trigger import After, OnData, OnSealed
from nova_assets.plan.cursor_switch import plan_cursor_switch
from nova_assets.plan.due import DueState, TriggerState, decide_trigger, why_trigger_is_off
from nova_assets.plan.timeline_chart import cursors_of_unrun_bindings
from nova_assets.short_repr import short_repr


def runs_unpartitioned(binding: Binding, catalog: Catalog) -> bool:
    """Whether a binding's cursors belong to unpartitioned executions (R13)."""
    return any(c.seq > 0 and not c.partition for c in catalog.cursors.find(binding.name))


@dataclass(frozen=True, slots=True)
class BindingState:
    """State of a binding: its cursors, its last execution, and its due partitions.

    Args:
        cursors: one for each consumed channel and each of its partitions. At 0 if the binding never ran.
        last: the latest execution. None if the binding never ran.
        due: partition -> reason why a run is due. An unpartitioned binding has the single partition ``""``.
        waits: reason why nothing is due. Empty if something is due.
        under_way: partitions for which the trigger has requested a run.
    """

    binding: Binding
    cursors: tuple[Cursor, ...]
    last: Execution | None
    due: Mapping[str, str]
    waits: str
    under_way: frozenset[str]

    __repr__ = short_repr

    @property
    def lag(self) -> int:
        """Largest number of unread sequence numbers over all channels and partitions."""
        return max((c.lag for c in self.cursors), default=0)


def load_binding_state(binding: Binding, catalog: Catalog) -> BindingState:
    """State of a binding, by the same decisions as its sensor. Changes nothing."""
    now, moved = catalog.now(), catalog.cursors.find(binding.name)
    heads = {s.channel.name: s.head for s in catalog.definitions.channels()}
    cursors = (*moved, *cursors_of_unrun_bindings([binding], moved, heads))
    last = next(iter(catalog.executions.find(binding.name, 1)), None)
    due, waits = _due_partitions(binding, catalog, now)
    return BindingState(binding, cursors, last, due, waits, catalog.firings.partitions_with_open_firing(binding.name))


def _due_partitions(binding: Binding, catalog: Catalog, now: datetime) -> tuple[dict[str, str], str]:
    if binding.when is None:
        return {}, "the binding runs by hand"
    watched = load_watched_partitions(binding, catalog, now)
    if watched.off:
        return {}, watched.off
    due, waits = {}, watched.why_none or "nothing is due in any partition"
    for partition, trigger_state in watched.states.items():
        fired = catalog.firings.last(binding.name, partition)
        decision = decide_trigger(binding.when, fired.positions if fired is not None else {}, trigger_state)
        if decision.due:
            due[partition] = decision.why
        elif not binding.dimensions:
            waits = decision.why
    return due, "" if due else waits


class KnownRuns:
    """What a process knows of runs: what the catalog records. An orchestrator knows more."""

    run_appears_within = timedelta()

    def is_owner_dead(self, owner: str) -> bool:
        """Whether the owner of an execution is certainly dead."""
        return is_owner_dead(owner)

    def runs_of_firing(self, firing: Firing, executions: tuple[FiringRun, ...]) -> tuple[FiringRun, ...]:
        """Runs of a firing that has these executions."""
        return executions

    def can_run(self, binding: Binding, partitions: Collection[str]) -> Callable[[str], bool]:
        """Function that tells whether one of these partitions of a binding can be run."""
        return lambda partition: True


@dataclass(frozen=True, slots=True)
class WatchedPartitions:
    """Partitions of a binding in which its trigger may be due.

    Args:
        states: partition -> state of the trigger.
        off: why nothing runs the binding now; empty if nothing prevents it.
        why_none: why the trigger fires in no partition; empty if it may.
    """

    now: datetime
    states: Mapping[str, TriggerState] = field(default_factory=dict)
    off: str = ""
    why_none: str = ""


def load_watched_partitions(binding: Binding, catalog: Catalog, now: datetime | None = None) -> WatchedPartitions:
    """Read in which partitions a trigger may be due, and the state of the trigger there, at one moment."""
    return catalog.read_together(lambda: _read_watched_partitions(binding, catalog, now or catalog.now()))


def _read_watched_partitions(binding: Binding, catalog: Catalog, now: datetime) -> WatchedPartitions:
    off = why_trigger_is_off(binding, catalog.definition_states.statuses())
    if off and catalog.firings.registered_at(binding.name) is None:  # its channels may not exist
        return WatchedPartitions(now, {}, off, off)
    if not binding.dimensions:
        return WatchedPartitions(now, {WHOLE: load_trigger_state(binding, catalog, now)}, off)
    if runs_unpartitioned(binding, catalog):
        why = (
            f"the binding has run unpartitioned; nova switch {binding.name} --to partitions lets it run per partition, "
            "and partitions=[] in its definition triggers unpartitioned runs"
        )
        return WatchedPartitions(now, {}, off, off or why)
    return WatchedPartitions(now, load_trigger_states(binding, catalog, now), off, off)


def load_due_state(
    binding: Binding, partition: str, trigger: TriggerState, off: str, catalog: Catalog, known_runs: KnownRuns
) -> DueState:
    """Read the state of one partition on which it is decided what is due, at one moment.

    Args:
        trigger: state of the trigger, which may be older. Its cursors are read again: an execution by hand may have
            read the data since then, and the data must not fire once more. Older heads only delay a firing.
    """

    def read() -> tuple[Firing | None, tuple[FiringRun, ...], RunningTask | None, dict[tuple[str, str], int]]:
        last = catalog.firings.last(binding.name, partition)
        executions = catalog.firings.executions_of(last) if last is not None and last.state == "requested" else ()
        running = catalog.firings.running_partition(binding.name, partition)
        return last, executions, running, catalog.cursors.positions(binding.name, partition)

    last, executions, running, positions = catalog.read_together(read)
    cursors = {channel: seq for (channel, _), seq in sorted(positions.items())}
    trigger = replace(trigger, cursors={**trigger.cursors, **cursors})
    runs = known_runs.runs_of_firing(last, executions) if last is not None and last.state == "requested" else ()
    live = ""
    if running is not None and not known_runs.is_owner_dead(running.owner):
        lease_text = f"its lease lasts until {running.lease_until:%H:%M:%S} UTC"
        live = f"execution {running.execution_id} of {running.owner} is alive; {lease_text}"
    return DueState(trigger, last, runs, live, off, known_runs.run_appears_within)


def check_has_partitions(binding: Binding) -> None:
    """Check that a binding is partitioned.

    Raises:
        PartitionError: the binding has no partitions.
    """
    if not binding.dimensions:
        raise PartitionError(
            f"binding {binding.name!r} has no partitions, so none can be missing",
            next=f"nova run {binding.name}",
            binding=binding.name,
        )


def load_cursor_switch(binding: Binding, catalog: Catalog, to: SwitchTarget) -> CursorSwitch:
    """Cursors of a binding after a switch between unpartitioned and partitioned executions. Changes nothing.

    Raises:
        PartitionError: the binding has no partitions, or some partitions have unread data and the switch is to
            unpartitioned executions.
    """
    cursors = catalog.cursors.find(binding.name)
    # Before the partitions: see plan_cursor_switch.
    heads = {s.channel.name: s.head for s in catalog.definitions.channels()}
    channels = dict.fromkeys((*binding.reads, *binding.writes))
    return plan_cursor_switch(binding, to, cursors, heads, {c.name: _list_partitions(c, catalog) for c in channels})


def load_trigger_state(binding: Binding, catalog: Catalog, now: datetime) -> TriggerState:
    """Trigger state of a binding for an unpartitioned execution, from the catalog."""
    return TriggerState(
        now=now,
        registered_at=catalog.firings.registered_at(binding.name) or now,
        heads=catalog.firings.data_heads(_trigger_channels(binding)),
        cursors={c.channel: c.seq for c in catalog.cursors.find(binding.name)},
        finished=execution_counts_for_partition(_load_execution_counts(binding, catalog)),
        sealed={c: catalog.seals.count(c) for c in _sealed_trigger_channels(binding)},
        unread=catalog.histories.unread_data,
    )


def _trigger_channels(binding: Binding) -> set[str]:
    """Channels whose heads can make a binding due: those of its data triggers, and those that it reads."""
    return {c.name for c in binding.reads} | {c for t in binding.triggers if isinstance(t, OnData) for c in t.channels}


def _load_execution_counts(binding: Binding, catalog: Catalog) -> dict[tuple[str, str, str], int]:
    """Execution counts of all bindings, loaded only for ``After`` triggers, since the query scans all executions."""
    return catalog.executions.counts() if any(isinstance(t, After) for t in binding.triggers) else {}


def execution_counts_for_partition(
    counts: Mapping[tuple[str, str, str], int], partition: str = WHOLE
) -> dict[tuple[str, str], int]:
    """(binding, status) -> number of executions that concern a partition: those for the partition and unpartitioned
    ones.
    """
    found: dict[tuple[str, str], int] = {}
    for (binding, executed, status), count in counts.items():
        if partition == WHOLE or executed in (WHOLE, partition):
            found[binding, status] = found.get((binding, status), 0) + count
    return found


def load_trigger_states(binding: Binding, catalog: Catalog, now: datetime) -> dict[str, TriggerState]:
    """Trigger state of each partition that has unread data, a seal, or an open firing.

    A channel that shares no dimension with the binding is read whole in every partition. New data in it counts as new
    for every known partition.
    """
    unpartitioned_state, counts = load_trigger_state(binding, catalog, now), _load_execution_counts(binding, catalog)
    columns = [d.column for d in binding.dimensions]
    cursors: dict[tuple[str, str], int] = {(c.partition, c.channel): c.seq for c in catalog.cursors.find(binding.name)}
    under_way = catalog.firings.partitions_with_open_firing(binding.name)
    inputs = _input_channels(binding)
    heads = _input_heads_by_partition(binding, catalog)
    for partition in (*(p for p, _ in cursors), *under_way):
        heads.setdefault(partition, {})
    sealed = _load_seal_counts(binding, catalog)
    for partition in sealed.partitions_with_seal():
        heads.setdefault(partition, {})
    heads_without_data = {
        **{c.name: 0 for c in inputs},
        **unpartitioned_state.heads,
        **{c.name: 0 for c in inputs if set(columns) & set(c.partition_columns)},
    }
    found = {}
    for partition, input_heads in sorted(heads.items()):
        read_positions = {c.name: cursors.get((partition, c.name), 0) for c in inputs}
        newest_heads = {**heads_without_data, **input_heads}
        seals = {**unpartitioned_state.sealed, **sealed.counts_for_partition(partition)}
        if (
            partition in under_way
            or any(seals.values())
            or any(newest_heads[c] > read_positions[c] for c in read_positions)
        ):
            found[partition] = replace(
                unpartitioned_state,
                heads=newest_heads,
                cursors=read_positions,
                finished=execution_counts_for_partition(counts, partition),
                sealed=seals,
                unread=partial(_unread_in_partition, catalog, columns, partition),
            )
    return found


def unread_by_partition(binding: Binding, catalog: Catalog, now: datetime) -> dict[str, dict[str, UnreadData]]:
    """Partition of a binding -> channel that it reads by cursor -> its unread data."""
    if binding.dimensions:
        states = load_trigger_states(binding, catalog, now)
    else:
        states = {WHOLE: load_trigger_state(binding, catalog, now)}
    return {
        partition: {c.name: state.unread(c.name, state.cursors.get(c.name, 0)) for c in binding.cursor_channels}
        for partition, state in states.items()
    }


def _input_channels(binding: Binding) -> list[Channel]:
    return [c for c in binding.reads if c not in binding.writes]


def _input_heads_by_partition(binding: Binding, catalog: Catalog) -> dict[str, dict[str, int]]:
    """Partition of the binding -> input channel -> newest sequence number with data for that partition."""
    columns = [d.column for d in binding.dimensions]
    heads: dict[str, dict[str, int]] = {}
    for channel in _input_channels(binding):
        for state in _list_partitions(channel, catalog):
            scope = scope_for_columns(columns, state.partition) if state.partition else ""
            if scope.count("/") == len(columns) - 1 and scope:
                input_heads = heads.setdefault(scope, {})
                input_heads[channel.name] = max(input_heads.get(channel.name, 0), state.last_data_seq)
    return heads


def _list_partitions(channel: Channel, catalog: Catalog) -> list[PartitionState]:
    with suppress(ChannelNotFound):
        return catalog.histories.partitions(channel.name)
    return []


def list_unread_partitions(binding: Binding, catalog: Catalog) -> list[str]:
    """Names of a binding's partitions with unread data.

    For a binding without cursors, a partition counts as unread if an input has the partition, and no output has the
    partition.
    """
    heads = _input_heads_by_partition(binding, catalog)
    if not binding.cursor_channels:
        columns = [d.column for d in binding.dimensions]
        written = {
            scope_for_columns(columns, s.partition) for c in binding.writes for s in _list_partitions(c, catalog)
        }
        return sorted(p for p, input_heads in heads.items() if any(input_heads.values()) and p not in written)
    cursors = {(c.partition, c.channel): c.seq for c in catalog.cursors.find(binding.name)}
    for partition, _ in cursors:
        heads.setdefault(partition, {})
    heads.pop(WHOLE, None)
    consumed = {c.name for c in binding.cursor_channels} & {c.name for c in _input_channels(binding)}
    shared = {
        c.name for c in _input_channels(binding) if set(c.partition_columns) & {d.column for d in binding.dimensions}
    }
    states = catalog.definitions.channels() if consumed - shared else []
    channel_heads = {s.channel.name: s.last_data_seq for s in states}

    def newest_data_seq(partition: str, channel: str) -> int:
        return heads[partition].get(channel, 0) if channel in shared else channel_heads.get(channel, 0)

    return sorted(p for p in heads if any(newest_data_seq(p, c) > cursors.get((p, c), 0) for c in consumed))


def _unread_in_partition(catalog: Catalog, columns: list[str], partition: str, channel: str, after: int) -> UnreadData:
    """Unread data of a channel for one partition of the binding. All of the channel if they share no dimension."""
    shared = [c for c in catalog.definitions.channel(channel).channel.partition_columns if c in columns]
    return catalog.histories.unread_data(channel, after, scope_for_columns(shared, partition))


@dataclass(frozen=True)
class _SealCounts:
    """Seals that a partitioned binding waits for.

    Args:
        dimension_columns: columns of the binding's dimensions.
        seal_column_by_channel: channel -> the column by which it is sealed.
        counts_by_channel: channel -> group -> number of times that it was sealed.
    """

    dimension_columns: list[str]
    seal_column_by_channel: Mapping[str, str]
    counts_by_channel: Mapping[str, Mapping[str, int]]

    def partitions_with_seal(self) -> set[str]:
        """Partitions that were sealed, empty or not."""
        return {
            partition_name(self.dimension_columns, {by: group})
            for channel, by in self.seal_column_by_channel.items()
            if self.dimension_columns == [by]
            for group in self.counts_by_channel[channel]
        }

    def counts_for_partition(self, partition: str) -> dict[str, int]:
        """Channel -> number of times that the day or hour of a partition was sealed.

        If the seal column is no dimension of the binding, all seals of the channel count, as for unpartitioned
        executions.
        """
        values = partition_values(partition)
        return {
            channel: self.counts_by_channel[channel].get(values[by] or "", 0)
            for channel, by in self.seal_column_by_channel.items()
            if by in values
        }


def _load_seal_counts(binding: Binding, catalog: Catalog) -> _SealCounts:
    """Load the seals that a binding waits for."""
    sealing_by_channel = {c: catalog.definitions.channel(c).seal for c in _sealed_trigger_channels(binding)}
    seal_columns = {c: s.by for c, s in sealing_by_channel.items() if s is not None}
    counts = {c: {g: s.version for g, s in catalog.seals.latest(c).items()} for c in seal_columns}
    return _SealCounts([d.column for d in binding.dimensions], seal_columns, counts)


def _sealed_trigger_channels(binding: Binding) -> list[str]:
    """Channels of the binding's ``OnSealed`` triggers."""
    return [t.channel for t in binding.triggers if isinstance(t, OnSealed)]
