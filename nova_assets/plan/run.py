"""Planner of a run: from pins to a ``RunPlan`` with its reads, tasks, staged blocks and commit.

``nova plan`` prints this object and the runtime interprets it, so nothing is decided twice (DESIGN §4).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache, partial
from typing import NamedTuple

from nova_assets.errors import BlockCollected
from nova_assets.model import reads
from nova_assets.model.binding import Binding
from nova_assets.model.block import Kind
from nova_assets.model.channel import Channel
from nova_assets.model.commit import MoveCursor, RequireHead
from nova_assets.model.data_check import Check
from nova_assets.model.edge import Consumes, Produces
from nova_assets.model.execution import Pin
from nova_assets.model.merge import Append
from nova_assets.model.partition_rule import FewRows, InputState, narrowest_scope_containing
from nova_assets.model.partitions import WHOLE, partition_values, scope_for_columns
from nova_assets.model.reads import Change, PrivatePortRead, Read, Snapshot, StagedBlockPlaceholder
from nova_assets.model.task import Task
from nova_assets.model.timeline import History
from nova_assets.plan import modes
from nova_assets.plan.required_base import check_merge_model_accepts
from nova_assets.plan.run_plan import Handover, Input, Output, PlannedCheck, RunPlan, Step


class ChannelsToPin(NamedTuple):
    """Channels whose heads an execution pins, and the channels among them whose cursors it pins."""

    head_channels: tuple[str, ...]
    cursor_channels: tuple[str, ...]


def channels_to_pin(binding: Binding) -> ChannelsToPin:
    """Channels that an execution of a binding pins."""
    heads = dict.fromkeys(c.name for c in (*binding.reads, *binding.writes, *binding.channels_read_by_checks))
    return ChannelsToPin(tuple(heads), tuple(c.name for c in binding.cursor_channels))


def scope_by_channel(binding: Binding, partition: str, now: datetime, inputs: InputState) -> dict[str, str]:
    """Channel -> scope in which an execution of this partition reads and writes it (R13).

    Channels that share a dimension with the partition are read in the same partition, other channels completely. If a
    query determines the partitions to read, the channel is read in the narrowest scope that contains them.

    Args:
        binding: the binding.
        partition: partition of the execution.
        now: start of the execution.
        inputs: lists the partitions of a channel. Rows of small channels must not be known yet, because the pins
            decide which version of them the execution reads.
    """
    partition_columns = partition_values(partition)
    channels = dict.fromkeys((*binding.reads, *binding.writes, *binding.channels_read_by_checks))
    scope_by_channel_name = {
        c.name: scope_for_columns([d.column for d in c.partitions if d.column in partition_columns], partition)
        for c in channels
    }
    written = {c.name for c in binding.writes}
    for channel, names in queried_partitions_by_channel(binding, partition, now, inputs).items():
        if channel.name in written:
            continue
        # A cursor covers the same partitions in every run, and dynamic partitions may appear until the pin.
        is_open = channel in binding.cursor_channels or any(d.kind == "dynamic" for d in channel.partitions)
        scope_by_channel_name[channel.name] = (
            WHOLE if is_open else narrowest_scope_containing(channel.partition_columns, names)
        )
    return scope_by_channel_name


def queried_partitions_by_channel(
    binding: Binding, partition: str, now: datetime, inputs: InputState
) -> dict[Channel, frozenset[str]]:
    """Channel -> partitions that queries read, over all inputs of all tasks."""
    partitions_by_channel: dict[Channel, frozenset[str]] = {}
    for task in binding.tasks:
        partitions_by_input = {} if task.scoped is None else task.scoped.input_partitions(partition, now, inputs)
        for edge in task.consumes:
            channel = binding.channel(edge.port)
            if channel is not None and edge.name in partitions_by_input:
                partitions_by_channel[channel] = (
                    partitions_by_channel.get(channel, frozenset()) | partitions_by_input[edge.name]
                )
    return partitions_by_channel


def changes_needed_after(binding: Binding, pin: Pin) -> int | None:
    """Sequence number after which a plan needs the blocks of a channel; None if it also needs snapshots.

    A channel may have many blocks. A binding that only reads ``new``, or only writes deltas, does not need the older
    ones.
    """
    modes_read = {e.mode for t in binding.tasks for e in t.consumes if _channel_name(binding, e.port) == pin.channel}
    modes_checked = {
        e.mode for c in binding.checks for e in c.consumes if _channel_name(binding, e.port) == pin.channel
    }
    if pin.channel in {c.name for c in binding.base_writes} or modes_checked - {"new"}:
        return None
    if not modes_read:
        return pin.head
    written = pin.channel in {c.name for c in binding.writes}
    return pin.cursor if modes_read == {"new"} and pin.cursor and not written else None


def oldest_snapshot_needed(pin: Pin) -> int:
    """Oldest number of which a plan needs a snapshot: the cursor, if ``old`` can be read; 0 if everything is needed."""
    if pin.has_run:
        return pin.cursor or 0
    return pin.cursor or pin.head


def plan_run(
    binding: Binding,
    pins: Mapping[str, Pin],
    histories: Mapping[str, History],
    partition: str = WHOLE,
    ports_without_new_data: frozenset[str] = frozenset(),
    now: datetime | None = None,
    few_rows: Callable[[str], FewRows | None] = lambda channel: None,
) -> RunPlan:
    """Plan of one execution.

    Args:
        binding: binding to run.
        pins: by channel, as the catalog fixed them at begin.
        histories: by channel, up to the pinned heads.
        partition: partition of the execution.
        ports_without_new_data: ports whose writers had no new data. Their readers see the channel as pinned.
        now: start of the execution, on which the partitions read by a query may depend.
        few_rows: function from a channel to its rows at the pinned head; None if they are many.

    Raises:
        ModelChanged: a task would write a delta on a channel whose merge model was changed (R18).
    """
    inputs = InputState(cache(partial(_existing_partitions, histories)), few_rows)
    steps = tuple(
        _plan_step(
            binding,
            task,
            pins,
            _restrict_histories_to_task(task, histories, partition, now, inputs),
            ports_without_new_data,
        )
        for task in binding.workflowette.in_order()
    )
    for step in steps:
        if not binding.workflowette.task(step.task).can_replace:
            _check_merge_models(step, histories, ports_without_new_data)
    checks = tuple(_plan_check(binding, check, pins, histories, ports_without_new_data) for check in binding.checks)
    cursors, heads = _cursor_moves(binding, pins, partition), _required_heads(binding, pins)
    return RunPlan(binding.name, partition, dict(pins), steps, cursors, heads, checks, binding.resources)


def _existing_partitions(histories: Mapping[str, History], channel: str) -> frozenset[str]:
    return frozenset(b.partition for b in histories[channel].blocks) if channel in histories else frozenset()


@dataclass(frozen=True, slots=True)
class _TaskHistories:
    """Histories that a task reads: by channel, with the partitions to which a query restricts an input."""

    history_by_channel: Mapping[str, History]
    partitions_by_input: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def for_input(self, channel: str, input_name: str) -> History:
        history = self.history_by_channel[channel]
        return (
            history.for_partitions(self.partitions_by_input[input_name])
            if input_name in self.partitions_by_input
            else history
        )


def _restrict_histories_to_task(
    task: Task, history_by_channel: Mapping[str, History], partition: str, now: datetime | None, inputs: InputState
) -> _TaskHistories:
    if task.scoped is None:
        return _TaskHistories(history_by_channel)
    assert now is not None
    return _TaskHistories(history_by_channel, task.scoped.input_partitions(partition, now, inputs))


def _plan_step(
    binding: Binding,
    task: Task,
    pins: Mapping[str, Pin],
    task_histories: _TaskHistories,
    ports_without_new_data: frozenset[str],
) -> Step:
    inputs = tuple(
        _plan_input(binding, task.name, edge, pins, task_histories, ports_without_new_data) for edge in task.consumes
    )
    handover = _choose_handover(binding, task)
    outputs = tuple(
        Output(
            e.port,
            _channel_name(binding, e.port),
            _output_kind(binding, task, e, task_histories),
            "stage" if binding.channel(e.port) else handover,
            e.options,
        )
        for e in task.produces
    )
    return Step(task.name, binding.workflowette.upstream(task), inputs, outputs, task.skip_if_no_new)


def _output_kind(binding: Binding, task: Task, edge: Produces, task_histories: _TaskHistories) -> Kind:
    """Kind of the block that a task stages. A maintained result that gets other columns is always a base."""
    history = task_histories.history_by_channel.get(_channel_name(binding, edge.port) or "")
    return "base" if task.can_replace and history is not None and history.next_schema is not None else edge.kind


def _check_merge_models(step: Step, histories: Mapping[str, History], ports_without_new_data: frozenset[str]) -> None:
    if step.skip_if_no_new and all(reads.is_certainly_empty(i.reads["new"]) for i in step.inputs if i.is_new):
        return
    for output in step.outputs:
        history = None if output.channel is None or output.port in ports_without_new_data else histories[output.channel]
        if history is not None:
            check_merge_model_accepts(history, output.kind)


def _plan_check(
    binding: Binding,
    check: Check,
    pins: Mapping[str, Pin],
    histories: Mapping[str, History],
    ports_without_new_data: frozenset[str],
) -> PlannedCheck:
    """Plan of a check.

    The check sees the outputs as changed by this execution, that is, as if the cursor were at the pinned head.
    """
    written = {c.name for c in binding.writes}
    pins_at_head = {c: replace(p, cursor=p.head) if c in written else p for c, p in pins.items()}
    inputs = tuple(
        _plan_input(binding, None, edge, pins_at_head, _TaskHistories(histories), ports_without_new_data)
        for edge in check.consumes
    )
    return PlannedCheck(check.name, binding.channels[check.port].name, check.port, inputs, check.blocking)


def _choose_handover(binding: Binding, task: Task) -> Handover:
    """Handover of a task's outputs.

    Private rows need not be written if a second evaluation has no visible effect: for a single output that is read
    once, or for a deterministic task (R4). Not writing private rows is always cheaper.
    """
    is_private = all(binding.channel(e.port) is None for e in task.produces)
    readers = [r for e in task.produces for r in binding.workflowette.readers(e.port)]
    is_read_once = (
        len(task.produces) == 1
        and len(readers) == 1
        and sum(e.port == task.produces[0].port for e in readers[0].consumes) == 1
    )
    single_output_reader = is_read_once and len(readers[0].produces) <= 1
    if any(binding.workflowette.is_read_by_check(e.port) for e in task.produces):
        return "stage"
    return "pass" if is_private and (task.deterministic or single_output_reader) else "stage"


def _plan_input(
    binding: Binding,
    reading_task: str | None,
    edge: Consumes,
    pins: Mapping[str, Pin],
    task_histories: _TaskHistories,
    ports_without_new_data: frozenset[str],
) -> Input:
    channel = binding.channel(edge.port)
    if channel is None:
        return Input(edge.name, edge.port, edge.mode, None, {edge.mode: PrivatePortRead(edge.port)})
    history, pin = task_histories.for_input(channel.name, edge.name), pins[channel.name]
    read_modes = {"changes": ("all", "new", "old"), "matching": ("all",)}.get(edge.mode, (edge.mode,))
    staged = (
        None
        if edge.port in ports_without_new_data
        else _placeholder_if_other_task_writes(binding, reading_task, edge.port, task_histories)
    )
    reason = "" if edge.has_cursor else _reason_without_change(history, pin)
    if reason:
        pin = replace(pin, cursor=0, has_run=False)
    read_by_mode = {mode: _plan_read(mode, history, pin, staged) for mode in read_modes}
    on = (edge.on or channel.merge.key) if edge.mode == "matching" else ()
    return Input(edge.name, edge.port, edge.mode, channel.name, read_by_mode, edge.keys_of, on, reason, edge.is_lazy)


def _reason_without_change(history: History, pin: Pin) -> str:
    """Why the change of a channel since the last execution cannot be read; empty if it can be read.

    A drop by retention is no deletion (R19), and an ``Append`` channel cannot represent removed rows (R10).
    """
    channel, cursor = history.channel, pin.cursor or 0
    if not pin.has_run:
        return f"channel {channel} was not read before"
    later_blocks = [b for b in history.blocks if b.hi > cursor and b.origin != "compact"]
    if any(b.origin == "drop" for b in later_blocks):
        return f"a partition of channel {channel} was dropped after the last execution"
    if isinstance(history.merge, Append) and any(b.kind == "base" for b in later_blocks):
        return f"a base of channel {channel} was written after the last execution"
    try:
        modes.old(history, cursor)
        modes.changes(history, cursor, pin.head, has_run=True)
    except BlockCollected:
        return f"blocks of channel {channel} after the last execution were collected"
    return ""


def _plan_read(mode: str, history: History, pin: Pin, staged: StagedBlockPlaceholder | None) -> Read:
    if mode == "old":
        return modes.old(history, pin.cursor or 0)
    since = pin.cursor or 0
    if mode == "new":
        read: Snapshot | Change = modes.changes(history, since, pin.head, has_run=pin.has_run)
    else:
        read = modes.snapshot(history, pin.head)
    return read if staged is None else modes.with_staged_block(read, staged, history, since)


def _placeholder_if_other_task_writes(
    binding: Binding, reading_task: str | None, port: str, task_histories: _TaskHistories
) -> StagedBlockPlaceholder | None:
    writer = binding.workflowette.writer(port)
    if writer is None or writer.name == reading_task:
        return None
    edge = next(e for e in writer.produces if e.port == port)
    channel = binding.channel(port)
    own_merge = None if channel is None else edge.options.own_merge(channel.merge)
    kind = _output_kind(binding, writer, edge, task_histories)
    return StagedBlockPlaceholder(
        port, kind, own_merge, None if channel is None or own_merge is None else channel.merge
    )


def _channel_name(binding: Binding, port: str) -> str | None:
    channel = binding.channel(port)
    return None if channel is None else channel.name


def _cursor_moves(binding: Binding, pins: Mapping[str, Pin], partition: str) -> tuple[MoveCursor, ...]:
    written = {c.name for c in binding.writes}
    return tuple(
        MoveCursor(
            binding.name,
            c.name,
            pins[c.name].cursor or 0,
            pins[c.name].head,
            follows_own_write=c.name in written,
            partition=partition,
            channel_partition=pins[c.name].partition,
        )
        for c in binding.cursor_channels
    )


def _required_heads(binding: Binding, pins: Mapping[str, Pin]) -> tuple[RequireHead, ...]:
    """Preconditions that channels have not changed: channels that are read and written, or written as a base (R6)."""
    read_and_written = {c.name for c in (*binding.reads, *binding.channels_read_by_checks)} & {
        c.name for c in binding.writes
    }
    required_channels = read_and_written | {c.name for c in binding.base_writes}
    return tuple(RequireHead(c, pins[c].head, pins[c].partition) for c in sorted(required_channels))
