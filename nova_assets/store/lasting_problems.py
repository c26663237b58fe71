"""Problems of maintenance and publication, which are notified once until they end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nova_assets.catalog.catalog import Catalog
from nova_assets.errors import (
    ChannelNotFound,
    CommitConflict,
    DefinitionError,
    ExecutionInProgress,
    ExecutionNotLive,
    PartitionError,
)
from nova_assets.masking import get_logger
from nova_assets.model.notification import Notification, ProblemEvent, shorten_text
from nova_assets.nova_error import NovaError
from nova_assets.user_code_errors import summarize_user_error

log = get_logger("nova_assets.notify")

_NO_PROBLEMS = (
    *(ChannelNotFound, DefinitionError, PartitionError),  # wrong arguments
    *(CommitConflict, ExecutionInProgress, ExecutionNotLive),  # another process was faster
)


@contextmanager
def notify_if_failing(catalog: Catalog, event: ProblemEvent, channel: str | None, activity: str) -> Iterator[None]:
    """Record a problem if the body fails, and its end if the body succeeds.

    Wrong arguments and conflicts with other processes are no problems. A failure to record never hides the result.

    Args:
        channel: the channel concerned; None for the deployment.
        activity: what the body does, such as ``compaction of orders``. It identifies the problem.
    """
    try:
        yield
    except _NO_PROBLEMS:
        raise
    except Exception as error:
        _start_problem(catalog, event, channel, activity, error)
        raise
    try:
        catalog.notifications.end_problem(event, activity)
    except NovaError as error:
        log.warning("the end of a problem (%s) could not be recorded: %s", activity, error)


def _start_problem(catalog: Catalog, event: ProblemEvent, channel: str | None, activity: str, error: Exception) -> None:
    reason = error.what if isinstance(error, NovaError) else summarize_user_error(error).message
    found = f"\nfound: {error.found}" if isinstance(error, NovaError) and error.found is not None else ""
    try:
        text = shorten_text(f"the {activity} is failing: {reason}{found}")
        catalog.notifications.start_problem(event, activity, Notification(event, catalog.now(), text, channel=channel))
    except NovaError as failure:
        log.warning("a problem (%s) could not be recorded: %s", activity, failure)
