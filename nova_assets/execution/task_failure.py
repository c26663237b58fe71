"""Failures of users' functions, as errors that name the failing line."""

from __future__ import annotations

from nova_assets.errors import TaskFailed
from nova_assets.execution.run_state import RunState
from nova_assets.user_code_errors import summarize_user_error


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
