"""State of executions in this process: pinned histories, task reports, and rows that tasks pass on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field, replace

from nova_assets.catalog.catalog import Catalog
from nova_assets.execution.begin_request import load_pinned_history
from nova_assets.execution.shared_rows import FewRowsReader
from nova_assets.model.binding import Binding
from nova_assets.model.commit import CommitRequest
from nova_assets.model.engine import Frame
from nova_assets.model.execution import Execution, TaskReport
from nova_assets.model.partition_rule import FewRows, InputState
from nova_assets.model.project import Project
from nova_assets.model.timeline import History
from nova_assets.plan.run import plan_run, queried_partitions_by_channel
from nova_assets.plan.run_plan import RunPlan

PortFrames = MutableMapping[tuple[str, str], Frame]
"""(execution id, port) -> frame that is passed on without being written."""


@dataclass(frozen=True, slots=True)
class RunState:
    """State of one execution in this process: the execution, its binding, and the histories behind its pins.

    Args:
        histories: channel -> its history up to the pinned head.
        reports: task -> its report, if the task ran in this process.
        is_backfill: whether the result of a maintained dataset is marked to be computed as a whole.
        few_rows: function from a channel to its rows at the pinned head; None if they are many.
    """

    execution: Execution
    binding: Binding
    histories: Mapping[str, History]
    reports: dict[str, TaskReport] = field(default_factory=dict)
    is_backfill: bool = False
    few_rows: Callable[[str], FewRows | None] = lambda channel: None

    def plan(self, ports_without_new_data: frozenset[str] = frozenset()) -> RunPlan:
        execution = self.execution
        return plan_run(
            self.binding,
            execution.pins,
            self.histories,
            execution.partition,
            ports_without_new_data,
            execution.started_at,
            self.few_rows,
        )


class RunStateCache:
    """Run states and passed-on frames of the executions that this process works for.

    Args:
        few_rows: reader of small channels.
    """

    def __init__(self, few_rows: FewRowsReader) -> None:
        self._few_rows = few_rows
        self.frames_by_port: PortFrames = {}
        self._run_states: dict[tuple[str, int], RunState] = {}

    def load(self, execution: Execution, binding: Binding, catalog: Catalog) -> RunState:
        """Run state of an execution. Its pinned histories are loaded once per process."""
        key = (execution.id, execution.epoch)
        if key not in self._run_states:
            histories = {c: load_pinned_history(catalog, binding, p) for c, p in execution.pins.items()}
            self._run_states[key] = RunState(
                execution,
                binding,
                histories,
                is_backfill=_is_marked_dirty(execution, binding, catalog),
                few_rows=self._few_rows.at_pins(execution.pins.values()),
            )
        return self._run_states[key]

    def forget(self, execution: Execution) -> None:
        self._run_states.pop((execution.id, execution.epoch), None)
        for key in [k for k in self.frames_by_port if k[0] == execution.id]:
            del self.frames_by_port[key]


def _is_marked_dirty(execution: Execution, binding: Binding, catalog: Catalog) -> bool:
    """Whether the result of a maintained dataset is marked for a backfill. Other tasks always compute everything."""
    outputs = {(c.name, execution.partition) for c in binding.writes} if binding.is_maintained else set()
    return bool(outputs) and any((m.channel, m.partition) in outputs for m in catalog.scheduler.dirty_partitions())


def with_backfill_outcome(request: CommitRequest, run: RunState, project: Project, catalog: Catalog) -> CommitRequest:
    """The commit request of an execution, with what it means for the backfills of its partition."""
    if not run.binding.is_scoped:
        return request
    has_not_seen_mark = run.binding.is_maintained and not run.is_backfill
    written = {b.channel for b in request.added_blocks if b.takes_sequence_number}
    return replace(
        request,
        keeps_dirty_marks=has_not_seen_mark or _has_read_dirty_partition(run, project, catalog),
        recomputed_without_change=tuple(
            (c.name, run.execution.partition) for c in run.binding.writes if c.name not in written
        ),
    )


def _has_read_dirty_partition(run: RunState, project: Project, catalog: Catalog) -> bool:
    """Whether the execution read a partition of a dataset that is marked for a backfill, so that its own mark has to
    stay.
    """
    datasets = {c.name for b in project.bindings if b.is_scoped for c in b.writes}
    dirty_partitions = {(m.channel, m.partition) for m in catalog.scheduler.dirty_partitions() if m.channel in datasets}
    if not dirty_partitions:
        return False
    if run.binding.reads_all_partitions:
        written = {c.name for c in run.binding.writes}
        return any(
            (channel, block.partition) in dirty_partitions
            for channel, history in run.histories.items()
            if channel not in written
            for block in history.blocks
        )
    existing_by_channel = {c: {b.partition for b in h.blocks} for c, h in run.histories.items()}
    execution = run.execution
    inputs = InputState(lambda name: existing_by_channel.get(name, ()), run.few_rows)
    partitions_by_channel = queried_partitions_by_channel(
        run.binding, execution.partition, execution.started_at, inputs
    )
    return any(
        (channel.name, p) in dirty_partitions
        for channel, partitions in partitions_by_channel.items()
        for p in partitions
    )
