"""Upkeep of channels: compaction and collection, beside whoever reads and writes them (R14, R15)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from nova_assets.crash_points import crash_point
from nova_assets.errors import CommitConflict, DefinitionError
from nova_assets.execution.lease import heartbeat
from nova_assets.execution.runtime import Runtime
from nova_assets.masking import get_logger
from nova_assets.model.block import Block, DataFile, Manifest
from nova_assets.model.commit import Commit, CommitRequest, HeadAt, Publish
from nova_assets.model.compaction import Compacting
from nova_assets.model.execution import Execution
from nova_assets.model.external_files import is_outside
from nova_assets.model.maintenance import Collection, Verdict
from nova_assets.model.partitions import WHOLE
from nova_assets.model.period import EXPECTED, retention_of
from nova_assets.model.read_strategy import Spent, by_way
from nova_assets.model.reads import Chain, Snapshot
from nova_assets.model.schema import Schema
from nova_assets.model.timeline import History
from nova_assets.plan import modes
from nova_assets.plan.compaction import Compact, by_schema, due, final, forced, kept_files
from nova_assets.plan.garbage_collection import judge
from nova_assets.plan.retention import droppable

log = get_logger("nova_assets.upkeep")

_CHAINED, _BASES = "(chained)", "(bases)"  # no port is called so


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be compacted.

    Args:
        policy: when it is worth it.
        force: also where it is not.
        chained: deltas are to be chained, where ``force`` would add a base.
        partitions: only these.
        final: nothing more is expected in them: they get their final form.
        anew: bases that upkeep has made are replaced, too, where columns were renamed since.
        scope: that they are all in: then of nothing else anything is read.
    """

    policy: Compacting
    force: bool = False
    chained: bool = False
    partitions: tuple[str, ...] | None = None
    final: bool = False
    anew: bool = False
    scope: str = WHOLE


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

    def compactable(self, channel: str, asked: Asked) -> tuple[Compact, ...]:
        """What would be added now, and why."""
        return self._wanted(self._newest(channel, asked.scope), asked)

    def compact(self, channel: str, asked: Asked) -> Commit | None:
        """Add bases, or chained deltas, at numbers that exist, wherever it is worth it; None when it is nowhere.

        The head does not move, no trigger fires, and no answer changes.
        """
        history = self._newest(channel, asked.scope)
        wanted = self._wanted(history, asked)
        if not wanted:
            return None
        execution = self.runtime.begin_insert(channel, scope=asked.scope, purpose="compact")
        try:
            with heartbeat(self.catalog, execution, self.runtime.lease):
                head = execution.pins[channel].head
                if head != history.head:  # if it was but compacted meanwhile, the commit says so
                    history = self.catalog.history(channel, head, asked.scope, back_to=head)
                    wanted = self._wanted(history, asked)
                if not wanted:
                    self.runtime.staging.undo(execution, "compacted by another process")
                    return None
                commit = self.runtime.commit_insert(self._stage(execution, history, wanted, asked))
        except CommitConflict as conflict:
            log.info("channel %s was compacted by another process: %s", channel, conflict.what)
            self.runtime.staging.undo(execution, "compacted by another process")
            return None
        except BaseException as error:
            self.runtime.staging.undo(execution, error)
            raise
        said = "; ".join(f"{c.range} {c.partition}".rstrip() + f": {c.why}" for c in wanted)
        log.info("compacted %s: %s", channel, said)
        return commit

    def drop(self, channel: str, partitions: Sequence[str]) -> Commit | None:
        """Drop partitions, by one commit that takes a number (R19): nothing is in them from there on. No data trigger
        fires, and who reads changes is not told. None where there was nothing in them.

        Args:
            partitions: their names.
        """
        self.catalog.channel(channel).channel.refuse_external()
        for attempt in range(1, self.runtime.attempts + 1):
            try:
                return self._drop(channel, partitions)
            except CommitConflict as conflict:
                log.info("dropping partitions of %s is planned again: %s", channel, conflict.what)
                if attempt == self.runtime.attempts:
                    raise
        raise AssertionError("unreachable")

    def _drop(self, channel: str, partitions: Sequence[str]) -> Commit | None:
        execution = self.runtime.begin_insert(channel, purpose="drop")
        try:
            history = self.catalog.history(channel, execution.pins[channel].head)
            gone = droppable(history, frozenset(partitions))
            if not gone or history.schema is None:
                self.runtime.staging.undo(execution, "there was nothing in them")
                return None
            nothing = Manifest((), history.schema, format=self.engine.format)
            model = history.last_merge or history.merge  # one that was changed takes effect by a base that is given
            return self.runtime.commit_insert(
                CommitRequest(
                    id=uuid.uuid4().hex,
                    execution_id=execution.id,
                    epoch=execution.epoch,
                    binding=None,
                    publish=tuple(Publish(uuid.uuid4().hex, channel, "base", nothing, model, p, "drop") for p in gone),
                    heads=tuple(HeadAt(channel, history.head, p) for p in gone),
                    details={"dropped": len(gone)},
                )
            )
        except BaseException as error:
            self.runtime.staging.undo(execution, error)
            raise

    def verdicts(self, channel: str, retain: float) -> tuple[Verdict, ...]:
        """What a collection would take of a channel, and who holds the rest."""
        return judge(self.catalog.upkeep(channel, retain))

    def collect(self, channel: str, retain: float) -> Collection:
        """Take every block that nobody needs: marked now, its files deleted after the grace."""
        self.runtime.sweep()  # who has been dead for long needs nothing any more
        found = self.catalog.collect(channel, retain)
        crash_point("collect.marked")
        self.delete_files()
        return found

    def delete_files(self) -> int:
        """Delete files of blocks that were collected longer than the grace ago. Gives how many."""
        gone = self.catalog.deletable(self.grace)
        if gone:
            self.engine.delete_files(sorted({path for _, path in gone if not is_outside(path)}))
            crash_point("collect.deleted")
            self.catalog.deleted(gone)
        return len(gone)

    def _newest(self, channel: str, scope: str) -> History:
        """What compaction goes by: of each partition what came from its newest base on, however much is retained."""
        head = self.catalog.channel(channel).head
        return self.catalog.history(channel, head, scope, back_to=head)

    def _wanted(self, history: History, asked: Asked) -> tuple[Compact, ...]:
        channel = history.channel
        if any(b.manifest.outside is not None for b in history.blocks):
            return ()  # others keep these files as they like
        if asked.final:
            found = final(history, asked.policy)
        elif asked.force:
            found = forced(history, asked.chained, self._cursors(channel) if asked.chained else (), anew=asked.anew)
        else:
            reads = self.catalog.reads_of_all(channel)
            found = due(history, asked.policy, reads)
            if any(c.since is not None for c in found):  # only now it matters where somebody stands
                found = due(history, asked.policy, reads, self._cursors(channel))
        return tuple(c for c in found if asked.partitions is None or c.partition in asked.partitions)

    def _cursors(self, channel: str) -> frozenset[int]:
        """Numbers from which somebody will read on."""
        facts = self.catalog.upkeep(channel)
        pinned = (n for p in facts.pins for n in (p.cursor, p.head) if n is not None)
        return frozenset([*(r.cursor for r in facts.readers), *pinned])

    def _stage(self, execution: Execution, history: History, wanted: Sequence[Compact], asked: Asked) -> CommitRequest:
        """The bases of one schema in one go, and the chained deltas in others."""
        bases = by_schema((c for c in wanted if c.since is None), history)
        chains = [c for c in wanted if c.since is not None]
        spent: list[Spent] = []
        publish = (
            *(
                block
                for n, (schema, some) in enumerate(bases.items())
                for block in self._bases(execution, history, schema, some, f"{_BASES}{n}", asked, spent)
            ),
            *(self._chains(execution, history, chains, spent) if chains else ()),
        )
        return CommitRequest(
            id=uuid.uuid4().hex,
            execution_id=execution.id,
            epoch=execution.epoch,
            binding=None,
            publish=publish,
            details={
                "compacted": {f"{c.range} {c.partition}".rstrip(): c.why for c in wanted},
                "ways": [s.as_json() for s in by_way(spent)],
            },
        )

    def _chains(
        self, execution: Execution, history: History, wanted: Sequence[Compact], spent: list[Spent]
    ) -> Iterator[Publish]:
        """Chained deltas. One of each partition is written at once: what lies in different partitions has different
        keys."""
        definition = self.catalog.channel(history.channel).channel
        for n, some in enumerate(_side_by_side(history, wanted)):
            deltas = tuple(sorted((d for run in some.values() for d in run), key=lambda d: d.hi))
            schema = deltas[-1].manifest.schema
            read = Chain(history.channel, deltas[0].lo, deltas[-1].hi, deltas, schema, deltas[-1].merge)
            port = f"{_CHAINED}{n}"
            manifest, cost = self.runtime.staging.rewrite(execution, port, "delta", definition, read, schema)
            spent.append(cost)
            parts = manifest.by_partition()
            staged = self.runtime.staging.complete(execution)[port]
            for m, (compact, run) in enumerate(some.items()):
                content = parts.get(compact.partition, replace(manifest, files=(), deletes=0))
                yield Publish(
                    f"{staged.id}-{m}" if m else staged.id,
                    history.channel,
                    "delta",
                    content,
                    run[-1].merge,
                    compact.partition,
                    "compact",
                    span=(run[0].lo, run[-1].hi),
                )

    def _bases(
        self,
        execution: Execution,
        history: History,
        schema: Schema,
        wanted: Sequence[Compact],
        port: str,
        asked: Asked,
        spent: list[Spent],
    ) -> Iterator[Publish]:
        """Bases, written anew but for the files that are kept as they are.

        Args:
            schema: of the numbers at which they are added.
        """
        there = replace(history.only({c.partition for c in wanted}), schema=schema)
        whole = modes.snapshot(there)
        blocks = {b.id: b for b in (*whole.bases, *whole.deltas) if isinstance(b, Block)}
        kept = kept_files(there, blocks, asked.policy, self.engine.format, final=asked.final)
        definition = self.catalog.channel(history.channel).channel
        manifest, cost = self.runtime.staging.rewrite(
            execution, port, "base", definition, _without(whole, kept), schema
        )
        spent.append(cost)
        parts = {p: list(m.files) for p, m in manifest.by_partition().items()}
        for block in blocks.values():
            for file in block.manifest.files:
                if file.path in kept:
                    parts.setdefault(block.partition, []).append(replace(file, partition=block.partition))
        staged = self.runtime.staging.complete(execution)[port]
        for n, c in enumerate(wanted):
            yield _base(staged.id if n == 0 else f"{staged.id}-{n}", history, c, parts.get(c.partition, []), manifest)


def _base(block_id: str, history: History, compact: Compact, files: list[DataFile], like: Manifest) -> Publish:
    manifest = replace(like, files=tuple(files), deletes=0)
    at = compact.at
    return Publish(
        block_id,
        history.channel,
        "base",
        manifest,
        history.merge,
        compact.partition,
        "compact",
        span=(at, at),
        anew=compact.anew,
    )


def retained(runtime: Runtime, channel: str, given: str | None = None) -> float:
    """Seconds for which old versions of a channel are kept: as asked for; or as the project says, or the catalog
    remembers; otherwise none.

    Raises:
        DefinitionError: it is no period; taken for none, it would let everything go.
    """
    defined = next((c.retain for c in runtime.project.channels if c.name == channel), None)
    wanted = (defined or runtime.catalog.channel(channel).retain) if given is None else given
    seconds = 0 if wanted is None else retention_of(wanted)
    if seconds is None:
        raise DefinitionError("retain is an unreadable period", found=repr(wanted), expected=EXPECTED)
    return float(seconds)


def _side_by_side(history: History, wanted: Sequence[Compact]) -> list[dict[Compact, tuple[Block, ...]]]:
    """Chains with their deltas, such that at most one of each partition, and of one schema, is together."""
    tracks = {t.partition: t for t in history.tracks}
    found: dict[tuple[int, Schema], dict[Compact, tuple[Block, ...]]] = {}
    seen: dict[str, int] = {}
    for c in wanted:
        assert c.since is not None
        run = modes.path(tracks[c.partition], c.since, c.at)
        assert run, "what is to be chained leads from one number to the other"
        n = seen[c.partition] = seen.get(c.partition, -1) + 1
        found.setdefault((n, run[-1].manifest.schema), {})[c] = run
    return list(found.values())


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
