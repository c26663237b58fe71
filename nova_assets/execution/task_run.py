"""One task of an execution: read its inputs, call its function, stage its outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from nova_assets.crash_points import crash_point
from nova_assets.errors import FileMissing
from nova_assets.execution.damaged_output import find_damaged_output
from nova_assets.execution.input_view import build_view, count_rows
from nova_assets.execution.run_state import PortFrames, RunState
from nova_assets.execution.shared_rows import SharedRowsOfRound, SharedRowsOfTask
from nova_assets.execution.staging import Staging, ports_without_new_data, uncommitted_blocks_by_port
from nova_assets.execution.stopwatch import Stopwatch
from nova_assets.execution.task_context import (
    FileViewsFactory,
    has_dropped_partitions,
    make_task_context,
    may_replace_output,
    must_replace_output,
)
from nova_assets.execution.task_result import TaskResultChecker, task_failed_error
from nova_assets.masking import get_logger
from nova_assets.model import reads
from nova_assets.model.block import Kind, StagedBlock
from nova_assets.model.data_check import Check
from nova_assets.model.engine import Engine, Frame
from nova_assets.model.execution import TaskProgress, TaskReport
from nova_assets.model.modes_view import View
from nova_assets.model.read_strategy import CostEstimate
from nova_assets.model.reads import PrivatePortRead, Read
from nova_assets.model.schema import Field, Schema
from nova_assets.model.task import Task
from nova_assets.nova_error import NovaError
from nova_assets.plan.read_strategy import best_estimate, estimate_strategies
from nova_assets.plan.run_plan import Input, Output, RunPlan, Step

log = get_logger("nova_assets.task")


Observer = Callable[[str, Any], None]
"""Function that is called with the name of an event and its subject."""


def ignore_event(event: str, subject: Any) -> None:
    """Observer that does nothing."""


class TaskRun:
    """Carries out the tasks of one execution.

    Args:
        run_state: the execution, its binding and pinned histories.
        frames_by_port: (execution, port) -> frame that is passed on without being written.
        observer: the execution's observer, called with ("progress", TaskProgress).
        views_factory: creates the file views that a task can ask its context for.
        shared_rows: rows that this execution shares with others of the process; None if there are none.
        staged_by_port: the blocks that the execution has staged, if they were read just now.
    """

    def __init__(
        self,
        engine: Engine,
        staging: Staging,
        run_state: RunState,
        frames_by_port: PortFrames,
        observer: Observer = ignore_event,
        views_factory: FileViewsFactory | None = None,
        shared_rows: SharedRowsOfRound | None = None,
        staged_by_port: Mapping[str, StagedBlock] | None = None,
    ) -> None:
        self.shared = SharedRowsOfTask(shared_rows)
        self.observer = observer
        self.views_factory = views_factory
        self.engine = engine
        self.staging = staging
        self.run_state = run_state
        self.frames_by_port = frames_by_port
        staged = staging.complete_blocks_by_port(run_state.execution) if staged_by_port is None else staged_by_port
        self.ports_without_new_data = ports_without_new_data(staged)
        self.staged_blocks_by_port = uncommitted_blocks_by_port(staged, run_state.histories)
        self.plan: RunPlan = run_state.plan(self.ports_without_new_data)
        self._checker = TaskResultChecker(engine, run_state, self._may_replace)
        self._damage_by_port: dict[str, str] = {}
        self._facts: Mapping[str, Any] = {}
        self._replaced_ports: set[str] = set()

    def run_task(self, task_name: str) -> TaskReport:
        """Read the inputs of a task, call its function, and stage its outputs.

        Raises:
            TaskFailed: the function raised, or its return value does not match the task's outputs.
        """
        stopwatch = Stopwatch(self.engine.cpu_seconds)
        step = self.plan.step(task_name)
        task = self.run_state.binding.workflowette.task(task_name)
        if self._is_skippable(step):
            self.staging.record_unchanged(self.run_state.execution, step.outputs)
            return TaskReport(task_name, stopwatch.seconds, self._row_counts_by_input(step), {}, skipped=True)
        with self.compute_with_progress(task):
            rows_by_port = self._compute(step, task)
        crash_point("task.after")
        return self._report(step, stopwatch, rows_by_port)

    def load_input(self, task_name: str, name: str, *, may_be_table: bool) -> Any:
        """Frame or ``View`` of an input, for a function that is called elsewhere.

        Args:
            may_be_table: whether few rows are read in this process, as a table.
        """
        task_input = next(i for i in self.plan.step(task_name).inputs if i.name == name)
        if task_input.mode == "changes":
            return self._view(task_input)
        read = task_input.reads[task_input.mode]
        return self._fetch(read) if may_be_table else self._read_frame(read)

    def stage_rows(self, task_name: str, rows_by_port: Mapping[str, Any]) -> TaskReport:
        """Stage the rows of a function that was called elsewhere. Earlier staged blocks of the task become void (R4).

        Args:
            rows_by_port: output port -> rows in any form that an insert accepts. Outputs that are missing, or whose
                rows are None, change nothing.
        """
        stopwatch = Stopwatch(self.engine.cpu_seconds)
        step = self.plan.step(task_name)
        task = self.run_state.binding.workflowette.task(task_name)
        unchanged = [o for o in step.outputs if rows_by_port.get(o.port) is None]
        written = replace(step, outputs=tuple(o for o in step.outputs if o not in unchanged))
        self.staging.forget_staged_ports(self.run_state.execution, [o.port for o in step.outputs])
        self.staging.record_unchanged(self.run_state.execution, unchanged)
        with self.compute_with_progress(task):
            frames = {o.port: self.to_frame(o.port, rows_by_port[o.port]) for o in written.outputs}
            self._checker.frames_by_port(written, task, frames)
            rows = self._stage_outputs(written, task, frames)
        crash_point("task.after")
        self.run_state.reports[task_name] = self._report(step, stopwatch, rows)
        return self.run_state.reports[task_name]

    def to_frame(self, port: str, rows: Any) -> Frame:
        """Rows for an output, in any form that an insert accepts, as a frame."""
        if self.engine.frames.is_frame(rows):
            return rows
        channel = self.run_state.binding.channels[port]
        schema = self.run_state.histories[channel.name].schema
        if isinstance(rows, list) and not rows and schema is not None:
            from nova_assets.model.arrow_types import to_arrow_schema

            rows = to_arrow_schema(schema).empty_table()
        return self.engine.inputs.convert(rows, schema, allow_widening=channel.on_schema_change == "evolve")

    def _report(self, step: Step, stopwatch: Stopwatch, rows_by_port: Mapping[str, int | None]) -> TaskReport:
        return TaskReport(
            step.task,
            stopwatch.seconds,
            self._row_counts_by_input(step),
            dict(rows_by_port),
            estimate_by_input=self._read_estimates_by_input(step),
            facts={**self._facts, **self.shared.pop_facts()},
            cpu_seconds=stopwatch.cpu_seconds,
        )

    def compute_with_progress(self, task_or_check: Task | Check) -> AbstractContextManager[None]:
        """Context in which the engine computes for a task or check. It reports progress. Interrupting it stops the
        engine's jobs.
        """
        job_group, report = f"nova-{self.run_state.execution.id}", partial(self._report_progress, task_or_check.name)
        function, parallelism = task_or_check.function, self.plan.parallelism
        return self.engine.task_computation_scope(job_group, function, report, parallelism)

    def _report_progress(self, task: str, done_jobs: int, known_jobs: int) -> None:
        progress = TaskProgress(task, done_jobs, known_jobs)
        log.info("%s", progress)
        self.observer("progress", progress)

    # inputs

    def _is_skippable(self, step: Step) -> bool:
        """Whether the task is to be skipped.

        A task is skipped if it declares ``skip_if_no_new`` and all its new inputs are empty, or if the task that feeds
        one of its private inputs was skipped.
        """
        reads_port_without_new_data = any(
            i.channel is None and i.port in self.ports_without_new_data for i in step.inputs
        )
        if reads_port_without_new_data:
            return True
        return step.skip_if_no_new and all(self._is_input_empty(i) for i in step.inputs if i.is_new)

    def _is_input_empty(self, task_input: Input) -> bool:
        read = task_input.reads["new"]
        if not isinstance(read, PrivatePortRead):
            return reads.is_certainly_empty(reads.resolve_staged_blocks(read, self.staged_blocks_by_port))
        if read.port in self.staged_blocks_by_port:
            return self.staged_blocks_by_port[read.port].rows == 0
        return self.engine.frames.is_empty(self._private_port_frame(read.port))

    def _read_frame(self, read: Read) -> Frame:
        if isinstance(read, PrivatePortRead):
            return self._private_port_frame(read.port)
        read = reads.resolve_staged_blocks(read, self.staged_blocks_by_port)
        return self.shared.read(read, self.engine.reader.read)

    def _fetch(self, read: Read, hidden: Sequence[Field] = ()) -> Frame:
        """Rows of a read: in this process if they are few.

        Args:
            hidden: hidden columns that are read, too. They are null in rows whose file lacks them.
        """
        if isinstance(read, PrivatePortRead):
            return self._private_port_frame(read.port)
        read = reads.resolve_staged_blocks(read, self.staged_blocks_by_port)
        if isinstance(read, reads.Snapshot) and read.schema is not None and hidden:
            read = replace(read, schema=Schema((*read.schema.fields, *hidden)))
        return self.engine.reader.fetch(read)

    def _private_port_frame(self, port: str) -> Frame:
        """Rows of a private port: staged, passed on in this process, or evaluated again after another process took
        over.
        """
        if port in self.staged_blocks_by_port:
            block = replace(self.staged_blocks_by_port[port], kind="base")  # its rows are read as they were written
            return self.engine.reader.read(
                reads.Snapshot(block.channel, block.hi, (block,), (), block.manifest.schema, block.merge)
            )
        key = (self.run_state.execution.id, port)
        if key not in self.frames_by_port:
            writer = self.run_state.binding.workflowette.writer(port)
            assert writer is not None, port
            log.info("task %s is evaluated again for port %s", writer.name, port)
            outputs = self._call_task(self.plan.step(writer.name), writer)
            self.frames_by_port.update({(self.run_state.execution.id, p): f for p, f in outputs.items()})
        return self.frames_by_port[key]

    def function_arguments(
        self,
        inputs: Sequence[Input],
        wants_context: bool,
        may_replace: Callable[[str], bool] = lambda port: False,
    ) -> dict[str, Any]:
        """Arguments of a task's or check's function: a frame, or a ``View``, for each input.

        Args:
            may_replace: whether the task may return a ``Replacement`` for an output.
        """
        arguments: dict[str, Any] = {}
        for task_input in inputs:
            if task_input.mode == "changes":
                arguments[task_input.name] = self._view(task_input)
            elif task_input.is_lazy:
                arguments[task_input.name] = partial(self._fetch, task_input.reads[task_input.mode])
            elif task_input.mode != "matching":
                arguments[task_input.name] = self._read_frame(task_input.reads[task_input.mode])
        for task_input in inputs:
            if task_input.mode == "matching":
                keys = arguments[task_input.keys_of or ""]
                keys = keys.new if isinstance(keys, View) else keys
                read = task_input.reads["all"]
                rows = (
                    self._read_frame(read)
                    if isinstance(read, PrivatePortRead)
                    else reads.resolve_staged_blocks(read, self.staged_blocks_by_port)
                )
                arguments[task_input.name] = self.engine.reader.filter_by_keys(rows, keys, task_input.on)
        if wants_context:
            arguments["ctx"] = make_task_context(
                self.run_state,
                self.engine,
                self.staging.catalog,
                row_counts={i.name: self._row_counts(i) for i in inputs if i.channel is not None},
                viewing=lambda heads: None if self.views_factory is None else self.views_factory(heads),
                may_replace=may_replace,
                damage_by_port=self._damage_by_port,
            )
        return arguments

    def _view(self, task_input: Input) -> View:
        pin = self.run_state.execution.pins.get(task_input.channel or "")
        return build_view(
            self.engine,
            {m: reads.resolve_staged_blocks(r, self.staged_blocks_by_port) for m, r in task_input.reads.items()},
            self._read_frame,
            self.run_state.binding.channel(task_input.port),
            has_run=(pin is None or pin.has_run) and not task_input.reason_without_change,
            is_changed=not self._is_input_empty(task_input),
            has_dropped_partitions=lambda: has_dropped_partitions(self.staging.catalog, task_input.channel),
            reason_without_change=task_input.reason_without_change,
        )

    # the call

    def _compute(self, step: Step, task: Task) -> dict[str, int | None]:
        """Call a task and stage its outputs. If stored rows that it maintains are damaged, call it again: it then
        computes these rows again as a whole.
        """
        try:
            return self._stage_outputs(step, task, self._call_task(step, task))
        except FileMissing as error:
            if (damage := find_damaged_output(task, step.outputs, self.run_state.histories, error)) is None:
                raise
            log.warning("the rows of %s are computed again: %s", damage.port, damage.reason)
            self._damage_by_port[damage.port] = damage.reason
            return self._stage_outputs(step, task, self._call_task(step, task))

    def _call_task(self, step: Step, task: Task) -> Mapping[str, Frame]:
        with self.wrap_user_errors(task.name):  # matching inputs evaluate lazy frames of an earlier task
            arguments = self.function_arguments(step.inputs, task.wants_context, partial(self._may_replace, task))
            result = self.shared.call(self.plan, self.run_state.binding.workflowette, step, arguments)
        self._facts = self._checker.check_report(task, arguments["ctx"].report) if task.wants_context else {}
        frames, self._replaced_ports = self._checker.frames_by_port(step, task, result)
        return frames

    def _may_replace(self, task: Task, port: str) -> bool:
        catalog, binding, partition = self.staging.catalog, self.run_state.binding, self.run_state.execution.partition
        may_replace = may_replace_output(catalog, binding, task.name, port, partition)
        return may_replace or must_replace_output(self.plan.step(task.name), task, port)

    @contextmanager
    def wrap_user_errors(self, task_name: str, failure_phrase: str = "raised") -> Iterator[None]:
        """Turn exceptions of a user's function into TaskFailed, with the failing line of the user's code first."""
        try:
            yield
        except NovaError:
            raise
        except Exception as error:
            raise task_failed_error(self.run_state, task_name, failure_phrase, error) from error

    # outputs

    def _stage_outputs(self, step: Step, task: Task, outputs: Mapping[str, Frame]) -> dict[str, int | None]:
        rows_by_port: dict[str, int | None] = {}
        staged_outputs = [o for o in step.outputs if o.handover == "stage"]
        for output in step.outputs:
            if output not in staged_outputs:
                self.frames_by_port[self.run_state.execution.id, output.port] = outputs[output.port]
                rows_by_port[output.port] = None
        with self.wrap_user_errors(task.name, "failed while its rows were computed:"):  # frames are lazy
            if len(staged_outputs) > 1 and not task.deterministic:
                with self.engine.frames.evaluate_once({o.port: outputs[o.port] for o in staged_outputs}) as once:
                    rows_by_port |= self._write_staged_outputs(task, staged_outputs, once)
            else:
                rows_by_port |= self._write_staged_outputs(task, staged_outputs, outputs)
        return rows_by_port

    def _write_staged_outputs(self, task: Task, outputs: list[Output], frames: Mapping[str, Frame]) -> dict[str, int]:
        rows_by_port: dict[str, int] = {}
        for output in outputs:
            channel = None if output.channel is None else self.run_state.binding.channels[output.port]
            history = None if output.channel is None else self.run_state.histories[output.channel]
            kind: Kind = "base" if output.port in self._replaced_ports else output.kind
            staged = self.staging.write(
                self.run_state.execution,
                output.port,
                kind,
                channel,
                history,
                frames[output.port],
                may_hide=task.can_replace,
                options=output.options if kind == output.kind else replace(output.options, merge=None),
            )
            assert staged.manifest is not None
            rows_by_port[output.port] = staged.manifest.rows
        return rows_by_port

    def _read_estimates_by_input(self, step: Step) -> dict[str, CostEstimate]:
        """Cost estimate of each input's read strategy. Matching inputs are left out, since their cost depends on the
        keys.
        """
        estimates = {}
        for task_input in step.inputs:
            for mode, read in task_input.reads.items() if task_input.mode != "matching" else ():
                estimate = best_estimate(
                    estimate_strategies(reads.resolve_staged_blocks(read, self.staged_blocks_by_port)),
                    self.engine.reader.forced_strategy,
                )
                if estimate is not None:
                    estimates[task_input.name if len(task_input.reads) == 1 else f"{task_input.name}.{mode}"] = estimate
        return estimates

    def _row_counts_by_input(self, step: Step) -> dict[str, int | None]:
        def rows(task_input: Input) -> int | None:
            read = task_input.reads.get("new") or next(iter(task_input.reads.values()))
            if isinstance(read, PrivatePortRead):
                return self.staged_blocks_by_port[read.port].rows if read.port in self.staged_blocks_by_port else None
            return count_rows(reads.resolve_staged_blocks(read, self.staged_blocks_by_port))

        return {i.name: rows(i) for i in step.inputs}

    def _row_counts(self, task_input: Input) -> dict[str, int]:
        """Mode -> rows in the blocks that the mode opens."""
        return {
            mode: count_rows(reads.resolve_staged_blocks(read, self.staged_blocks_by_port))
            for mode, read in task_input.reads.items()
        }
