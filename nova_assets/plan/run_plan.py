"""Plan of a run: the files to read and how to combine them, the tasks, and the blocks to stage and commit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any, Literal

from nova_assets.model import reads
from nova_assets.model.block import Kind
from nova_assets.model.block_options import NO_OPTIONS, BlockOptions
from nova_assets.model.commit import MoveCursor, RequireHead
from nova_assets.model.edge import Mode
from nova_assets.model.execution import Pin
from nova_assets.model.provenance import ChannelRead
from nova_assets.model.read_strategy import ReadStrategy
from nova_assets.model.reads import DeltaChain, EmptyRead, Read, SnapshotAsInserts
from nova_assets.model.resources import NO_LIMITS, Parallelism, Resources
from nova_assets.model.text_format import format_bytes, format_read, format_read_totals
from nova_assets.model.text_table import TextTable
from nova_assets.plan.partial_reads import stored_blocks
from nova_assets.plan.read_strategy import best_estimate, estimate_strategies
from nova_assets.short_repr import short_repr

Handover = Literal["stage", "pass"]
"""How an output reaches its readers: ``stage`` writes it, ``pass`` passes an unevaluated frame."""


@dataclass(frozen=True, slots=True)
class Input:
    """One parameter of a task with its reads by mode: three for a ``View``, otherwise one.

    Args:
        is_lazy: whether the task receives a function that loads the rows.
        reason_without_change: why the change since the last execution cannot be read; empty if it can. Only for an
            input whose changes have no cursor. All its rows are then new.
    """

    __repr__ = short_repr

    name: str
    port: str
    mode: Mode
    channel: str | None
    reads: Mapping[str, Read]
    keys_of: str | None = None
    on: tuple[str, ...] = ()
    reason_without_change: str = ""
    is_lazy: bool = False

    @property
    def is_new(self) -> bool:
        return self.mode in ("new", "changes")

    @property
    def is_new_only(self) -> bool:
        """Whether the task gets nothing but rows of new blocks. The difference of two versions also has old rows."""
        return self.mode == "new" and isinstance(self.reads["new"], DeltaChain | EmptyRead | SnapshotAsInserts)

    @property
    def streamed_reads(self) -> tuple[Read, ...]:
        """Reads whose rows go through the task. The rows of others are looked up by keys."""
        if self.mode == "matching":
            return ()
        return (self.reads["new"],) if self.mode == "changes" else tuple(self.reads.values())


@dataclass(frozen=True, slots=True)
class Output:
    """One port that a task writes."""

    __repr__ = short_repr

    port: str
    channel: str | None
    kind: Kind
    handover: Handover
    options: BlockOptions = NO_OPTIONS


@dataclass(frozen=True, slots=True)
class Step:
    """One task with its predecessors, inputs and outputs."""

    __repr__ = short_repr

    task: str
    after: tuple[str, ...]
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    skip_if_no_new: bool


@dataclass(frozen=True, slots=True)
class PlannedCheck:
    """One data check with its inputs; it runs after every task has staged its output.

    Args:
        channel: channel under test.
        port: port of that channel.
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
        pins: pinned versions of each channel.
        steps: the tasks, in an executable order.
        cursors: cursors that the commit moves.
        heads: channels that must still have their pinned heads when the execution commits (R6).
        checks: data checks that run before the commit.
        resources: limits of the binding.
    """

    __repr__ = short_repr

    binding: str
    partition: str
    pins: Mapping[str, Pin]
    steps: tuple[Step, ...]
    cursors: tuple[MoveCursor, ...]
    heads: tuple[RequireHead, ...]
    checks: tuple[PlannedCheck, ...] = ()
    resources: Resources = NO_LIMITS

    @property
    def parallelism(self) -> Parallelism:
        """Degree of parallelism of the execution, by its limits and the bytes that it reads."""
        return plan_parallelism(self.resources, (r for s in self.steps for i in s.inputs for r in i.streamed_reads))

    def recorded_reads(self, pins: Mapping[str, Pin]) -> tuple[ChannelRead, ...]:
        """What the commit records as read, by the pins of the execution."""
        inputs: dict[str, list[Input]] = {}
        for i in (i for s in self.steps for i in s.inputs if i.channel in pins):
            inputs.setdefault(i.channel or "", []).append(i)
        return tuple(
            ChannelRead(
                channel,
                0 if any(i.reason_without_change for i in of_channel) else pins[channel].cursor,
                pins[channel].head,
                pins[channel].partition,
                all(i.is_new_only for i in of_channel),
            )
            for channel, of_channel in inputs.items()
        )

    def step(self, task: str) -> Step:
        return next(s for s in self.steps if s.task == task)

    def tables(self, *, show_all_blocks: bool = False, forced_strategy: ReadStrategy | None = None) -> list[TextTable]:
        """The plan as tables: one for each task and check, and one for the commit.

        Args:
            show_all_blocks: name every block of a read, instead of the first and last block of a long read.
            forced_strategy: the read strategy of the deployment's settings.
        """
        tables = [_step_table(n, step, show_all_blocks, forced_strategy) for n, step in enumerate(self.steps, start=1)]
        for check in self.checks:
            caption = f"check {check.check} of {check.channel}{'' if check.blocking else ', not blocking'}"
            tables.append(_reads_table(caption, check.inputs, show_all_blocks, forced_strategy))
        parallelism = self.parallelism
        if self.resources != NO_LIMITS or parallelism.shuffle_partitions > 1:
            tables.append(_parallelism_table(parallelism))
        return [*tables, *([_commit_table(self)] if self.cursors or self.heads else [])]

    def _repr_html_(self) -> str:
        """The plan for a notebook, as the tables of ``nova plan``."""
        return "".join(table.to_html() for table in self.tables())

    def as_json(self) -> dict[str, Any]:
        return {
            "binding": self.binding,
            "partition": self.partition,
            "pins": {c: {"head": p.head, "cursor": p.cursor, **_scope_json(p.partition)} for c, p in self.pins.items()},
            "steps": [_step_json(s) for s in self.steps],
            "parallelism": self.parallelism.as_json(),
            **({"checks": [_check_json(c) for c in self.checks]} if self.checks else {}),
            "cursors": [
                {
                    "channel": c.channel,
                    "from": c.expected,
                    "to": "the commit's own number" if c.follows_own_write else c.to,
                }
                for c in self.cursors
            ],
            "requires": [{"channel": h.channel, "head": h.seq, **_scope_json(h.scope)} for h in self.heads],
        }


def _scope_json(scope: str) -> dict[str, str]:
    return {"scope": scope} if scope else {}


def _input_json(task_input: Input) -> dict[str, Any]:
    return {
        "input": task_input.name,
        "channel": task_input.channel,
        "mode": task_input.mode,
        **({} if task_input.keys_of is None else {"keys_of": task_input.keys_of}),
        "by": {
            m: {**reads.read_as_json(r), "ways": [e.as_json() for e in estimate_strategies(r)]}
            for m, r in task_input.reads.items()
        },
    }


def _check_json(check_plan: PlannedCheck) -> dict[str, Any]:
    return {
        "check": check_plan.check,
        "channel": check_plan.channel,
        "blocking": check_plan.blocking,
        "reads": [_input_json(i) for i in check_plan.inputs],
    }


def _step_json(step: Step) -> dict[str, Any]:
    return {
        "task": step.task,
        "after": list(step.after),
        "reads": [_input_json(i) for i in step.inputs],
        "writes": [
            {"port": o.port, "channel": o.channel, "kind": o.kind, "handover": o.handover, **o.options.as_json()}
            for o in step.outputs
        ],
    }


def _step_table(n: int, step: Step, show_all_blocks: bool, forced_strategy: ReadStrategy | None) -> TextTable:
    after = f", after {', '.join(step.after)}" if step.after else ""
    skip = "; skipped without new data" if step.skip_if_no_new else ""
    table = _reads_table(f"{n}. {step.task}{after}{skip}", step.inputs, show_all_blocks, forced_strategy)
    for output, first in zip(step.outputs, _first_then_empty("writes"), strict=False):
        handover_text = (
            "" if output.channel is not None else "private" + (", not written" if output.handover == "pass" else "")
        )
        table.add(first, _format_port_and_channel(output), output.kind, handover_text or str(output.options))
    return table


def _reads_table(
    caption: str, inputs: Sequence[Input], show_all_blocks: bool, forced_strategy: ReadStrategy | None
) -> TextTable:
    columns = ("", "port", "mode", "blocks", "files", "rows", "bytes", "way", "CPU")
    table = TextTable(columns, ("files", "rows", "bytes", "CPU"), shorten=("blocks",), caption=caption)
    reads_by_mode = ((i, mode, read) for i in inputs for mode, read in i.reads.items())
    for (task_input, mode, read), first in zip(reads_by_mode, _first_then_empty("reads"), strict=False):
        table.add(
            first,
            _format_port_and_channel(task_input),
            "matching" if task_input.mode == "matching" else mode,
            format_read(read, show_all_blocks),
            *format_read_totals(read),
            *_format_strategy_and_cost(task_input, read, forced_strategy),
        )
    return table


def _first_then_empty(text: str) -> Iterator[str]:
    return chain([text], repeat(""))


def _format_port_and_channel(port: Input | Output) -> str:
    return port.port if port.channel in (None, port.port) else f"{port.port} = {port.channel}"


def _format_strategy_and_cost(task_input: Input, read: Read, forced_strategy: ReadStrategy | None) -> tuple[str, str]:
    """Read strategy and its cost. A ``matching`` input has no cost, because it depends on the number of keys."""
    estimates = estimate_strategies(read)
    if task_input.mode == "matching":
        return ("by key" if any(e.strategy == "buckets" for e in estimates) else "spark"), ""
    best = best_estimate(estimates, forced_strategy)
    return ("", "") if best is None else (best.strategy, f"{best.seconds:.1f} s")


def _parallelism_table(parallelism: Parallelism) -> TextTable:
    table = TextTable(("Spark", ""))
    table.add("cores", "all" if parallelism.max_cores is None else f"at most {parallelism.max_cores}")
    why = "as stated" if parallelism.is_stated else f"at least, for {format_bytes(parallelism.input_bytes)}"
    table.add("parts of a shuffle", f"{parallelism.shuffle_partitions}, {why}")
    return table


def _commit_table(run_plan: RunPlan) -> TextTable:
    table = TextTable(("commit", "channel", ""))
    for cursor, first in zip(run_plan.cursors, _first_then_empty("moves cursor"), strict=False):
        target = "its own number, if it takes one" if cursor.follows_own_write else cursor.to
        table.add(first, cursor.channel, f"{cursor.expected} → {target}")
    for head, first in zip(run_plan.heads, _first_then_empty("requires"), strict=False):
        table.add(first, head.channel, f"still at {head.seq}")
    return table


SHUFFLE_PARTITION_BYTES = 64 * 1024 * 1024
"""Bytes of input files per part of a shuffle (decision 0086). Spark joins parts that turn out small, but it does not
divide a part that is too large for its memory.
"""

MAX_SHUFFLE_PARTITIONS = 4096
"""Each part costs every task of a shuffle a little, even if it is empty."""


def plan_parallelism(resources: Resources, reads: Iterable[Read]) -> Parallelism:
    """Degree of parallelism of an execution. The number of parts of its shuffles grows with the bytes that it reads.

    Args:
        resources: what the binding states.
        reads: reads of channels whose rows go through the tasks.
    """
    bytes_by_block = {b.id: b.bytes for read in reads for b in stored_blocks(read)}
    input_bytes = sum(bytes_by_block.values())
    needed = min(MAX_SHUFFLE_PARTITIONS, -(-input_bytes // SHUFFLE_PARTITION_BYTES))
    is_stated = resources.shuffle_partitions is not None
    return Parallelism(resources.max_cores, resources.shuffle_partitions or max(1, needed), is_stated, input_bytes)
