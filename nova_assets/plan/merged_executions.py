"""Merged executions: rows that several due executions need are computed once (Nova, section 4). Pure.

Two executions need the same rows if they read the same blocks in the same way, or if they begin with the same function
over such reads. The rows are then kept between the executions if that costs less than computing them again. Each
execution still begins, commits and fails by itself.

Costs are seconds of CPU, with rates measured on two machines (decision 0084). Only their comparison matters.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nova_assets.model.block import Block
from nova_assets.model.reads import (
    ChangeUnion,
    DeltaChain,
    EmptyRead,
    PrivatePortRead,
    Read,
    Snapshot,
    SnapshotAsInserts,
    SnapshotDiff,
    describe_read,
    is_certainly_empty,
    source_blocks,
)
from nova_assets.model.task import Task
from nova_assets.model.workflowette import Workflowette
from nova_assets.plan.partial_reads import stored_blocks
from nova_assets.plan.read_strategy import (
    DECODE_BYTE_SECONDS,
    DECODE_ROW_SECONDS,
    estimate_strategies,
    seconds_without_start,
)
from nova_assets.plan.run_plan import Input, RunPlan, Step

PYTHON_ROW_SECONDS = 1.5e-6
"""Seconds for a row in a Python function in Spark's workers: half of it for passing the row there and back, half for
a function that does little. Most do more, so sharing pays more than is estimated.
"""

KEEP_ROW_SECONDS, KEEP_BYTE_SECONDS = 200e-9, 40e-9
"""Seconds for keeping a row, and a byte of its Parquet file, in Spark's memory. Reading kept rows costs what reading
them from a Parquet file costs.
"""

LEAST_SAVING = 0.1
"""Share of the time that sharing has to save. Estimates are not more exact than that."""


@dataclass(frozen=True, slots=True)
class RowsKey:
    """What determines rows: the function and its arguments, or a read alone.

    Args:
        function: the function of a task; None for the rows of a read.
        inputs: what determines each argument, by name.
        read: kind and blocks of the read; empty for the rows of a function.
    """

    function: Callable[..., Any] | None = None
    inputs: tuple[tuple[str, RowsKey], ...] = ()
    read: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class SharedRows:
    """Rows that several due executions need, with the decision whether they are computed once.

    Args:
        key: what determines the rows.
        what: the rows, as people read it: ``task parse over raw Δ(3→4)``.
        executions: names of the executions that need the rows.
        rows, bytes: size of the files that are read for them.
        read_seconds: estimated CPU seconds for reading these files once, without what each query costs anyway.
        runs_python: whether the rows pass through a Python function in Spark's workers; None if that is not known yet.
    """

    key: RowsKey = field(repr=False)
    what: str
    executions: tuple[str, ...]
    rows: int
    bytes: int
    read_seconds: float
    runs_python: bool | None = None

    @property
    def separate_seconds(self) -> float:
        """Estimated CPU seconds if each execution computes the rows."""
        return len(self.executions) * self._compute_seconds

    @property
    def shared_seconds(self) -> float:
        """Estimated CPU seconds if the rows are computed once and kept."""
        keep = self.rows * KEEP_ROW_SECONDS + self.bytes * KEEP_BYTE_SECONDS
        take = self.rows * DECODE_ROW_SECONDS + self.bytes * DECODE_BYTE_SECONDS
        return self._compute_seconds + keep + len(self.executions) * take

    @property
    def is_shared(self) -> bool:
        """Whether the rows are computed once, as far as is known."""
        return self.shared_seconds < (1 - LEAST_SAVING) * self.separate_seconds

    @property
    def _compute_seconds(self) -> float:
        return self.read_seconds + (self.rows * PYTHON_ROW_SECONDS if self.runs_python else 0.0)

    def knowing(self, runs_python: bool) -> SharedRows:
        """The same rows, now that it is known whether they pass through Python."""
        return replace(self, runs_python=runs_python)

    def __str__(self) -> str:
        how = "computed once" if self.is_shared else "computed by each"
        return (
            f"{self.what}, for {', '.join(self.executions)}: {how} "
            f"(once {self.shared_seconds:.1f} s of CPU, by each {self.separate_seconds:.1f} s)"
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "rows_of": self.what,
            "executions": list(self.executions),
            "shared": self.is_shared,
            "runs_python": self.runs_python,
            "rows": self.rows,
            "bytes": self.bytes,
            "estimated_cpu_seconds": {
                "shared": round(self.shared_seconds, 3),
                "separate": round(self.separate_seconds, 3),
            },
        }


@dataclass(frozen=True, slots=True)
class PlannedExecution:
    """A due execution with its plan.

    Args:
        name: binding and partition.
    """

    name: str
    workflowette: Workflowette
    plan: RunPlan


def plan_merged_executions(planned: Sequence[PlannedExecution]) -> tuple[SharedRows, ...]:
    """Rows that several of the executions need.

    Rows that are needed only for other common rows are left out: what a common function reads is shared with it.

    Args:
        planned: executions, in the order in which they will run.
    """
    found: dict[RowsKey, _Rows] = {}
    for execution in planned:
        for rows in _rows_of(execution):
            found.setdefault(rows.key, rows).executions.append(execution.name)
    common = [r for r in found.values() if len(set(r.executions)) > 1]
    inner = {(key, tuple(r.executions)) for r in common for _, key in r.key.inputs}
    return tuple(r.shared() for r in common if (r.key, tuple(r.executions)) not in inner)


def read_key(read: Read) -> RowsKey | None:
    """Key of the rows of a read; None if the read has no rows of its own, or blocks that are not written yet."""
    if isinstance(read, PrivatePortRead | EmptyRead) or any(not isinstance(b, Block) for b in source_blocks(read)):
        return None
    return RowsKey(read=_identity_of_read(read))


def _identity_of_read(read: Read) -> tuple[Any, ...]:
    """What determines the rows of a read: its blocks, which never change, and how they are combined."""
    if isinstance(read, SnapshotAsInserts):
        return ("inserts", _identity_of_read(read.snapshot))
    if isinstance(read, SnapshotDiff):
        return ("diff", _identity_of_read(read.old), _identity_of_read(read.new))
    if isinstance(read, ChangeUnion):
        return ("together", *map(_identity_of_read, read.parts))
    assert isinstance(read, Snapshot | DeltaChain)
    bases = len(read.bases) if isinstance(read, Snapshot) else 0
    blocks = tuple((b.id, b.kind) for b in stored_blocks(read))
    return (type(read).__name__, bases, blocks, read.schema, json.dumps(read.merge.as_json(), sort_keys=True))


def task_key(plan: RunPlan, workflowette: Workflowette, step: Step) -> RowsKey | None:
    """Key of the rows that a task returns; None if they depend on more than on its function and blocks.

    That is the case for a task with a context (time, parameters, partition), for a task that looks up keys, and for a
    task without outputs, which is called for its effects. A function that a query made has no key, since it decides by
    its context, too.
    """
    task = workflowette.task(step.task)
    is_plain = inspect.isfunction(task.function) and task.scoped is None and not task.can_replace
    if not is_plain or task.wants_context or not step.outputs:
        return None
    inputs = []
    for task_input in step.inputs:
        key = _input_key(plan, workflowette, task_input)
        if key is None:
            return None
        inputs.append((task_input.name, key))
    return RowsKey(task.function, tuple(inputs)) if inputs else None


def _input_key(plan: RunPlan, workflowette: Workflowette, task_input: Input) -> RowsKey | None:
    if task_input.is_lazy or task_input.mode in ("matching", "changes"):
        return None
    read = task_input.reads[task_input.mode]
    if not isinstance(read, PrivatePortRead):
        return read_key(read)
    writer = workflowette.writer(read.port)
    key = None if writer is None else task_key(plan, workflowette, plan.step(writer.name))
    return None if key is None else RowsKey(key.function, key.inputs, ("port", read.port))


@dataclass(slots=True)
class _Rows:
    key: RowsKey
    what: str
    reads: tuple[Read, ...]
    executions: list[str] = field(default_factory=list)

    def shared(self) -> SharedRows:
        estimates = [e[0] for r in self.reads if (e := estimate_strategies(r))]
        return SharedRows(
            self.key,
            self.what,
            tuple(dict.fromkeys(self.executions)),
            sum(e.rows for e in estimates),
            sum(e.bytes for e in estimates),
            sum(map(seconds_without_start, estimates)),
            None if self.key.function is not None else False,
        )


def _rows_of(execution: PlannedExecution) -> Iterable[_Rows]:
    """Rows that an execution needs and others may need, too."""
    seen: set[RowsKey] = set()
    for step in execution.plan.steps:
        task = execution.workflowette.task(step.task)
        found = [*_reads_of(step), *_rows_of_task(execution, step, task)]
        for rows in found:
            if rows.key not in seen:
                seen.add(rows.key)
                yield rows


def _reads_of(step: Step) -> Iterable[_Rows]:
    for task_input in step.inputs:
        if task_input.is_lazy or task_input.mode in ("matching", "changes"):
            continue
        read = task_input.reads[task_input.mode]
        key = read_key(read)
        if key is not None and not is_certainly_empty(read):
            yield _Rows(key, _describe(task_input, read), (read,))


def _rows_of_task(execution: PlannedExecution, step: Step, task: Task) -> Iterable[_Rows]:
    key = task_key(execution.plan, execution.workflowette, step)
    if key is None:
        return
    reads = tuple(dict.fromkeys(_reads_behind(execution, step)))
    if not all(is_certainly_empty(r) for r in reads):
        inputs = ", ".join(_describe(i, i.reads[i.mode]) for i in step.inputs)
        yield _Rows(key, f"task {task.name} over {inputs}", reads)


def _reads_behind(execution: PlannedExecution, step: Step) -> Iterable[Read]:
    for task_input in step.inputs:
        read = task_input.reads[task_input.mode]
        if not isinstance(read, PrivatePortRead):
            yield read
            continue
        writer = execution.workflowette.writer(read.port)
        if writer is not None:
            yield from _reads_behind(execution, execution.plan.step(writer.name))


def _describe(task_input: Input, read: Read) -> str:
    return describe_read(read) if task_input.channel is None else f"{task_input.channel} {describe_read(read)}"
