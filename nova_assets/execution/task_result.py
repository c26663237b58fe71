"""What a task returned, checked against its outputs, or raised, as an error that names the failing line."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from nova_assets.errors import TaskFailed
from nova_assets.execution.run_state import RunState
from nova_assets.execution.task_context import must_replace_output
from nova_assets.model.engine import Engine, Frame
from nova_assets.model.registered_definition import Replacement
from nova_assets.model.task import Task
from nova_assets.plan.run_plan import Step
from nova_assets.user_code_errors import summarize_user_error


class TaskResultChecker:
    """Checks what the tasks of one execution return.

    Args:
        may_replace: whether a task may return a ``Replacement`` for a port.
    """

    def __init__(self, engine: Engine, run_state: RunState, may_replace: Callable[[Task, str], bool]) -> None:
        self.engine = engine
        self.run_state = run_state
        self.may_replace = may_replace

    def frames_by_port(self, step: Step, task: Task, result: Any) -> tuple[dict[str, Frame], set[str]]:
        """The frame for each output port, and the ports whose frame replaces the stored rows. Raises TaskFailed."""
        ports = [o.port for o in step.outputs]
        if isinstance(result, Mapping) and set(result) == set(ports):
            frames = dict(result)
        elif len(ports) == 1 and not isinstance(result, Mapping):
            frames = {ports[0]: result}
        elif not ports and result is None:
            return {}, set()
        else:
            found = (
                f"a dict of {', '.join(map(repr, result))}" if isinstance(result, Mapping) else type(result).__name__
            )
            raise self._wrong_output_error(task, found, _expected_return_text(ports))
        replaced_ports = {port for port, frame in frames.items() if isinstance(frame, Replacement)}
        if not all(self.may_replace(task, port) for port in replaced_ports):
            raise self._wrong_output_error(task, "a replacement of rows that others read", "a frame")
        if any(must_replace_output(step, task, port) for port in ports if port not in replaced_ports):
            raise self._wrong_output_error(task, "a change of rows whose columns have changed", "a replacement")
        frames |= {port: frames[port].frame for port in replaced_ports}
        for port, frame in frames.items():
            if frame is None:
                raise self._wrong_output_error(task, f"None for port {port!r}", "a frame, which may have no rows")
            if not self.engine.frames.is_frame(frame):
                raise self._wrong_output_error(task, f"{type(frame).__name__} for port {port!r}", "a Spark DataFrame")
            if not self.engine.frames.column_names(frame):  # a frame without columns would lose its rows
                raise self._wrong_output_error(
                    task, f"a frame without a column for port {port!r}", "a frame with columns"
                )
        return frames, replaced_ports

    def check_report(self, task: Task, report: Mapping[str, Any]) -> Mapping[str, Any]:
        """The report of a task, if JSON can hold it. Raises TaskFailed."""
        try:
            json.dumps(report)
        except (TypeError, ValueError) as error:
            raise self._wrong_output_error(task, f"ctx.report with {error}", "values that JSON can hold") from error
        return report

    def _wrong_output_error(self, task: Task, found: str, expected: str) -> TaskFailed:
        return TaskFailed(
            f"task {task.name!r} returned a value that does not match its outputs",
            found=found,
            expected=expected,
            task=task.name,
            binding=self.run_state.binding.name,
            execution_id=self.run_state.execution.id,
        )


def _expected_return_text(ports: list[str]) -> str:
    if not ports:
        return "None: the task has no outputs"
    if len(ports) == 1:
        return f"a frame for port {ports[0]!r}"
    return f"a dict with a frame for each of {', '.join(map(repr, ports))}"


def task_failed_error(run_state: RunState, task_name: str, failure_phrase: str, error: Exception) -> TaskFailed:
    """Error for an exception of a user's function, with the failing line of the user's code first."""
    summary = summarize_user_error(error)
    execution = run_state.execution
    where = f" --partition {execution.partition}" if execution.partition else ""
    functions_by_task = {t.name: t.scoped or t.function for t in run_state.binding.tasks}
    source = getattr(functions_by_task.get(task_name), "source_file", None) or "the task"
    return TaskFailed(
        f"task {task_name!r} of binding {run_state.binding.name!r} {failure_phrase} {summary.message}",
        found=summary.location,
        next=f"fix {source}; then nova run {run_state.binding.name}{where}",
        task=task_name,
        binding=run_state.binding.name,
        execution_id=run_state.execution.id,
    )
