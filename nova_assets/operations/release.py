"""Executions that have not ended: who holds each of them, and how one is ended whose holder is gone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from nova_assets.errors import ExecutionInProgress, ExecutionNotLive
from nova_assets.execution.lease import Liveness, owner_liveness
from nova_assets.model.catalog import Catalog
from nova_assets.model.execution import Execution


@dataclass(frozen=True, slots=True)
class OpenExecution:
    """An execution that runs, or failed and can be resumed.

    Args:
        holder: what is known of the process that holds it: ``alive``, ``gone`` or ``unknown``; ``none`` for a failed
            execution.
        lapsed: its lease ran out.
    """

    execution: Execution
    holder: Liveness | str
    lapsed: bool

    @property
    def may_end(self) -> bool:
        """Whether nobody is known, or has to be assumed, to work for it."""
        if self.holder == "alive":
            return False
        return self.lapsed or self.holder in ("gone", "none")


def open_executions(catalog: Catalog) -> list[OpenExecution]:
    """The executions that have not ended, readers and inserts among them, oldest first."""
    now = catalog.now()
    found = [e for e, _ in catalog.executions_with_staged_blocks() if e.state in ("running", "failed")]
    return [_to_open_execution(e, now) for e in sorted(found, key=lambda e: (e.started_at, e.id))]


def release(catalog: Catalog, execution_id: str, *, force: bool = False, dry_run: bool = False) -> OpenExecution:
    """End an execution without a commit: what it pinned is free, and its staged files are swept.

    It is safe at any time: a process that still works for it can no longer commit (R6). Cursors stay where they are.

    Args:
        execution_id: or the beginning of one.
        force: also if its holder is alive, or not known to be gone.

    Returns:
        The execution as it was.

    Raises:
        ExecutionNotLive: there is none of that id that has not ended.
        ExecutionInProgress: its holder is not known to be gone.
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
