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
    open_rows = [e for e, _ in catalog.executions_with_staged_blocks() if e.state in ("running", "failed")]
    return [_to_open_execution(e, now) for e in sorted(open_rows, key=lambda e: (e.started_at, e.id))]


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
    matches = [e for e in open_executions(catalog) if e.execution.id.startswith(execution_id)]
    if len(matches) != 1 or not execution_id:
        raise _no_single_match_error(execution_id, [e.execution.id for e in matches])
    (open_execution,) = matches
    if not open_execution.may_end and not force:
        raise _execution_held_error(open_execution)
    if not dry_run:
        catalog.abort(
            open_execution.execution.id,
            "the execution was released manually",
            open_execution.execution.epoch,
            counts_as_failure=False,
        )
    return open_execution


def _to_open_execution(execution: Execution, now: datetime) -> OpenExecution:
    holder = owner_liveness(execution.owner) if execution.state == "running" else "none"
    return OpenExecution(execution, holder, execution.lease_until < now)


def _no_single_match_error(execution_id: str, matching_ids: list[str]) -> ExecutionNotLive:
    subject = "the ids of several open executions begin" if matching_ids else "no open execution has an id that begins"
    return ExecutionNotLive(
        f"{subject} with {execution_id!r}",
        found=", ".join(i[:12] for i in matching_ids) or None,
        expected="the id of one execution that is running, or has failed and can be resumed",
        next="nova executions",
        execution_id=execution_id,
    )


def _execution_held_error(open_execution: OpenExecution) -> ExecutionInProgress:
    execution = open_execution.execution
    owner_description = (
        "which runs on this host"
        if open_execution.holder == "alive"
        else "and this host cannot tell whether it is alive"
    )
    return ExecutionInProgress(
        f"execution {execution.id[:8]} is held by {execution.owner}, {owner_description}",
        found=f"a lease until {execution.lease_until:%Y-%m-%d %H:%M:%S} UTC",
        expected="an owner that has ended, or an expired lease",
        next=f"end the owner, or run nova release {execution.id[:8]} --force (only the work of that execution is lost)",
        execution_id=execution.id,
        owner=execution.owner,
    )
