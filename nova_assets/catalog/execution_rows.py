"""Rows of executions and their pins: locks, model objects, errors, and the end of an execution."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import Connection, RowMapping, case, delete, select, update

from nova_assets.catalog.database.transactions import Database, batched
from nova_assets.catalog.notification_outbox import notify_failed
from nova_assets.catalog.tables import executions, pins, staged_blocks
from nova_assets.errors import ExecutionInProgress, ExecutionNotLive
from nova_assets.model.execution import Execution, Pin

_EXECUTIONS_PER_QUERY = 500
"""Maximum number of executions whose pins one statement loads."""

_EXECUTION_COLUMNS = tuple(f.name for f in fields(Execution) if f.name in executions.c)
"""Columns of an execution. Its fields have the same names."""


def lock_execution(c: Connection, execution_id: str) -> RowMapping | None:
    """Row of an execution, locked until the transaction ends; None if it does not exist."""
    row: RowMapping | None = (
        c.execute(select(executions).where(executions.c.id == execution_id).with_for_update()).mappings().first()
    )
    return row


def conditions_of_held_execution(execution_id: str, epoch: int) -> tuple[Any, ...]:
    return (executions.c.id == execution_id, executions.c.epoch == epoch, executions.c.state == "running")


def read_execution_row(c: Connection, execution_id: str, lock: bool = False) -> RowMapping:
    query = select(executions).where(executions.c.id == execution_id)
    row = c.execute(query.with_for_update() if lock else query).mappings().first()
    if row is None:
        raise ExecutionNotLive(
            f"there is no execution {execution_id!r}", next="nova run BINDING", execution_id=execution_id
        )
    return row


def execution_from_row(c: Connection, row: RowMapping) -> Execution:
    return executions_from_rows(c, [row])[0]


def executions_from_rows(c: Connection, rows: Sequence[RowMapping]) -> list[Execution]:
    """Executions of the given rows, with their pins."""
    pins_by_execution: dict[str, list[Pin]] = {r["id"]: [] for r in rows}
    for batch in batched(list(pins_by_execution), _EXECUTIONS_PER_QUERY):
        for p in c.execute(select(pins).where(pins.c.execution_id.in_(batch))).mappings():
            pins_by_execution[p["execution_id"]].append(
                Pin(p["channel"], p["head"], p["cursor"], p["partition"], p["has_run"])
            )
    return [_execution_with_pins(r, pins_by_execution[r["id"]]) for r in rows]


def _execution_with_pins(row: RowMapping, execution_pins: Iterable[Pin]) -> Execution:
    columns = {name: row[name] for name in _EXECUTION_COLUMNS}
    return Execution(pins={p.channel: p for p in execution_pins}, **columns)


def read_executions(c: Connection, condition: Any) -> list[Execution]:
    """Executions with their pins, oldest first."""
    query = select(executions).where(condition).order_by(executions.c.started_at, executions.c.id)
    return executions_from_rows(c, c.execute(query).mappings().all())


def in_progress_error(row: RowMapping) -> ExecutionInProgress:
    what = f"binding {row['binding']!r} is being executed" if row["binding"] else "an insert is under way"
    return ExecutionInProgress(
        f"{what} by {row['owner']}",
        found=f"execution {row['id']}, whose lease lasts until {row['lease_until']:%Y-%m-%d %H:%M:%S} UTC",
        expected="one live execution per binding and partition (R6)",
        next=f"wait for it; nova executions shows who holds it, and nova release {row['id'][:8]} ends it",
        binding=row["binding"],
        owner=row["owner"],
        execution_id=row["id"],
        lease_until=row["lease_until"],
    )


def not_live_error(row: RowMapping) -> ExecutionNotLive:
    why = f" ({row['error']})" if row["error"] else ""
    return ExecutionNotLive(
        f"execution {row['id']} of {row['binding'] or 'an insert'} cannot continue: it is {row['state']}{why}",
        found=row["state"],
        expected="a running or failed execution",
        next=f"nova run {row['binding']}" if row["binding"] else "insert again",
        execution_id=row["id"],
    )


SKIPPED_FOLDER = "(skipped)"


def storable_text(text: str) -> str:
    """Text that every database can store, without null characters and lone surrogates."""
    return text.replace("\x00", "").encode("utf-8", "backslashreplace").decode("utf-8")


def delete_skip_markers(c: Connection, execution_id: str) -> None:
    """Delete the staged rows of skipped tasks, which have no files."""
    c.execute(
        delete(staged_blocks).where(
            staged_blocks.c.execution_id == execution_id, staged_blocks.c.folder == SKIPPED_FOLDER
        )
    )


def mark_aborted(
    c: Connection, execution_id: str, reason: str, database: Database, counts_as_failure: bool = True
) -> None:
    """Mark an execution as aborted, inside a transaction that holds its row.

    Aborting a running execution counts as a failure. An execution that had failed before was counted then.
    """
    now = database.clock()
    if counts_as_failure:
        notify_failed(c, now, execution_id, reason, only_if_running=True)
    failure_increment = case((executions.c.state == "running", int(counts_as_failure)), else_=0)
    values = {
        "state": "aborted",
        "error": storable_text(reason),
        "finished_at": now,
        "failures": executions.c.failures + failure_increment,
    }
    c.execute(update(executions).where(executions.c.id == execution_id).values(**values))
    delete_skip_markers(c, execution_id)
