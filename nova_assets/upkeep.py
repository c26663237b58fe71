"""Upkeep of channels: compaction and collection, beside whoever reads and writes them (R14, R15)."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from nova_assets.errors import CommitConflict, NovaError
from nova_assets.lease import heartbeat
from nova_assets.model.block import Block, DataFile, Manifest
from nova_assets.model.commit import Commit, CommitRequest, Publish
from nova_assets.model.compacting import Compacting
from nova_assets.model.execution import Execution
from nova_assets.model.reads import Snapshot, sources
from nova_assets.model.timeline import History
from nova_assets.model.upkeep import Collection, Verdict
from nova_assets.plan import modes
from nova_assets.plan.collect import judge
from nova_assets.plan.compact import Compact, due, forced, kept_files
from nova_assets.runtime import Runtime, crash_point

log = logging.getLogger("nova_assets.upkeep")


class Upkeep:
    """Compacts and collects.

    Args:
        grace: seconds between a block's being marked as collected and its files' being deleted: for readers that have
            planned before, and have pinned nothing.
    """

    def __init__(self, runtime: Runtime, grace: float) -> None:
        self.runtime = runtime
        self.catalog = runtime.catalog
        self.engine = runtime.engine
        self.grace = grace

    def compactable(
        self, channel: str, policy: Compacting, force: bool = False, partitions: Sequence[str] | None = None
    ) -> tuple[Compact, ...]:
        """The partitions that would be compacted now, and why."""
        return self._wanted(self.catalog.history(channel), channel, policy, force, partitions)

    def compact(
        self, channel: str, policy: Compacting, force: bool = False, partitions: Sequence[str] | None = None
    ) -> Commit | None:
        """Add a base at the newest number of each partition that is worth it; None when there is none.

        The head does not move, no trigger fires, and no answer changes.

        Args:
            force: whether or not it is worth it.
            partitions: only these.
        """
        wanted = self._wanted(self.catalog.history(channel), channel, policy, force, partitions)
        if not wanted:
            return None
        execution = self.runtime.begin_insert(channel)
        try:
            with heartbeat(self.catalog, execution, self.runtime.lease):
                history = self.catalog.history(channel, execution.pins[channel].head)
                wanted = self._wanted(history, channel, policy, force, partitions)
                if not wanted:
                    self._undo(execution, "compacted by another process")
                    return None
                commit = self.runtime.commit_insert(self._stage(execution, history, wanted, policy))
        except CommitConflict as conflict:
            log.info("channel %s was compacted by another process: %s", channel, conflict.what)
            self._undo(execution, "compacted by another process")
            return None
        except BaseException as error:
            self._undo(execution, f"{type(error).__name__}: {error}")
            raise
        log.info("compacted %s: %s", channel, "; ".join(f"{c.partition or 'all of it'}: {c.why}" for c in wanted))
        return commit

    def verdicts(self, channel: str, retain: float) -> tuple[Verdict, ...]:
        """What a collection would take of a channel, and who holds the rest."""
        return judge(self.catalog.upkeep(channel, retain))

    def collect(self, channel: str, retain: float) -> Collection:
        """Take every block that nobody needs: marked now, its files deleted after the grace."""
        found = self.catalog.collect(channel, retain)
        crash_point("collect.marked")
        self.delete_files()
        return found

    def delete_files(self) -> int:
        """Delete files of blocks that were collected longer than the grace ago. Gives how many."""
        gone = self.catalog.deletable(self.grace)
        if gone:
            self.engine.delete_files(sorted({path for _, path in gone}))
            crash_point("collect.deleted")
            self.catalog.deleted(gone)
        return len(gone)

    def _wanted(
        self, history: History, channel: str, policy: Compacting, force: bool, partitions: Sequence[str] | None
    ) -> tuple[Compact, ...]:
        found = forced(history) if force else due(history, policy, self.catalog.reads_of_all(channel))
        return tuple(c for c in found if partitions is None or c.partition in partitions)

    def _stage(
        self, execution: Execution, history: History, wanted: Sequence[Compact], policy: Compacting
    ) -> CommitRequest:
        """The bases, written in one go: of what is not kept as it is."""
        names = {c.partition for c in wanted}
        some = replace(
            history,
            blocks=tuple(b for b in history.blocks if b.partition in names),
            numbers={p: n for p, n in history.numbers.items() if p in names},
        )
        whole = modes.snapshot(some, history.head)
        blocks = {b.id: b for b in (*whole.bases, *whole.deltas) if isinstance(b, Block)}
        kept = kept_files(history, blocks, policy, self.engine.format)
        definition = self.catalog.channel(history.channel).channel
        rest = _without(whole, kept)
        frame = self.engine.sized(self.engine.read(rest), sum(b.bytes for b in sources(rest) if isinstance(b, Block)))
        manifest = self.runtime.staging.write(
            execution, history.channel, "base", definition, history, frame, schema=whole.schema
        )
        parts = {p: list(m.files) for p, m in manifest.by_partition().items()}
        for block in blocks.values():
            for file in block.manifest.files:
                if file.path in kept:
                    parts.setdefault(block.partition, []).append(replace(file, partition=block.partition))
        staged = self.runtime.staging.complete(execution)[history.channel]
        published = tuple(
            _base(staged.id if n == 0 else f"{staged.id}-{n}", history, c, parts.get(c.partition, []), manifest)
            for n, c in enumerate(wanted)
        )
        return CommitRequest(
            id=uuid.uuid4().hex,
            execution_id=execution.id,
            epoch=execution.epoch,
            binding=None,
            publish=published,
            details={"compacted": {c.partition: c.why for c in wanted}},
        )

    def _undo(self, execution: Execution, reason: str) -> None:
        """Nobody will resume this; what it staged is removed, or swept later."""
        with suppress(NovaError):
            self.catalog.abort(execution.id, reason[:4000])
            self.runtime.staging.discard(execution)


def _base(block_id: str, history: History, compact: Compact, files: list[DataFile], like: Manifest) -> Publish:
    manifest = replace(like, files=tuple(files), deletes=0)
    at = compact.at
    return Publish(
        block_id, history.channel, "base", manifest, history.merge, compact.partition, "compact", span=(at, at)
    )


def _without(snapshot: Snapshot, kept: frozenset[str]) -> Snapshot:
    """The snapshot without the files that are kept as they are."""
    if not kept:
        return snapshot

    def rest(block: Block) -> Block:
        files = tuple(f for f in block.manifest.files if f.path not in kept)
        return replace(block, manifest=replace(block.manifest, files=files))

    return replace(
        snapshot,
        bases=tuple(rest(b) for b in snapshot.bases if isinstance(b, Block)),
        deltas=tuple(rest(b) for b in snapshot.deltas if isinstance(b, Block)),
    )
