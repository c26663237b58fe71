"""Open executions with the liveness of their owners, and the release of executions whose owner is gone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from nova_assets.errors import ExecutionInProgress, ExecutionNotLive
from nova_assets.execution.lease import Liveness, owner_liveness
from nova_assets.model.catalog import Catalog
from nova_assets.model.execution import Execution


@dataclass(frozen=True, slots=True)
class OpenExecution:
    """An execution that runs, or that failed and can be resumed.

    Args:
        holder: liveness of the process that holds the execution: ``alive``, ``gone`` or ``unknown``. ``none`` for a
            failed execution.
        lapsed: whether the lease has expired.
    """

    execution: Execution
    holder: Liveness | str
    lapsed: bool

    @property
    def may_end(self) -> bool:
        """Whether the execution can be released safely: no process works for it, as far as is known."""
        if self.holder == "alive":
            return False
        return self.lapsed or self.holder in ("gone", "none")


def open_executions(catalog: Catalog) -> list[OpenExecution]:
    """Executions that have not ended, oldest first. Readers and inserts are included."""
    now = catalog.now()
    found = [e for e, _ in catalog.executions_with_staged_blocks() if e.state in ("running", "failed")]
    return [_to_open_execution(e, now) for e in sorted(found, key=lambda e: (e.started_at, e.id))]


def release(catalog: Catalog, execution_id: str, *, force: bool = False, dry_run: bool = False) -> OpenExecution:
    """End an execution without a commit. Its pins are released, and its staged files are deleted later.

    This is safe at any time: a process that still works for the execution can no longer commit (R6). Cursors do not
    move.

    Args:
        execution_id: id of the execution, or a unique prefix.
        force: end the execution although its owner is alive or may be alive.
        dry_run: change nothing.

    Returns:
        The execution before its end.

    Raises:
        ExecutionNotLive: no open execution has this id or prefix, or several do.
        ExecutionInProgress: the owner is not known to be dead.
    """
    found = [e for e in open_executions(catalog) if e.execution.id.startswith(execution_id)]
    if len(found) != 1 or not execution_id:
        raise _no_single_match_error(execution_id, [e.execution.id for e in found])
    (open_execution,) = found
    if not open_execution.may_end and not force:
        raise _execution_held_error(open_execution)
    if not dry_run:
        catalog.abort(
            open_execution.execution.id,
            "it was released by hand",
            open_execution.execution.epoch,
            counts_as_failure=False,
        )
    return open_execution


def _to_open_execution(execution: Execution, now: datetime) -> OpenExecution:
    holder = owner_liveness(execution.owner) if execution.state == "running" else "none"
    return OpenExecution(execution, holder, execution.lease_until < now)


def _no_single_match_error(execution_id: str, matching_ids: list[str]) -> ExecutionNotLive:
    what = "several executions begin" if matching_ids else "no execution that has not ended begins"
    return ExecutionNotLive(
        f"{what} with {execution_id!r}",
        found=", ".join(i[:12] for i in matching_ids) or None,
        expected="the id of one execution that runs or failed",
        next="nova executions",
        execution_id=execution_id,
    )


def _execution_held_error(open_execution: OpenExecution) -> ExecutionInProgress:
    execution = open_execution.execution
    known = "which runs on this host" if open_execution.holder == "alive" else "of which this host knows nothing"
    return ExecutionInProgress(
        f"execution {execution.id[:8]} is held by {execution.owner}, {known}",
        found=f"a lease until {execution.lease_until:%Y-%m-%d %H:%M:%S} UTC",
        expected="a holder that is gone, or a lease that ran out",
        next=f"end the holder, or: nova release {execution.id[:8]} --force (only the work of that execution is lost)",
        execution_id=execution.id,
        owner=execution.owner,
    )
