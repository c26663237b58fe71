"""Retries of a failed task within its execution, as often as the task declares (R4)."""

from __future__ import annotations

import time
from collections.abc import Callable

from nova_assets.errors import CommitConflict, ExecutionNotLive
from nova_assets.masking import get_logger
from nova_assets.model.execution import TaskReport
from nova_assets.model.task import Task

log = get_logger("nova_assets.runtime")


def run_with_retries(task: Task, run_once: Callable[[], TaskReport]) -> TaskReport:
    """Run a task. After a failure, run it again with the same pins."""
    for attempt in range(task.retries + 1):
        try:
            return run_once()
        except (ExecutionNotLive, CommitConflict):
            raise
        except Exception as error:
            if attempt == task.retries:
                raise
            log.warning("task %s failed, retry %d of %d: %s", task.name, attempt + 1, task.retries, error)
            time.sleep(task.retry_delay * 2.0**attempt)
    raise AssertionError("unreachable")
