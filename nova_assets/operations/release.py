"""Executions that have not ended: who holds each of them, and how one is ended whose holder is gone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from nova_assets.errors import ExecutionInProgress, ExecutionNotLive
from nova_assets.execution.lease import Liveness, liveness
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
    found = [e for e, _ in catalog.leftovers() if e.state in ("running", "failed")]
    return [_judged(e, now) for e in sorted(found, key=lambda e: (e.started_at, e.id))]


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
        raise _none_or_several(execution_id, [e.execution.id for e in found])
    (named,) = found
    if not named.may_end and not force:
        raise _is_held(named)
    if not dry_run:
        catalog.abort(named.execution.id, "it was released by hand", named.execution.epoch, failed=False)
    return named


def _judged(execution: Execution, now: datetime) -> OpenExecution:
    holder = liveness(execution.owner) if execution.state == "running" else "none"
    return OpenExecution(execution, holder, execution.lease_until < now)


def _none_or_several(execution_id: str, ids: list[str]) -> ExecutionNotLive:
    return ExecutionNotLive(
        f"{'several executions begin' if ids else 'no execution that has not ended begins'} with {execution_id!r}",
        found=", ".join(i[:12] for i in ids) or None,
        expected="the id of one execution that runs or failed",
        next="nova executions",
        execution_id=execution_id,
    )


def _is_held(named: OpenExecution) -> ExecutionInProgress:
    execution = named.execution
    known = "which runs on this host" if named.holder == "alive" else "of which this host knows nothing"
    return ExecutionInProgress(
        f"execution {execution.id[:8]} is held by {execution.owner}, {known}",
        found=f"a lease until {execution.lease_until:%Y-%m-%d %H:%M:%S} UTC",
        expected="a holder that is gone, or a lease that ran out",
        next=f"end the holder, or: nova release {execution.id[:8]} --force (only the work of that execution is lost)",
        execution_id=execution.id,
        owner=execution.owner,
    )
