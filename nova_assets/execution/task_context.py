"""The context that a task or check gets: what it may ask about its execution, and about earlier executions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from nova_assets.catalog.catalog import Catalog
from nova_assets.execution.input_view import MAX_COMPUTED_ROWS
from nova_assets.execution.run_state import RunState
from nova_assets.masking import get_logger
from nova_assets.model.binding import Binding
from nova_assets.model.engine import Engine
from nova_assets.model.partitions import WHOLE
from nova_assets.model.task import Context, LastExecution, Task
from nova_assets.plan.required_base import reason_for_base
from nova_assets.plan.run_plan import Step

log = get_logger("nova_assets.task")


class FileViewsFactory(Protocol):
    """Factory of file views of channels (``file_views/file_lists``)."""

    def __call__(self, heads: Mapping[str, int]) -> Any:
        """File views of channels at pinned heads."""

    def close(self) -> None: ...


def make_task_context(
    run_state: RunState,
    engine: Engine,
    catalog: Catalog,
    *,
    row_counts: Mapping[str, Mapping[str, int]],
    viewing: Callable[[Mapping[str, int]], Any],
    may_replace: Callable[[str], bool],
    damage_by_port: Mapping[str, str],
) -> Context:
    """The context of a task or check.

    Args:
        row_counts: input -> mode -> rows in the blocks that the mode opens.
        viewing: creates file views of channels at pinned heads.
        may_replace: whether the task may return a ``Replacement`` for an output.
        damage_by_port: output -> why its stored rows cannot be read.
    """
    execution = run_state.execution
    heads = {c: p.head for c, p in execution.pins.items()}
    return Context(
        spark=engine.session,
        partition=execution.partition,
        started=execution.started_at,
        params=run_state.binding.params,
        log=log,
        execution_id=execution.id,
        pins=heads,
        channels=run_state.binding.channels,
        schemas={channel: history.schema for channel, history in run_state.histories.items()},
        next_schemas={c: h.next_schema for c, h in run_state.histories.items() if h.next_schema is not None},
        is_backfill=run_state.is_backfill,
        frame=engine.inputs.to_frame,
        query=engine.queries.create_frame,
        compute=partial(engine.queries.compute, max_rows=MAX_COMPUTED_ROWS),
        schema_of=engine.frames.schema_of,
        optimized_plan=engine.queries.optimized_plan,
        viewing=lambda: viewing(heads),
        may_replace=may_replace,
        reason_for_base=lambda port: damage_by_port.get(port) or _reason_for_base(run_state, port),
        row_counts=row_counts,
        cursors={c: p.cursor for c, p in execution.pins.items()},
        last_execution=partial(last_execution, catalog, run_state.binding, execution.partition),
        is_written_by_others=partial(_is_written_by_others, run_state, catalog),
    )


def has_dropped_partitions(catalog: Catalog, channel: str | None) -> bool:
    """Whether a partition of the channel was ever dropped. A private port, without a channel, has no partitions."""
    return channel is not None and catalog.histories.has_dropped_partitions(channel, ever=True)


def may_replace_output(catalog: Catalog, binding: Binding, task_name: str, port: str, partition: str) -> bool:
    """Whether a task may return a ``Replacement`` for an output.

    Other readers of a port expect the declared kind. A base would bring dropped partitions back (R19), and would
    reopen every sealed group. The base of a dataset's partition replaces this partition only.
    """
    channel, workflowette = binding.channel(port), binding.workflowette
    is_read = workflowette.is_read_by_check(port) or any(r.name != task_name for r in workflowette.readers(port))
    if channel is None or is_read or channel.seal is not None:
        return False
    is_of_dataset_partition = binding.is_scoped and partition != WHOLE
    return is_of_dataset_partition or not has_dropped_partitions(catalog, channel.name)


def must_replace_output(step: Step, task: Task, port: str) -> bool:
    """Whether an output that otherwise takes deltas is planned as a base, because its columns have changed."""
    return task.can_replace and any(o.kind == "base" for o in step.outputs if o.port == port)


def _reason_for_base(run_state: RunState, port: str) -> str:
    binding, partition = run_state.binding, run_state.execution.partition
    history = run_state.histories[binding.channels[port].name]
    return reason_for_base(history, is_computed_per_partition=binding.is_scoped and partition != WHOLE)


def last_execution(catalog: Catalog, binding: Binding, partition: str) -> LastExecution:
    """What the last committed execution of a binding's partition recorded."""
    commit = catalog.commits.last(binding.name, partition)
    if commit is None:
        return LastExecution()
    tasks = commit.details.get("tasks", ())
    written = {channel.name for channel in binding.writes}
    return LastExecution(
        [task.get("facts", {}) for task in tasks],
        [task.get("cpu_seconds") for task in tasks],
        {name: head for name, head in commit.heads.items() if name in written},
    )


def _is_written_by_others(run_state: RunState, catalog: Catalog, port: str, after: int) -> bool:
    """Whether anything but the binding has written to the port's channel between a version and the pinned head."""
    channel, execution = run_state.binding.channels[port].name, run_state.execution
    head = execution.pins[channel].head
    return catalog.histories.is_written_by_others(channel, run_state.binding.name, execution.partition, after, head)
