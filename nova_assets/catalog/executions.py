"""Executions: begun with pins, leased, failed, resumed, superseded, aborted (R3, R4, R6)."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, RowMapping, case, delete, func, insert, select, update

from nova_assets.catalog.database import Database, batched, pairs
from nova_assets.catalog.definitions import Definitions
from nova_assets.catalog.tables import bindings, channels, cursors, executions, pins, staged
from nova_assets.errors import ExecutionInProgress, ExecutionNotLive, PartitionError, VersionNotFound
from nova_assets.model.execution import Begin, Execution, Pin, State

KEEP_FAILED = timedelta(days=1)
"""How long a failed execution keeps its pins and staged files when nobody resumes or supersedes it (R4)."""

SKIPPED = "(skipped)"

_AT_ONCE = 500
"""Executions whose pins are asked for in one statement."""


@dataclass(frozen=True, slots=True)
class _Opening:
    """What ``begin`` writes, once every check has passed.

    Args:
        superseded: executions that give way.
    """

    superseded: tuple[str, ...]
    pins: tuple[Pin, ...]


class Executions:
    """The life of executions, up to their commit."""

    def __init__(self, database: Database, definitions: Definitions) -> None:
        self.database = database
        self.definitions = definitions

    def begin(self, request: Begin) -> Execution:
        """Open an execution: supersede a dead or failed one, pin heads and cursors, all at one moment.

        Raises:
            ExecutionInProgress: another is alive (R6).
            ChannelNotFound: a channel to pin is not registered.
        """
        return self.database.write(lambda c: self._begin(c, request))

    def preview(self, request: Begin) -> tuple[Pin, ...]:
        """The pins that ``begin`` would take now. Changes nothing; a channel that is not registered yet is empty.

        Raises:
            ExecutionInProgress, PartitionError: as ``begin``.
        """
        return self.database.read(lambda c: self._decide(c, request, lock=False).pins)

    def execution(self, execution_id: str) -> Execution:
        """One execution. Raises ExecutionNotLive when there is none of that id."""
        return self.database.read(lambda c: _execution(c, _row(c, execution_id)))

    def executions(
        self,
        binding: str | None = None,
        limit: int = 100,
        partition: str | None = None,
        *,
        run_id: str | None = None,
        state: State | None = None,
        among: Sequence[str] | None = None,
    ) -> list[Execution]:
        """Executions, latest first; inserts are left out.

        Args:
            among: channels; only executions that touch some of these, and no others.
        """
        query = select(executions).where(
            executions.c.binding.is_not(None) if binding is None else executions.c.binding == binding
        )
        if partition is not None:
            query = query.where(executions.c.partition == partition)
        if run_id is not None:
            query = query.where(executions.c.run_id == run_id)
        if state is not None:
            query = query.where(executions.c.state == state)
        if among is not None:
            of_it = pins.c.execution_id == executions.c.id
            others = select(pins.c.channel).where(of_it, pins.c.channel.not_in(among))
            query = query.where(select(pins.c.channel).where(of_it).exists(), ~others.exists())
        query = query.order_by(executions.c.started_at.desc(), executions.c.id).limit(limit)
        return self.database.read(lambda c: _executions(c, c.execute(query).mappings().all()))

    def at_work(self) -> list[Execution]:
        """The executions that run, oldest first."""
        return self.database.read(lambda c: read_executions(c, executions.c.state == "running"))

    def finished(self) -> dict[tuple[str, str, str], int]:
        """(binding, partition, status) -> how often one was launched, has succeeded or has failed; it only grows."""
        query = select(
            executions.c.binding,
            executions.c.partition,
            func.count().label("launched"),
            func.sum(case((executions.c.state == "committed", 1), else_=0)).label("succeeded"),
            func.sum(executions.c.failures).label("failed"),
        )
        query = query.where(executions.c.binding.is_not(None)).group_by(executions.c.binding, executions.c.partition)
        rows = self.database.read(lambda c: c.execute(query).mappings().all())
        statuses = ("launched", "succeeded", "failed")
        return {(r["binding"], r["partition"], s): int(r[s] or 0) for r in rows for s in statuses}

    def renew(self, execution_id: str, epoch: int, lease: float) -> bool:
        """Prolong a lease. False when the execution is no longer held under this epoch."""

        def work(c: Connection) -> bool:
            until = self.database.clock() + timedelta(seconds=lease)
            change = update(executions).where(*_held(execution_id, epoch)).values(lease_until=until)
            return bool(c.execute(change).rowcount == 1)

        return self.database.write(work)

    def resume(
        self, execution_id: str, owner: str, lease: float, *, run_id: str | None = None, dead: Container[str] = ()
    ) -> Execution:
        """Take up a failed or lapsed execution, under a new epoch (R4).

        Args:
            run_id: of the Dagster run that goes on with it, where it is another one.
            dead: owners that are known to be gone: their leases are not waited for.

        Raises:
            ExecutionNotLive: it was superseded, aborted or committed.
            ExecutionInProgress: its lease is held by another.
        """
        return self.database.write(lambda c: self._resume(c, execution_id, owner, lease, run_id, dead))

    def fail(self, execution_id: str, epoch: int, error: str, *, counts: bool = True) -> None:
        """It failed; pins and staged files are kept for a while (R4).

        Args:
            counts: as a failure of its binding, for cascades; not so where it is tried again at once.
        """

        def work(c: Connection) -> None:
            now = self.database.clock()
            values = {
                "state": "failed",
                "error": printable(error),
                "lease_until": now + KEEP_FAILED,
                "finished_at": now,
                "failures": executions.c.failures + int(counts),
            }
            c.execute(update(executions).where(*_held(execution_id, epoch)).values(**values))

        self.database.write(work)

    def abort(self, execution_id: str, reason: str, epoch: int | None = None, *, failed: bool = True) -> None:
        """End it without a commit. An aborted one stays as it is.

        Args:
            failed: that it ended while it ran is a failure, for cascades; not so where it is planned again.

        Raises:
            ExecutionNotLive: it was committed, or is held under another epoch.
        """

        def work(c: Connection) -> None:
            row = _row(c, execution_id, lock=True)
            if row["state"] == "committed" or (epoch is not None and row["epoch"] != epoch):
                raise _not_live(row)
            if row["state"] != "aborted":
                abort(c, execution_id, reason, self.database, failed=failed)

        self.database.write(work)

    def abort_lapsed(self, c: Connection, grace: timedelta) -> None:
        """Abort whoever has not renewed for longer than lease and grace."""
        before = self.database.clock() - grace
        query = select(executions.c.id).where(
            executions.c.state.in_(["running", "failed"]), executions.c.lease_until < before
        )
        for execution_id in list(c.execute(query.with_for_update(skip_locked=True)).scalars()):
            abort(c, execution_id, "its lease ran out", self.database)

    def _begin(self, c: Connection, request: Begin) -> Execution:
        opening = self._decide(c, request, lock=True)
        for execution_id in opening.superseded:
            abort(c, execution_id, f"superseded by {request.execution_id}", self.database)
        now = self.database.clock()
        c.execute(
            insert(executions).values(
                id=request.execution_id,
                binding=request.binding,
                partition=request.partition,
                state="running",
                epoch=1,
                owner=request.owner,
                started_at=now,
                lease_until=now + timedelta(seconds=request.lease),
                run_id=request.run_id,
                firing_id=request.firing_id,
                purpose=request.purpose,
            )
        )
        rows = [
            {
                "execution_id": request.execution_id,
                "channel": pin.channel,
                "partition": pin.partition,
                "head": pin.head,
                "cursor": pin.cursor,
                "has_run": pin.has_run,
            }
            for pin in opening.pins
        ]
        if rows:
            c.execute(insert(pins), rows)
        return _execution(c, _row(c, request.execution_id))

    def _decide(self, c: Connection, request: Begin, lock: bool) -> _Opening:
        """Every check of ``begin``, and what it would write. ``preview`` asks the same without locks."""
        superseded = () if request.binding is None else self._superseded(c, request, lock)
        heads = self._heads(c, request, lock)
        at = self._cursors(c, request)
        if request.binding is not None and request.cursors:
            _refuse_both(c, request)
        return _Opening(
            superseded,
            tuple(
                Pin(
                    name,
                    head,
                    at.get(name, 0) if name in request.cursors else request.since.get(name),
                    request.scopes.get(name, ""),
                    has_run=name in request.cursors and name in at,
                )
                for name, head in heads.items()
            ),
        )

    def superseded(self, c: Connection, binding: str) -> tuple[str, ...]:
        """The executions of all partitions of a binding that give way, inside a transaction that locks them.

        Raises:
            ExecutionInProgress: one of them is alive.
        """
        return self._giving_way(c, executions.c.binding == binding, lock=True)

    def _superseded(self, c: Connection, request: Begin, lock: bool) -> tuple[str, ...]:
        """Begins of one binding come one after the other; a failed, lapsed or dead execution gives way (R4)."""
        if lock:
            c.execute(select(bindings.c.name).where(bindings.c.name == request.binding).with_for_update())
        same = (executions.c.binding == request.binding) & (executions.c.partition == request.partition)
        return self._giving_way(c, same, lock, request.dead)

    def _giving_way(self, c: Connection, where: Any, lock: bool, dead: Container[str] = ()) -> tuple[str, ...]:
        query = select(executions).where(where, executions.c.state.in_(["running", "failed"]))
        rows = c.execute(query.with_for_update() if lock else query).mappings().all()
        for row in rows:
            gone = row["owner"] in dead or row["lease_until"] < self.database.clock()
            if row["state"] == "running" and not gone:
                raise _in_progress(row)
        return tuple(row["id"] for row in rows)

    def _heads(self, c: Connection, request: Begin, lock: bool) -> dict[str, int]:
        """Heads of all channels at one moment: the locks wait for commits in flight, and hold off later ones (R2)."""
        wanted = sorted(set(request.heads) | set(request.cursors))
        query = select(channels.c.name, channels.c.head).where(channels.c.name.in_(wanted)).order_by(channels.c.name)
        found = pairs(c, query.with_for_update(read=True)) if lock else dict.fromkeys(wanted, 0) | pairs(c, query)
        for name in wanted:
            if name not in found:
                raise self.definitions.not_found(name)
        for name, number in (*request.at.items(), *request.since.items()):
            if not 0 <= number <= found[name]:
                raise VersionNotFound.of(name, number, found[name])
        return {**found, **request.at}

    def _cursors(self, c: Connection, request: Begin) -> dict[str, int]:
        query = select(cursors.c.channel, cursors.c.channel_partition, cursors.c.seq).where(
            cursors.c.binding == (request.binding or ""), cursors.c.partition == request.partition
        )
        found = c.execute(query).all()
        return {name: seq for name, scope, seq in found if scope == request.scopes.get(name, "")}

    def _resume(
        self, c: Connection, execution_id: str, owner: str, lease: float, run_id: str | None, dead: Container[str]
    ) -> Execution:
        row = _row(c, execution_id, lock=True)
        now = self.database.clock()
        held = row["lease_until"] >= now and row["owner"] not in dead
        if row["state"] == "running" and held and row["owner"] != owner:
            raise _in_progress(row)
        if row["state"] not in ("running", "failed"):
            raise _not_live(row)
        values = {
            "state": "running",
            "epoch": row["epoch"] + 1,
            "owner": owner,
            "lease_until": now + timedelta(seconds=lease),
            "run_id": run_id or row["run_id"],
        }
        c.execute(
            update(executions).where(executions.c.id == execution_id).values(finished_at=None, error=None, **values)
        )
        return _execution(c, _row(c, execution_id))


def cursor_of_other_kind(c: Connection, binding: str, partition: str) -> str | None:
    """A partition with a cursor of the kind that this execution's are not: whole, or of one partition (R13)."""
    whole = cursors.c.partition == ""
    query = select(cursors.c.partition).join(bindings, bindings.c.name == cursors.c.binding)
    query = query.where(cursors.c.binding == binding, cursors.c.seq > 0, ~whole if partition == "" else whole)
    found: str | None = c.execute(query.limit(1)).scalar()
    return found


def _refuse_both(c: Connection, request: Begin) -> None:
    """A binding reads whole, or partition by partition: with cursors of both kinds it would read the same twice (R13).

    Raises:
        PartitionError: it has been executed the other way.
    """
    found = cursor_of_other_kind(c, request.binding or "", request.partition)
    if found is None:
        return
    before = f"for single partitions (such as {found})" if found else "whole"
    now = "whole" if found else f"for {request.partition} alone"
    to, otherwise = ("whole", "--partition, or --missing") if found else ("partitions", "--whole")
    raise PartitionError(
        f"binding {request.binding!r} has been executed {before}, and would read the same again {now}",
        found=f"cursors of executions {before}",
        expected="executions of one kind: each keeps cursors of its own (R13)",
        next=f"go on as before: nova run {request.binding} with {otherwise}; or switch its cursors, which loses and "
        f"repeats no rows: nova switch {request.binding} --to {to}",
        binding=request.binding,
    )


def abort(c: Connection, execution_id: str, reason: str, database: Database, failed: bool = True) -> None:
    """Mark an execution aborted, inside a transaction that holds its row.

    One that ended while it ran has failed by that; one that had failed before has been counted.
    """
    running = case((executions.c.state == "running", int(failed)), else_=0)
    values = {
        "state": "aborted",
        "error": printable(reason),
        "finished_at": database.clock(),
        "failures": executions.c.failures + running,
    }
    c.execute(update(executions).where(executions.c.id == execution_id).values(**values))
    forget_skipped(c, execution_id)


def printable(text: str) -> str:
    """A message that every database keeps: without null characters and lone surrogates."""
    return text.replace("\x00", "").encode("utf-8", "backslashreplace").decode("utf-8")


def forget_skipped(c: Connection, execution_id: str) -> None:
    """Marks of tasks that had nothing to do stand for no files."""
    c.execute(delete(staged).where(staged.c.execution_id == execution_id, staged.c.folder == SKIPPED))


def lock_execution(c: Connection, execution_id: str) -> RowMapping | None:
    """The row of an execution, held until the transaction ends."""
    row: RowMapping | None = (
        c.execute(select(executions).where(executions.c.id == execution_id).with_for_update()).mappings().first()
    )
    return row


def _held(execution_id: str, epoch: int) -> tuple[Any, ...]:
    return (executions.c.id == execution_id, executions.c.epoch == epoch, executions.c.state == "running")


def _row(c: Connection, execution_id: str, lock: bool = False) -> RowMapping:
    query = select(executions).where(executions.c.id == execution_id)
    row = c.execute(query.with_for_update() if lock else query).mappings().first()
    if row is None:
        raise ExecutionNotLive(
            f"there is no execution {execution_id!r}", next="nova run BINDING", execution_id=execution_id
        )
    return row


def _execution(c: Connection, row: RowMapping) -> Execution:
    return _executions(c, [row])[0]


def _executions(c: Connection, rows: Sequence[RowMapping]) -> list[Execution]:
    """The executions that these rows are of, with their pins."""
    found: dict[str, list[Pin]] = {r["id"]: [] for r in rows}
    for some in batched(list(found), _AT_ONCE):
        for p in c.execute(select(pins).where(pins.c.execution_id.in_(some))).mappings():
            found[p["execution_id"]].append(Pin(p["channel"], p["head"], p["cursor"], p["partition"], p["has_run"]))
    return [_pinned(r, found[r["id"]]) for r in rows]


def _pinned(row: RowMapping, held: Iterable[Pin]) -> Execution:
    return Execution(
        id=row["id"],
        binding=row["binding"],
        partition=row["partition"],
        state=row["state"],
        epoch=row["epoch"],
        pins={p.channel: p for p in held},
        owner=row["owner"],
        started_at=row["started_at"],
        lease_until=row["lease_until"],
        finished_at=row["finished_at"],
        error=row["error"],
        commit_id=row["commit_id"],
        run_id=row["run_id"],
        firing_id=row["firing_id"],
        purpose=row["purpose"],
    )


def read_executions(c: Connection, where: Any) -> list[Execution]:
    """Executions with their pins, oldest first."""
    query = select(executions).where(where).order_by(executions.c.started_at, executions.c.id)
    return _executions(c, c.execute(query).mappings().all())


def _in_progress(row: RowMapping) -> ExecutionInProgress:
    return ExecutionInProgress(
        f"binding {row['binding']!r} is being executed by {row['owner']}",
        found=f"execution {row['id']}, whose lease lasts until {row['lease_until']:%Y-%m-%d %H:%M:%S} UTC",
        expected="one live execution per binding and partition (R6)",
        next=f"wait for it; nova executions shows who holds it, and nova release {row['id'][:8]} ends it",
        binding=row["binding"],
        owner=row["owner"],
        execution_id=row["id"],
        lease_until=row["lease_until"],
    )


def _not_live(row: RowMapping) -> ExecutionNotLive:
    why = f" ({row['error']})" if row["error"] else ""
    return ExecutionNotLive(
        f"execution {row['id']} of {row['binding'] or 'an insert'} cannot go on: it is {row['state']}{why}",
        found=row["state"],
        expected="an execution that runs or failed",
        next=f"nova run {row['binding']}" if row["binding"] else "insert again",
        execution_id=row["id"],
    )
