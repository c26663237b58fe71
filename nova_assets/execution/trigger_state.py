"""What makes bindings due, as the catalog has it: the facts on which triggers decide, for the whole or per partition.

Sensors, ``nova run --missing`` and ``nova bindings`` ask the same functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from nova_assets.errors import BindingNotFound, ChannelNotFound, InputsMissing, PartitionError
from nova_assets.model.binding import Binding
from nova_assets.model.catalog import Catalog
from nova_assets.model.channel import Channel
from nova_assets.model.channel_state import Cursor, PartitionState, UnreadData
from nova_assets.model.cursor_switch import Switch, SwitchTarget
from nova_assets.model.execution import Execution
from nova_assets.model.partitions import WHOLE, partition_name, partition_values, scope_for_columns
from nova_assets.model.scoped_reads import ExistingPartitions
from nova_assets.model.trigger import After, OnSealed
from nova_assets.plan.cursor_switch import plan_switch
from nova_assets.plan.due import TriggerState, decide_trigger
from nova_assets.plan.timeline_chart import cursors_of_unrun_bindings
from nova_assets.short_repr import short_repr


def runs_unpartitioned(binding: Binding, catalog: Catalog) -> bool:
    """Whether the cursors of a binding stand for executions of the whole (R13)."""
    return any(c.seq > 0 and not c.partition for c in catalog.cursors(binding.name))


def check_partition_given(binding: Binding, catalog: Catalog) -> None:
    """Check that an execution of the whole is what its caller means.

    A binding runs whole or per partition (R13). Its first execution decides, so a binding that is triggered per
    partition is not executed whole by leaving the partition out.

    Raises:
        PartitionError: it is triggered per partition, and has not been executed whole before.
    """
    if binding.when is None or not binding.dimensions or runs_unpartitioned(binding, catalog):
        return
    unread = unread_partitions(binding, catalog)
    shape = "/".join(f"{d.column}=..." for d in binding.dimensions)
    first = f" (such as {unread[0]})" if unread else ""
    raise PartitionError(
        f"binding {binding.name!r} is triggered per partition, so a run has to say which partitions it is for",
        found="no partition",
        expected=f"--partition {shape}, once or several times{first}; --missing, for the {len(unread)} that have "
        "unread data; or --whole, for all of them as one, after which its trigger waits until the cursors are switched "
        "back",
        next=f"nova run {binding.name} --missing; in Python: for p in store.unread({binding.name!r}): "
        f"store.run({binding.name!r}, p)",
        binding=binding.name,
        unread=len(unread),
    )


def check_inputs_exist(binding: Binding, partition: str, now: datetime, existing: ExistingPartitions) -> None:
    """Check that all partitions exist which the queries of a binding read.

    Over a part of its inputs, a query would silently give a part of its result.

    Raises:
        InputsMissing: naming the partitions that lack.
    """
    lacking = [
        name
        for t in binding.tasks
        if t.scoped is not None
        for name in t.scoped.missing_partitions(partition, now, existing)
    ]
    if lacking:
        more = f" and {len(lacking) - 3} more" if len(lacking) > 3 else ""
        raise InputsMissing(
            f"{f'{binding.name} {partition}'.rstrip()} reads what is not made yet",
            found=f"no {', '.join(lacking[:3])}{more}",
            expected="all that it reads",
            next="make that first; nova tick --all makes everything in order",
            binding=binding.name,
            partition=partition,
        )


@dataclass(frozen=True, slots=True)
class BindingState:
    """A binding as it stands: how far it has read, what it did last, and what it is due for.

    Args:
        cursors: one for each channel that it consumes as new, and each of its partitions; at 0 where it never ran.
        last: its latest execution; None where it never ran.
        due: partition -> why a run is due there; of an unpartitioned binding, the one partition ``""``.
        waits: why nothing is due; empty where something is.
        under_way: partitions for which its trigger has requested a run.
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
        """Sequence numbers that are unread, on the channel and in the partition with most of them."""
        return max((c.lag for c in self.cursors), default=0)


def binding_state(binding: Binding, catalog: Catalog) -> BindingState:
    """The state of a binding, by the same decisions as its sensor takes. Changes nothing."""
    now, moved = catalog.now(), catalog.cursors(binding.name)
    heads = {s.channel.name: s.head for s in catalog.channels()}
    cursors = (*moved, *cursors_of_unrun_bindings([binding], moved, heads))
    last = next(iter(catalog.executions(binding.name, 1)), None)
    due, waits = _due_partitions(binding, catalog, now)
    return BindingState(binding, cursors, last, due, waits, catalog.partitions_with_open_firing(binding.name))


def _due_partitions(binding: Binding, catalog: Catalog, now: datetime) -> tuple[dict[str, str], str]:
    if binding.when is None:
        return {}, "it runs by hand"
    if not binding.dimensions:
        facts = {WHOLE: load_trigger_state(binding, catalog, now)}
    elif runs_unpartitioned(binding, catalog):
        return {}, f"it was executed whole, so its trigger waits: nova switch {binding.name} --to partitions"
    else:
        facts = trigger_state_by_partition(binding, catalog, now)
    due, waits = {}, "nothing is due in any partition"
    for partition, trigger_state in facts.items():
        fired = catalog.last_firing(binding.name, partition)
        decision = decide_trigger(binding.when, fired.positions if fired is not None else {}, trigger_state)
        if decision.due:
            due[partition] = decision.why
        elif not binding.dimensions:
            waits = decision.why
    return due, "" if due else waits


def check_has_partitions(binding: Binding) -> None:
    """Raises PartitionError where a binding always runs whole."""
    if not binding.dimensions:
        raise PartitionError(
            f"binding {binding.name!r} has no partitions, so none can be missing",
            next=f"nova run {binding.name}",
            binding=binding.name,
        )


def plan_binding_switch(binding: Binding, catalog: Catalog, to: SwitchTarget) -> Switch:
    """The cursors of a binding after a switch to the whole, or to partitions. Changes nothing.

    Raises:
        PartitionError: the binding has no partitions; or, on the way to the whole, some have unread data.
    """
    cursors = catalog.cursors(binding.name)
    heads = {s.channel.name: s.head for s in catalog.channels()}  # before the partitions: see plan_switch
    channels = dict.fromkeys((*binding.reads, *binding.writes))
    return plan_switch(binding, to, cursors, heads, {c.name: _list_partitions(c, catalog) for c in channels})


def load_trigger_state(binding: Binding, catalog: Catalog, now: datetime) -> TriggerState:
    """What the decision rests on, from the catalog; of a partitioned binding, for an execution of the whole."""
    return TriggerState(
        now=now,
        registered_at=_registered_at(binding, catalog, now),
        heads={s.channel.name: s.news for s in catalog.channels()},
        cursors={c.channel: c.seq for c in catalog.cursors(binding.name)},
        finished=_finished_for_partition(_finished_counts(binding, catalog)),
        sealed={c: catalog.seal_count(c) for c in _sealed_trigger_channels(binding)},
        unread=catalog.unread,
    )


def _registered_at(binding: Binding, catalog: Catalog, now: datetime) -> datetime:
    """When a binding was registered; now, for one that will be by its first run."""
    with suppress(BindingNotFound):
        return catalog.registered_at(binding.name)
    return now


def _finished_counts(binding: Binding, catalog: Catalog) -> dict[tuple[str, str, str], int]:
    """How often others were executed: counted over all executions there ever were, so only for who asks for it."""
    return catalog.execution_counts() if any(isinstance(t, After) for t in binding.triggers) else {}


def _finished_for_partition(
    counts: Mapping[tuple[str, str, str], int], partition: str = WHOLE
) -> dict[tuple[str, str], int]:
    """(binding, status) -> how often, as one partition sees it: by executions for it, and by those for the whole."""
    found: dict[tuple[str, str], int] = {}
    for (binding, executed, status), count in counts.items():
        if partition == WHOLE or executed in (WHOLE, partition):
            found[binding, status] = found.get((binding, status), 0) + count
    return found


def trigger_state_by_partition(binding: Binding, catalog: Catalog, now: datetime) -> dict[str, TriggerState]:
    """For each partition that has unread data on some input, or a firing under way, the facts as they are there.

    A channel without any of the binding's dimensions is read whole by all of its partitions: what comes there is new
    to every one that is known.
    """
    facts, counts = load_trigger_state(binding, catalog, now), _finished_counts(binding, catalog)
    columns = [d.column for d in binding.dimensions]
    cursors: dict[tuple[str, str], int] = {(c.partition, c.channel): c.seq for c in catalog.cursors(binding.name)}
    under_way = catalog.partitions_with_open_firing(binding.name)
    inputs = _input_channels(binding)
    heads = _input_heads_by_partition(binding, catalog)
    for partition in (*(p for p, _ in cursors), *under_way):
        heads.setdefault(partition, {})
    sealed = _load_seal_versions(binding, catalog)
    for partition in sealed.sealed_partitions():
        heads.setdefault(partition, {})
    unpartitioned_heads = {
        c.name: facts.heads.get(c.name, 0) for c in inputs if not set(columns) & set(c.partition_columns)
    }
    found = {}
    for partition, input_heads in sorted(heads.items()):
        read_positions = {c.name: cursors.get((partition, c.name), 0) for c in inputs}
        newest_heads = {**facts.heads, **{c.name: 0 for c in inputs}, **unpartitioned_heads, **input_heads}
        seals = {**facts.sealed, **sealed.versions_for_partition(partition)}
        if (
            partition in under_way
            or any(seals.values())
            or any(newest_heads[c] > read_positions[c] for c in read_positions)
        ):
            found[partition] = replace(
                facts,
                heads=newest_heads,
                cursors=read_positions,
                finished=_finished_for_partition(counts, partition),
                sealed=seals,
                unread=partial(_unread_in_partition, catalog, columns, partition),
            )
    return found


def _input_channels(binding: Binding) -> list[Channel]:
    return [c for c in binding.reads if c not in binding.writes]


def _input_heads_by_partition(binding: Binding, catalog: Catalog) -> dict[str, dict[str, int]]:
    """Partition of the binding -> input that has it -> the newest number at which that was given something there."""
    columns = [d.column for d in binding.dimensions]
    heads: dict[str, dict[str, int]] = {}
    for channel in _input_channels(binding):
        for state in _list_partitions(channel, catalog):
            scope = scope_for_columns(columns, state.partition) if state.partition else ""
            if scope.count("/") == len(columns) - 1 and scope:
                of = heads.setdefault(scope, {})
                of[channel.name] = max(of.get(channel.name, 0), state.news)
    return heads


def _list_partitions(channel: Channel, catalog: Catalog) -> list[PartitionState]:
    with suppress(ChannelNotFound):
        return catalog.partitions(channel.name)
    return []


def unread_partitions(binding: Binding, catalog: Catalog) -> list[str]:
    """The partitions of a binding that have data which it has not read yet, by name.

    A binding that keeps no cursor has not read a partition that its inputs have and none of its outputs has.
    """
    heads = _input_heads_by_partition(binding, catalog)
    if not binding.cursor_channels:
        columns = [d.column for d in binding.dimensions]
        written = {
            scope_for_columns(columns, s.partition) for c in binding.writes for s in _list_partitions(c, catalog)
        }
        return sorted(p for p, of in heads.items() if any(of.values()) and p not in written)
    cursors = {(c.partition, c.channel): c.seq for c in catalog.cursors(binding.name)}
    for partition, _ in cursors:
        heads.setdefault(partition, {})
    heads.pop(WHOLE, None)
    consumed = {c.name for c in binding.cursor_channels} & {c.name for c in _input_channels(binding)}
    shared = {
        c.name for c in _input_channels(binding) if set(c.partition_columns) & {d.column for d in binding.dimensions}
    }
    channel_heads = {s.channel.name: s.news for s in catalog.channels()} if consumed - shared else {}

    def newest(partition: str, channel: str) -> int:
        return heads[partition].get(channel, 0) if channel in shared else channel_heads.get(channel, 0)

    return sorted(p for p in heads if any(newest(p, c) > cursors.get((p, c), 0) for c in consumed))


def _unread_in_partition(catalog: Catalog, columns: list[str], partition: str, channel: str, after: int) -> UnreadData:
    """Of a channel, what a partition of the binding reads of it: its own part; all, where they share no dimension."""
    shared = [c for c in catalog.channel(channel).channel.partition_columns if c in columns]
    return catalog.unread(channel, after, scope_for_columns(shared, partition))


@dataclass(frozen=True)
class _SealVersions:
    """What a partitioned binding that waits for seals knows of them.

    Args:
        dimension_columns: of the binding's dimensions.
        seal_column_by_channel: channel -> the column by which it is sealed.
        versions_by_channel: channel -> group -> how often it was sealed.
    """

    dimension_columns: list[str]
    seal_column_by_channel: Mapping[str, str]
    versions_by_channel: Mapping[str, Mapping[str, int]]

    def sealed_partitions(self) -> set[str]:
        """Those that were sealed, whether they hold anything or not."""
        return {
            partition_name(self.dimension_columns, {by: group})
            for channel, by in self.seal_column_by_channel.items()
            if self.dimension_columns == [by]
            for group in self.versions_by_channel[channel]
        }

    def versions_for_partition(self, partition: str) -> dict[str, int]:
        """Channel -> how often the day or hour of a partition was sealed. Where the binding does not go by that, all
        seals count, as they do for the whole."""
        values = partition_values(partition)
        return {
            channel: self.versions_by_channel[channel].get(values[by] or "", 0)
            for channel, by in self.seal_column_by_channel.items()
            if by in values
        }


def _load_seal_versions(binding: Binding, catalog: Catalog) -> _SealVersions:
    """The seals that a binding waits for."""
    how = {c: catalog.channel(c).seal for c in _sealed_trigger_channels(binding)}
    channels = {c: h.by for c, h in how.items() if h is not None}
    versions = {c: {g: s.version for g, s in catalog.latest_seals(c).items()} for c in channels}
    return _SealVersions([d.column for d in binding.dimensions], channels, versions)


def _sealed_trigger_channels(binding: Binding) -> list[str]:
    """The channels whose seals are waited for."""
    return [t.channel for t in binding.triggers if isinstance(t, OnSealed)]
