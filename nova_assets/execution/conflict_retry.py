"""Retry after a conflict: a commit that lost against a concurrent commit is planned again on the new state (R6)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from nova_assets.errors import CommitConflict
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
