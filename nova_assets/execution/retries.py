"""Retries of tasks, of commits with an unknown outcome (R7), and of executions after a conflict (R6)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from nova_assets.catalog.catalog import Catalog
from nova_assets.errors import CatalogUnavailable, CommitConflict, CommitOutcomeUnknown, ExecutionNotLive
from nova_assets.execution.warehouse_identity import WarehouseCheck
from nova_assets.masking import get_logger
from nova_assets.model.commit import Commit, CommitRequest
from nova_assets.model.execution import TaskReport
from nova_assets.model.task import Task
from nova_assets.nova_error import NovaError

T = TypeVar("T")


def plan_again_after_conflict(
    plan_and_commit: Callable[[], T],
    subject: str,
    max_attempts: int,
    log: logging.Logger,
    *,
    log_level: int = logging.INFO,
    conflict_types: tuple[type[NovaError], ...] = (CommitConflict,),
) -> T:
    """Call a function that plans and commits, and call it again after each conflict.

    Args:
        subject: what is planned, for the log, such as ``the insert of orders``.
        conflict_types: errors that count as a conflict.

    Raises:
        CommitConflict: the last attempt met a conflict, too.
    """
    for attempt in range(1, max_attempts + 1):
        try:
            return plan_and_commit()
        except conflict_types as conflict:
            if attempt == max_attempts:
                log.log(log_level, "%s met a conflict in each of %d attempts", subject, max_attempts)
                raise
            log.log(log_level, "%s is planned again after attempt %d: %s", subject, attempt, conflict.what)
    raise AssertionError("unreachable")


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


def commit_resolving_outcome(catalog: Catalog, warehouse_check: WarehouseCheck, request: CommitRequest) -> Commit:
    """Commit. An unknown outcome is looked up under a lock before anything else is done (R7).

    Raises:
        WarehouseMismatch, WarehouseUnavailable: the blocks are not in the warehouse of the catalog.
        CommitConflict: a requirement is not met, or the look-up found that nothing was committed.
        CommitOutcomeUnknown: the catalog does not answer the look-up.
    """
    warehouse_check.check()
    try:
        return catalog.commits.commit(request)
    except CommitOutcomeUnknown as unknown:
        try:
            commit = catalog.commits.commit_or_abort(request.execution_id)
        except CatalogUnavailable as error:
            raise unknown from error
        if commit is None:
            raise CommitConflict(
                "the connection was lost during COMMIT, and nothing was committed",
                reason="connection",
                execution_id=request.execution_id,
            ) from None
        return commit
