"""From pins to a ``RunPlan``: which files to read and how to combine them, which tasks, what to stage, what to commit.

``nova plan`` prints this very object and the runtime interprets it; nothing decides twice (DESIGN §4).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from nova_assets.errors import ModelChanged
from nova_assets.model import reads
from nova_assets.model.binding import Binding
from nova_assets.model.block import Kind
from nova_assets.model.channel import Channel
from nova_assets.model.commit import HeadAt, MoveCursor
from nova_assets.model.data_check import Check
from nova_assets.model.edge import Consumes, Mode
from nova_assets.model.execution import Pin
from nova_assets.model.partitions import WHOLE, partition_values, scope_of
from nova_assets.model.reads import Change, FromPort, Port, Read, Snapshot
from nova_assets.model.scoped_reads import Existing, common_scope
from nova_assets.model.task import Task
from nova_assets.model.timeline import History
from nova_assets.plan import modes
from nova_assets.plan.read_strategy import ways
from nova_assets.short_repr import short_repr

Handover = Literal["stage", "pass"]
"""How an output reaches its readers: written to staging, or handed on as a frame that is not evaluated yet."""


@dataclass(frozen=True, slots=True)
class Input:
    """One parameter of a task: the reads behind it, by mode (three for a ``View``, otherwise one)."""

    __repr__ = short_repr

    name: str
    port: str
    mode: Mode
    channel: str | None
    reads: Mapping[str, Read]
    keys_of: str | None = None
    on: tuple[str, ...] = ()

    @property
    def is_new(self) -> bool:
        return self.mode in ("new", "changes")


@dataclass(frozen=True, slots=True)
class Output:
    """One port that a task writes."""

    __repr__ = short_repr

    port: str
    channel: str | None
    kind: Kind
    handover: Handover


@dataclass(frozen=True, slots=True)
class Step:
    """One task: what it waits for, reads and writes."""

    __repr__ = short_repr

    task: str
    after: tuple[str, ...]
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    skip_if_no_new: bool


@dataclass(frozen=True, slots=True)
class Look:
    """One check: what it looks at, once every task has staged what it made.

    Args:
        channel: the one that it is about.
        port: of that channel.
    """

    __repr__ = short_repr

    check: str
    channel: str
    port: str
    inputs: tuple[Input, ...]
    blocking: bool


@dataclass(frozen=True, slots=True)
class RunPlan:
    """Everything that an execution of a binding will do.

    Args:
        pins: what is read of each channel.
        steps: the tasks, in an order in which they can run.
        cursors: cursors that the commit moves.
        heads: channels that must still be at their pinned heads (R6).
        checks: what is looked at before the commit.
    """

    __repr__ = short_repr

    binding: str
    partition: str
    pins: Mapping[str, Pin]
    steps: tuple[Step, ...]
    cursors: tuple[MoveCursor, ...]
    heads: tuple[HeadAt, ...]
    checks: tuple[Look, ...] = ()

    @property
    def consumed(self) -> tuple[str, ...]:
        """The channels that some task reads."""
        return tuple(dict.fromkeys(i.channel for s in self.steps for i in s.inputs if i.channel is not None))

    def step(self, task: str) -> Step:
        return next(s for s in self.steps if s.task == task)

    def as_json(self) -> dict[str, Any]:
        return {
            "binding": self.binding,
            "partition": self.partition,
            "pins": {c: {"head": p.head, "cursor": p.cursor, **_scope(p.partition)} for c, p in self.pins.items()},
            "steps": [_step_json(s) for s in self.steps],
            **({"checks": [_look_json(c) for c in self.checks]} if self.checks else {}),
            "cursors": [
                {"channel": c.channel, "from": c.expected, "to": "the commit's own number" if c.own else c.to}
                for c in self.cursors
            ],
            "requires": [{"channel": h.channel, "head": h.seq, **_scope(h.scope)} for h in self.heads],
        }


def channels_to_pin(binding: Binding) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The channels whose heads an execution pins, and those of them whose cursors it pins."""
    heads = dict.fromkeys(c.name for c in (*binding.reads, *binding.writes, *binding.looks_at))
    return tuple(heads), tuple(c.name for c in binding.cursor_channels)


def scopes(binding: Binding, partition: str, now: datetime, existing: Existing) -> dict[str, str]:
    """Channel -> the scope in which an execution of this partition reads and writes it (R13).

    Channels that share a dimension are read in the same partition of it, others whole; and where a query says what is
    read, in the narrowest scope that holds that.

    Args:
        now: when it begins.
        existing: the partitions that channels have.
    """
    own = partition_values(partition)
    channels = dict.fromkeys((*binding.reads, *binding.writes, *binding.looks_at))
    found = {c.name: scope_of([d.column for d in c.partitions if d.column in own], partition) for c in channels}
    written = {c.name for c in binding.writes}
    for channel, names in asked_for(binding, partition, now, existing).items():
        if channel.name in written:
            continue
        # A cursor stands for the same partitions each time; and what is discovered in data may come until it is pinned.
        is_open = channel in binding.cursor_channels or any(d.kind == "dynamic" for d in channel.partitions)
        found[channel.name] = WHOLE if is_open else common_scope(channel.partition_columns, names)
    return found


def asked_for(binding: Binding, partition: str, now: datetime, existing: Existing) -> dict[Channel, frozenset[str]]:
    """The partitions that queries read of channels, all of their places together."""
    found: dict[Channel, frozenset[str]] = {}
    for task in binding.tasks:
        asked = {} if task.scoped is None else task.scoped.inputs(partition, now, existing)
        for edge in task.consumes:
            channel = binding.channel(edge.port)
            if channel is not None and edge.name in asked:
                found[channel] = found.get(channel, frozenset()) | asked[edge.name]
    return found


def since_needed(binding: Binding, pin: Pin) -> int | None:
    """After which number a plan needs a channel's blocks; None where it needs snapshots, too.

    A channel may have very many: who only reads what is new, or only adds, need not look at the others.
    """
    modes_read = {e.mode for t in binding.tasks for e in t.consumes if _name(binding, e.port) == pin.channel}
    looked_at = {e.mode for c in binding.checks for e in c.consumes if _name(binding, e.port) == pin.channel}
    if pin.channel in {c.name for c in binding.base_writes} or looked_at - {"new"}:
        return None
    if not modes_read:
        return pin.head
    written = pin.channel in {c.name for c in binding.writes}
    return pin.cursor if modes_read == {"new"} and pin.cursor and not written else None


def oldest_needed(pin: Pin) -> int:
    """The oldest number of which a plan needs a snapshot: that of the cursor, for who reads what was there before; 0
    where everything is needed."""
    if pin.has_run:
        return pin.cursor or 0
    return pin.cursor or pin.head


def plan_run(
    binding: Binding,
    pins: Mapping[str, Pin],
    histories: Mapping[str, History],
    partition: str = WHOLE,
    skipped: frozenset[str] = frozenset(),
    now: datetime | None = None,
) -> RunPlan:
    """The plan of one execution.

    Raises:
        ModelChanged: a task would write a delta on a channel whose merge model was changed (R18).

    Args:
        binding: what is run.
        pins: by channel, as the catalog fixed them at begin.
        histories: by channel, up to the pinned heads.
        skipped: ports whose writers had nothing new to do: their readers see the channel as it is pinned.
        now: when it began; what a query reads follows from it.
    """
    steps = tuple(
        _step(binding, task, pins, _seen(task, histories, partition, now), skipped)
        for task in binding.workflowette.in_order()
    )
    for step in steps:
        _check_models(step, histories, skipped)
    checks = tuple(_look(binding, check, pins, histories, skipped) for check in binding.checks)
    cursors, heads = _cursors(binding, pins, partition), _heads(binding, pins)
    return RunPlan(binding.name, partition, dict(pins), steps, cursors, heads, checks)


@dataclass(frozen=True, slots=True)
class _Seen:
    """The histories that a task reads: of channels, and of what its query says of an input alone."""

    channels: Mapping[str, History]
    inputs: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def of(self, channel: str, name: str) -> History:
        history = self.channels[channel]
        return history.only(self.inputs[name]) if name in self.inputs else history


def _seen(task: Task, histories: Mapping[str, History], partition: str, now: datetime | None) -> _Seen:
    if task.scoped is None:
        return _Seen(histories)
    assert now is not None
    existing = {c: {b.partition for b in h.blocks} for c, h in histories.items()}
    return _Seen(histories, task.scoped.inputs(partition, now, lambda channel: existing.get(channel, ())))


def _step(binding: Binding, task: Task, pins: Mapping[str, Pin], histories: _Seen, skipped: frozenset[str]) -> Step:
    inputs = tuple(_input(binding, task.name, edge, pins, histories, skipped) for edge in task.consumes)
    handover = _handover(binding, task)
    outputs = tuple(
        Output(e.port, _name(binding, e.port), e.kind, "stage" if binding.channel(e.port) else handover)
        for e in task.produces
    )
    return Step(task.name, binding.workflowette.upstream(task), inputs, outputs, task.skip_if_no_new)


def _check_models(step: Step, histories: Mapping[str, History], skipped: frozenset[str]) -> None:
    if step.skip_if_no_new and all(reads.is_empty(i.reads["new"]) for i in step.inputs if i.is_new):
        return
    for output in step.outputs:
        history = None if output.channel is None or output.port in skipped else histories[output.channel]
        if history is not None and (output.kind == "delta" or history.scope):
            check_model_unchanged(history)


def _look(
    binding: Binding, check: Check, pins: Mapping[str, Pin], histories: Mapping[str, History], skipped: frozenset[str]
) -> Look:
    """A check sees its outputs as this execution changes them: as if the cursor stood at the pinned head."""
    written = {c.name for c in binding.writes}
    seen = {c: replace(p, cursor=p.head) if c in written else p for c, p in pins.items()}
    inputs = tuple(_input(binding, None, edge, seen, _Seen(histories), skipped) for edge in check.consumes)
    return Look(check.name, binding.channels[check.port].name, check.port, inputs, check.blocking)


def _handover(binding: Binding, task: Task) -> Handover:
    """Private rows need not be written when evaluating them again cannot be seen: one output, read once, or a
    deterministic task (R4). What nobody keeps is cheapest not written."""
    private = all(binding.channel(e.port) is None for e in task.produces)
    readers = [r for e in task.produces for r in binding.workflowette.readers(e.port)]
    once = (
        len(task.produces) == 1
        and len(readers) == 1
        and sum(e.port == task.produces[0].port for e in readers[0].consumes) == 1
    )
    single_output_reader = once and len(readers[0].produces) <= 1
    if any(binding.workflowette.checked(e.port) for e in task.produces):
        return "stage"
    return "pass" if private and (task.deterministic or single_output_reader) else "stage"


def _input(
    binding: Binding,
    reader: str | None,
    edge: Consumes,
    pins: Mapping[str, Pin],
    histories: _Seen,
    skipped: frozenset[str],
) -> Input:
    channel = binding.channel(edge.port)
    if channel is None:
        return Input(edge.name, edge.port, edge.mode, None, {edge.mode: Port(edge.port)})
    history, pin = histories.of(channel.name, edge.name), pins[channel.name]
    wanted = {"changes": ("all", "new", "old"), "matching": ("all",)}.get(edge.mode, (edge.mode,))
    staged = None if edge.port in skipped else _staged_by_another(binding, reader, edge.port)
    found = {mode: _read(mode, history, pin, staged) for mode in wanted}
    on = edge.on or channel.merge.key
    return Input(
        edge.name, edge.port, edge.mode, channel.name, found, edge.keys_of, on if edge.mode == "matching" else ()
    )


def _read(mode: str, history: History, pin: Pin, staged: FromPort | None) -> Read:
    if mode == "old":
        return modes.old(history, pin.cursor or 0)
    since = pin.cursor or 0
    if mode == "new":
        read: Snapshot | Change = modes.changes(history, since, pin.head, has_run=pin.has_run)
    else:
        read = modes.snapshot(history, pin.head)
    return read if staged is None else modes.with_staged(read, staged, history, since)


def _staged_by_another(binding: Binding, reader: str | None, port: str) -> FromPort | None:
    writer = binding.workflowette.writer(port)
    if writer is None or writer.name == reader:
        return None
    return FromPort(port, next(e.kind for e in writer.produces if e.port == port))


def _name(binding: Binding, port: str) -> str | None:
    channel = binding.channel(port)
    return None if channel is None else channel.name


def _cursors(binding: Binding, pins: Mapping[str, Pin], partition: str) -> tuple[MoveCursor, ...]:
    written = {c.name for c in binding.writes}
    return tuple(
        MoveCursor(
            binding.name,
            c.name,
            pins[c.name].cursor or 0,
            pins[c.name].head,
            own=c.name in written,
            partition=partition,
            channel_partition=pins[c.name].partition,
        )
        for c in binding.cursor_channels
    )


def _heads(binding: Binding, pins: Mapping[str, Pin]) -> tuple[HeadAt, ...]:
    """Channels both read and written, or written as a base, must not have moved (R6)."""
    both = {c.name for c in (*binding.reads, *binding.looks_at)} & {c.name for c in binding.writes}
    held = both | {c.name for c in binding.base_writes}
    return tuple(HeadAt(c, pins[c].head, pins[c].partition) for c in sorted(held))


def _scope(scope: str) -> dict[str, str]:
    return {"scope": scope} if scope else {}


def _input_json(given: Input) -> dict[str, Any]:
    return {
        "input": given.name,
        "channel": given.channel,
        "mode": given.mode,
        **({} if given.keys_of is None else {"keys_of": given.keys_of}),
        "by": {m: {**reads.as_json(r), "ways": [e.as_json() for e in ways(r)]} for m, r in given.reads.items()},
    }


def _look_json(look: Look) -> dict[str, Any]:
    return {
        "check": look.check,
        "channel": look.channel,
        "blocking": look.blocking,
        "reads": [_input_json(i) for i in look.inputs],
    }


def _step_json(step: Step) -> dict[str, Any]:
    return {
        "task": step.task,
        "after": list(step.after),
        "reads": [_input_json(i) for i in step.inputs],
        "writes": [
            {"port": o.port, "channel": o.channel, "kind": o.kind, "handover": o.handover} for o in step.outputs
        ],
    }


def check_model_unchanged(history: History) -> None:
    """Check that a channel can take a delta: after a change of its merge model, a base has to come first (R18).

    Raises:
        ModelChanged: no base has come since the change.
    """
    if history.last_merge is not None and history.last_merge.as_json() != history.merge.as_json():
        raise ModelChanged(
            f"the merge model of channel {history.channel!r} was changed after version {history.head}",
            found="a delta" if not history.scope else f"a block for {history.scope} alone",
            expected="a base of the whole channel, with which the new model takes effect (R18)",
            next=f"nova insert {history.channel} FILE --kind base",
            channel=history.channel,
        )
