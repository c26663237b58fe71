"""Staged blocks: recorded before their files are written, and kept until they are published or swept (R3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

from sqlalchemy import Connection, RowMapping, delete, exists, insert, select, update

from nova_assets.catalog.catalog_part import CatalogPart
from nova_assets.catalog.execution_rows import SKIPPED_FOLDER, read_executions
from nova_assets.catalog.instants import record_rollbacks
from nova_assets.catalog.leases import (
    abort_lapsed_executions,
    delete_dead_readers,
    is_unended_with_lapsed_lease,
    lapsed_or_failed_readers,
)
from nova_assets.catalog.tables import executions, staged_blocks
from nova_assets.errors import ExecutionNotLive
from nova_assets.model.block import Manifest, StagedBlock
from nova_assets.model.execution import Execution


class StagingArea(CatalogPart):
    """Records staged blocks, and finds those whose files can be swept."""

    def record(self, blocks: Sequence[StagedBlock]) -> None:
        """Record blocks before their files are written."""
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

        def insert_rows(c: Connection) -> None:
            now = self.database.clock()
            c.execute(insert(staged_blocks), [{**row, "at": now} for row in rows])

        self.database.write(insert_rows)

    def record_manifest(self, block_id: str, manifest: Manifest) -> None:
        """Store the manifest of a block whose files are complete.

        Raises:
            ExecutionNotLive: another process took over the execution.
        """
        live_epoch = select(executions.c.epoch).where(
            executions.c.id == staged_blocks.c.execution_id, executions.c.state == "running"
        )
        conditions = (staged_blocks.c.id == block_id, staged_blocks.c.epoch == live_epoch.scalar_subquery())
        change = update(staged_blocks).where(*conditions).values(manifest=manifest.as_json())
        if not self.database.write(lambda c: c.execute(change).rowcount):
            raise ExecutionNotLive(
                "another process took over the execution while this process wrote a block",
                expected="an execution that this process still holds (R6)",
                next="nothing: maintenance deletes the files of the block",
                block_id=block_id,
            )

    def drop(self, execution_id: str, ports: Iterable[str]) -> None:
        """Void the blocks staged on some ports, whose tasks run again."""
        conditions = (
            staged_blocks.c.execution_id == execution_id,
            staged_blocks.c.port.in_(list(ports)),
            staged_blocks.c.dropped.is_(False),
        )
        if (
            self.database.read(lambda c: c.execute(select(staged_blocks.c.id).where(*conditions).limit(1)).first())
            is None
        ):
            return

        def void_blocks(c: Connection) -> None:
            c.execute(delete(staged_blocks).where(*conditions, staged_blocks.c.folder == SKIPPED_FOLDER))
            c.execute(update(staged_blocks).where(*conditions).values(dropped=True))

        self.database.write(void_blocks)

    def of(self, execution_id: str) -> list[StagedBlock]:
        """Staged blocks of an execution that are not void, oldest first."""
        query = (
            select(staged_blocks)
            .where(staged_blocks.c.execution_id == execution_id, staged_blocks.c.dropped.is_(False))
            .order_by(staged_blocks.c.at, staged_blocks.c.id)
        )
        return [_staged_block_from_row(r) for r in self.database.read(lambda c: c.execute(query).mappings().all())]

    def sweepable(self, grace_seconds: float, resweep_after: float = 0.0) -> list[StagedBlock]:
        """Staged blocks of executions that ended or lapsed more than a grace period ago. Aborts the lapsed executions.

        Args:
            grace_seconds: the grace period.
            resweep_after: seconds after which swept blocks are swept a second and last time.
        """
        now = self.database.clock()
        readers = lapsed_or_failed_readers(now, grace_seconds)
        ended_before = now - timedelta(seconds=grace_seconds)
        lapsed = select(executions.c.id).where(is_unended_with_lapsed_lease(ended_before)).limit(1)
        # For a lapsed execution, the grace period starts at the end of its lease, not at the abort.
        ended = executions.c.state.in_(["aborted", "committed"]) & (
            (executions.c.finished_at < ended_before) | (executions.c.lease_until < ended_before)
        )
        # An EXISTS starts at the staged blocks, which are few, while old executions may be many.
        has_ended_execution = exists().where(executions.c.id == staged_blocks.c.execution_id, ended)
        query = (
            select(staged_blocks)
            .where(has_ended_execution, staged_blocks.c.folder != SKIPPED_FOLDER)
            .where(
                staged_blocks.c.swept_at.is_(None) | (staged_blocks.c.swept_at < now - timedelta(seconds=resweep_after))
            )
        )

        def read_blocks(c: Connection) -> tuple[bool, bool, list[StagedBlock]]:
            blocks = [_staged_block_from_row(r) for r in c.execute(query).mappings()]
            return c.execute(readers).first() is not None, c.execute(lapsed).first() is not None, blocks

        has_dead_readers, has_lapsed, blocks = self.database.read(read_blocks)
        if has_dead_readers:
            delete_dead_readers(self.database, readers)
        if has_lapsed:
            self.database.write(lambda c: abort_lapsed_executions(c, self.database, ended_before))
            *_, blocks = self.database.read(read_blocks)
        return blocks

    def executions_with_blocks(self) -> list[tuple[Execution, tuple[StagedBlock, ...]]]:
        """Executions that have not ended, or whose staged blocks are not swept, with these blocks."""
        query = select(staged_blocks).where(
            staged_blocks.c.folder != SKIPPED_FOLDER, staged_blocks.c.swept_at.is_(None)
        )
        query = query.order_by(staged_blocks.c.at, staged_blocks.c.id)

        def read_leftovers(c: Connection) -> list[tuple[Execution, tuple[StagedBlock, ...]]]:
            blocks_by_execution: dict[str, list[StagedBlock]] = {}
            for row in c.execute(query).mappings():
                blocks_by_execution.setdefault(row["execution_id"], []).append(_staged_block_from_row(row))
            unfinished = executions.c.state.in_(["running", "failed"])
            waiting = select(staged_blocks.c.execution_id).where(staged_blocks.c.swept_at.is_(None))
            remaining_executions = read_executions(c, unfinished | executions.c.id.in_(waiting))
            return [(e, tuple(blocks_by_execution.get(e.id, ()))) for e in remaining_executions]

        return self.database.read(read_leftovers)

    def mark_swept(
        self, removed_files: Mapping[str, Sequence[str]], *, is_final: bool = False, is_rollback: bool = True
    ) -> None:
        """Record that the files of some blocks were deleted. For aborted executions, this is a rollback of the channel.

        Args:
            removed_files: block -> its files that were deleted; none if there were none.
            is_rollback: tell the timelines of the channels. False if the execution repeated an earlier commit.
            is_final: nothing writes to the blocks any more. Otherwise they are swept a second time.
        """
        is_swept_block = staged_blocks.c.id.in_(list(removed_files))

        def mark_swept(c: Connection) -> None:
            if is_rollback:
                record_rollbacks(c, removed_files, self.database.clock())
            c.execute(
                delete(staged_blocks).where(
                    is_swept_block, *(() if is_final else (staged_blocks.c.swept_at.is_not(None),))
                )
            )
            c.execute(update(staged_blocks).where(is_swept_block).values(swept_at=self.database.clock()))

        if removed_files:
            self.database.write(mark_swept)


def _staged_block_from_row(row: RowMapping) -> StagedBlock:
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
