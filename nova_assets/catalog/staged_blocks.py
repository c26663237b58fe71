"""Staged blocks: recorded before they are written, and listed until they are published or swept (R3)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta

from sqlalchemy import Connection, RowMapping, delete, exists, insert, select, update

from nova_assets.catalog.database import Database
from nova_assets.catalog.executions import SKIPPED, Executions, read_executions
from nova_assets.catalog.read_pins import Readers
from nova_assets.catalog.tables import executions, staged
from nova_assets.errors import ExecutionNotLive
from nova_assets.model.block import Manifest, StagedBlock
from nova_assets.model.execution import Execution


class StagingArea:
    """What is on its way."""

    def __init__(self, database: Database, lives: Executions) -> None:
        self.database = database
        self.lives = lives
        self.readers = Readers(database)

    def stage(self, blocks: Sequence[StagedBlock]) -> None:
        """Record blocks that are about to be written."""
        if not blocks:
            return
        rows = [
            {
                "id": b.id,
                "execution_id": b.execution_id,
                "channel": b.channel,
                "port": b.port,
                "partition": b.partition,
                "kind": b.kind,
                "folder": b.folder,
                "epoch": b.epoch,
                "manifest": None if b.manifest is None else b.manifest.as_json(),
                "dropped": False,
            }
            for b in blocks
        ]

        def work(c: Connection) -> None:
            now = self.database.clock()
            c.execute(insert(staged), [{**row, "at": now} for row in rows])

        self.database.write(work)

    def fill(self, block_id: str, manifest: Manifest) -> None:
        """The block's files are complete. Raises ExecutionNotLive when the execution has gone on without us."""
        current = select(executions.c.epoch).where(
            executions.c.id == staged.c.execution_id, executions.c.state == "running"
        )
        mine = (staged.c.id == block_id, staged.c.epoch == current.scalar_subquery())
        change = update(staged).where(*mine).values(manifest=manifest.as_json())
        if not self.database.write(lambda c: c.execute(change).rowcount):
            raise ExecutionNotLive(
                "the execution was taken over by another process while this one wrote a block",
                expected="to be the one that holds it (R6)",
                next="nothing: what was written here is swept",
                block_id=block_id,
            )

    def drop_staged(self, execution_id: str, ports: Iterable[str]) -> None:
        """What was staged on these ports is void: their tasks run again."""
        where = (staged.c.execution_id == execution_id, staged.c.port.in_(list(ports)), staged.c.dropped.is_(False))
        if self.database.read(lambda c: c.execute(select(staged.c.id).where(*where).limit(1)).first()) is None:
            return

        def work(c: Connection) -> None:
            c.execute(delete(staged).where(*where, staged.c.folder == SKIPPED))
            c.execute(update(staged).where(*where).values(dropped=True))

        self.database.write(work)

    def staged(self, execution_id: str) -> list[StagedBlock]:
        """What an execution has staged and not voided, oldest first."""
        query = (
            select(staged)
            .where(staged.c.execution_id == execution_id, staged.c.dropped.is_(False))
            .order_by(staged.c.at, staged.c.id)
        )
        return [_staged(r) for r in self.database.read(lambda c: c.execute(query).mappings().all())]

    def sweepable(self, grace: float, again: float = 0.0) -> list[StagedBlock]:
        """Staged blocks of executions that have ended, or lapsed, more than ``grace`` seconds ago.

        Args:
            again: seconds after which what was swept once is swept again, for the last time.
        """
        self.readers.delete_dead(grace)
        now = self.database.clock()
        before = now - timedelta(seconds=grace)
        lapsed = select(executions.c.id).where(
            executions.c.state.in_(["running", "failed"]), executions.c.lease_until < before
        )
        if self.database.read(lambda c: c.execute(lapsed.limit(1)).first()) is not None:
            self.database.write(lambda c: self.lives.abort_lapsed(c, timedelta(seconds=grace)))
        # A lapsed execution has had its grace already: what counts is when its lease ended.
        ended = executions.c.state.in_(["aborted", "committed"]) & (
            (executions.c.finished_at < before) | (executions.c.lease_until < before)
        )
        # What is staged is little, and there are as many executions as there ever were.
        of = exists().where(executions.c.id == staged.c.execution_id, ended)
        query = (
            select(staged)
            .where(of, staged.c.folder != SKIPPED)
            .where(staged.c.swept_at.is_(None) | (staged.c.swept_at < now - timedelta(seconds=again)))
        )
        return [_staged(r) for r in self.database.read(lambda c: c.execute(query).mappings().all())]

    def leftovers(self) -> list[tuple[Execution, tuple[StagedBlock, ...]]]:
        """Every execution that has not ended, or whose staged blocks are still there, with these."""
        query = select(staged).where(staged.c.folder != SKIPPED, staged.c.swept_at.is_(None))
        query = query.order_by(staged.c.at, staged.c.id)

        def work(c: Connection) -> list[tuple[Execution, tuple[StagedBlock, ...]]]:
            found: dict[str, list[StagedBlock]] = {}
            for row in c.execute(query).mappings():
                found.setdefault(row["execution_id"], []).append(_staged(row))
            unfinished = executions.c.state.in_(["running", "failed"])
            waiting = select(staged.c.execution_id).where(staged.c.swept_at.is_(None))
            lives = read_executions(c, unfinished | executions.c.id.in_(waiting))
            return [(e, tuple(found.get(e.id, ()))) for e in lives]

        return self.database.read(work)

    def swept(self, block_ids: Sequence[str], for_good: bool = False) -> None:
        """Their files are gone.

        Args:
            for_good: whoever wrote them writes no more. Otherwise they are swept once again.
        """
        mine = staged.c.id.in_(list(block_ids))

        def work(c: Connection) -> None:
            c.execute(delete(staged).where(mine, *(() if for_good else (staged.c.swept_at.is_not(None),))))
            c.execute(update(staged).where(mine).values(swept_at=self.database.clock()))

        if block_ids:
            self.database.write(work)


def _staged(row: RowMapping) -> StagedBlock:
    manifest = None if row["manifest"] is None else Manifest.from_json(row["manifest"])
    return StagedBlock(
        row["id"],
        row["execution_id"],
        row["channel"],
        row["port"],
        row["kind"],
        row["folder"],
        row["epoch"],
        row["partition"],
        manifest,
    )
