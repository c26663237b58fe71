"""Staging: blocks on their way to a commit (R3): recorded, then written, then described, then published or swept."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from nova_assets.errors import BlockCollected, NovaError, PartitionError, SchemaMismatch, UnrepresentableChange
from nova_assets.execution.warehouse_identity import adopt_warehouse
from nova_assets.model.block import Block, Kind, Manifest, Origin, StagedBlock
from nova_assets.model.catalog import Catalog
from nova_assets.model.channel import Channel
from nova_assets.model.commit import CommitRequest, NoConsumers, Publish, SchemaAt
from nova_assets.model.engine import Engine, Frame
from nova_assets.model.execution import Execution, TaskReport
from nova_assets.model.merge import Append, Custom
from nova_assets.model.partitions import WHOLE
from nova_assets.model.read_strategy import Spent
from nova_assets.model.reads import Chain, Diff, Snapshot
from nova_assets.model.schema import DELETED, UNKNOWN, DataType, Schema
from nova_assets.model.schema_evolution import reconcile
from nova_assets.model.sum_bounds import SumRoom, limited_sums
from nova_assets.model.timeline import History, Track
from nova_assets.plan import modes
from nova_assets.plan.garbage_collection import scoped
from nova_assets.plan.read_strategy import ways
from nova_assets.plan.run import RunPlan, Step, check_model_unchanged
from nova_assets.plan.sum_bounds import are_small, lines, rooms

_SKIPPED = "(skipped)"
_CHECKED = "(checks)"  # no port is called so


class Staging:
    """Writes blocks for executions, and turns what they staged into a commit request."""

    def __init__(self, catalog: Catalog, engine: Engine, crash_point: Callable[[str], None]) -> None:
        self.catalog = catalog
        self.engine = engine
        self.crash_point = crash_point
        self._marked = False

    def write(
        self,
        execution: Execution,
        port: str,
        kind: Kind,
        channel: Channel | None,
        history: History | None,
        frame: Frame,
        *,
        digest: bool = False,
    ) -> Manifest:
        """Stage one block.

        Args:
            channel, history: None for a private port.
            digest: have the manifest say the digest of the rows.

        Raises:
            SchemaMismatch, BadKey, ModelChanged, UnrepresentableChange, SumOverflow: and nothing of it is published.
        """
        scope = WHOLE if history is None else history.scope
        if channel is not None and channel.partitions:
            frame = self.engine.in_partition(frame, channel, scope, None if history is None else history.schema)
        schema = self._fit(channel, history, kind, self.engine.schema_of(frame))
        block = self._recorded(execution, port, kind, channel, scope)
        manifest = self.engine.write(frame, block, channel, schema, digest=digest)
        self.crash_point("stage.written")
        if channel is not None and history is not None and kind == "base":
            manifest = self._compare_with_old(channel, history, manifest)
        elif channel is not None and history is not None:
            self._check_sums(channel, history, replace(block, manifest=manifest))
        self.catalog.fill(block.id, manifest)
        return manifest

    def rewrite(
        self, execution: Execution, port: str, kind: Kind, channel: Channel, read: Snapshot | Chain, schema: Schema
    ) -> tuple[Manifest, Spent]:
        """Stage a block that holds what the channel holds already: nothing of it is judged. Gives what it cost, too."""
        expected, started = ways(read, "block"), time.monotonic()
        block = self._recorded(execution, port, kind, channel, WHOLE)
        manifest, way = self.engine.rewrite(read, block, channel, schema)
        self.crash_point("stage.written")
        self.catalog.fill(block.id, manifest)
        new = [f for f in manifest.files if f.path.startswith(f"{block.folder}/")]
        took = time.monotonic() - started
        estimate = next((e for e in expected if e.way == way), None)
        return manifest, Spent(way, estimate, took, sum(f.rows for f in new), sum(f.bytes for f in new))

    def _recorded(
        self, execution: Execution, port: str, kind: Kind, channel: Channel | None, scope: str
    ) -> StagedBlock:
        """A block that is known of before anything of it is written (R3)."""
        block_id = uuid.uuid4().hex
        block = StagedBlock(
            id=block_id,
            execution_id=execution.id,
            channel=None if channel is None else channel.name,
            port=port,
            kind=kind,
            folder=f"blocks/{block_id}",
            epoch=execution.epoch,
            partition=scope,
        )
        self._mark()
        self.catalog.stage([block])
        self.crash_point("stage.recorded")
        return block

    def skip(self, execution: Execution, step: Step) -> None:
        """Record that a task had nothing new: its outputs change nothing, and its readers see what is pinned."""
        blocks = [
            StagedBlock(uuid.uuid4().hex, execution.id, o.channel, o.port, "delta", _SKIPPED, execution.epoch)
            for o in step.outputs
        ]
        self.catalog.stage(blocks)
        for block in blocks:
            self.catalog.fill(block.id, Manifest((), Schema(())))

    def mark_checked(self, execution: Execution) -> None:
        """Record that every blocking check holds of what is staged now, for whoever commits it."""
        mark = StagedBlock(uuid.uuid4().hex, execution.id, None, _CHECKED, "delta", _SKIPPED, execution.epoch)
        self.catalog.stage([mark])
        self.catalog.fill(mark.id, Manifest((), Schema(())))

    def is_checked(self, execution: Execution) -> bool:
        return _CHECKED in self.complete(execution)

    def void(self, execution: Execution, ports: Iterable[str]) -> None:
        """Forget what was staged on ports whose task runs again; the files are swept with the execution."""
        self.catalog.drop_staged(execution.id, [*ports, _CHECKED])

    def discard(self, execution: Execution) -> None:
        """Remove what was staged and is not part of any block. What cannot be removed now is swept later."""
        with suppress(NovaError):
            staged = self.catalog.staged(execution.id)
            for block in staged:
                self.engine.delete(block.folder)
            self.catalog.swept([b.id for b in staged], for_good=True)

    def undo(self, execution: Execution, why: BaseException | str) -> None:
        """End an execution that nobody will resume, and leave nothing of it. If it was committed the catalog refuses,
        and what it staged is left alone."""
        reason = why if isinstance(why, str) else f"{type(why).__name__}: {why}"
        with suppress(NovaError):
            self.catalog.abort(execution.id, reason[:4000])
            self.discard(execution)

    def complete(self, execution: Execution) -> dict[str, StagedBlock]:
        """Port -> its staged block, for those that are written whole."""
        return {b.port: b for b in self.catalog.staged(execution.id) if b.manifest is not None}

    def skipped(self, execution: Execution) -> frozenset[str]:
        """Ports whose writers had nothing new to do."""
        return frozenset(p for p, b in self.complete(execution).items() if b.folder == _SKIPPED)

    def blocks(self, execution: Execution, histories: Mapping[str, History]) -> dict[str, Block]:
        """Port -> the staged block, as if it were committed on top of the pins (R5)."""
        found = {}
        for port, staged in self.complete(execution).items():
            if staged.manifest is None or staged.folder == _SKIPPED:
                continue
            history = histories.get(staged.channel or "")
            head, merge = (history.head, history.merge) if history is not None else (0, Append())
            lo = head if staged.kind == "delta" else head + 1
            found[port] = Block(
                staged.id, staged.channel or port, staged.partition, staged.kind, lo, head + 1, staged.manifest, merge
            )
        return found

    def tell_who_cannot_compare(self, execution: Execution, histories: Mapping[str, History]) -> None:
        """Stage beside a base what it changes (R15), where a consumer lags behind that could not find out: the snapshot
        at its cursor was collected while nobody knew that the channel may be given a base."""
        done = self.complete(execution)
        for block in done.values():
            channel = block.channel
            if block.kind != "base" or channel is None or block.manifest is None or _told(channel) in done:
                continue
            head = histories[channel].head
            if head and self.catalog.has_consumers(channel) and self.somebody_cannot_compare(channel, head):
                history = self.catalog.history(channel, head, histories[channel].scope, back_to=head)
                self.tell(execution, self.catalog.channel(channel).channel, history, block.manifest)

    def somebody_cannot_compare(self, channel: str, head: int) -> bool:
        """Whether a consumer lags behind of which the snapshot at the cursor is gone."""
        lagging = self.catalog.lagging(channel, head)
        if not lagging:
            return False
        history = self.catalog.history(channel, head, back_to=min(seq for seq, _ in lagging))
        for seq, scope in lagging:
            try:
                modes.snapshot(scoped(history, scope), seq)
            except BlockCollected:
                return True
        return False

    def tell(self, execution: Execution, channel: Channel, history: History, base: Manifest) -> StagedBlock:
        """Stage what a base changes, as a delta to be committed beside it (R15)."""
        new = Block("", channel.name, history.scope, "base", history.head + 1, history.head + 1, base, history.merge)
        after = Snapshot(channel.name, history.head + 1, (new,), (), base.schema, history.merge)
        frame = self.engine.fetch(Diff(modes.snapshot(history), after))
        unchanged = replace(history, last_merge=None)  # a changed model takes effect by this very base
        self.write(execution, _told(channel.name), "delta", channel, unchanged, frame)
        return self.complete(execution)[_told(channel.name)]

    def request(
        self, execution: Execution, plan: RunPlan, histories: Mapping[str, History], reports: Sequence[TaskReport] = ()
    ) -> CommitRequest:
        """Everything that the execution publishes, and what that requires (R2, R6).

        Args:
            reports: of its tasks, as far as they are known here; kept beside the commit.
        """
        published = tuple(
            part
            for b in self.complete(execution).values()
            if b.channel is not None and b.folder != _SKIPPED
            for part in publications(b, histories[b.channel])
        )
        return CommitRequest(
            id=uuid.uuid4().hex,
            execution_id=execution.id,
            epoch=execution.epoch,
            binding=execution.binding,
            publish=published,
            cursors=plan.cursors,
            heads=plan.heads,
            consumed={c: (p.cursor, p.head) for c, p in execution.pins.items() if c in plan.consumed},
            details={"tasks": [r.as_json() for r in reports]} if reports else {},
            rooms=self.rooms(published, histories),
            **requirements(published, histories),
        )

    def rooms(self, published: Iterable[Publish], histories: Mapping[str, History]) -> tuple[SumRoom, ...]:
        """What publishing these blocks requires of others' deltas, so that all together no sum overflows."""
        found: list[SumRoom] = []
        for part in published:
            types = limited_sums(part.merge, part.manifest.schema) if part.kind == "delta" else {}
            if types and part.manifest.rows:
                head = histories[part.channel].head
                near = self.catalog.history(part.channel, head, part.partition, back_to=head)
                found += rooms(near, part.manifest, types)
        return tuple(found)

    def _mark(self) -> None:
        """See, once per process, that the warehouse is the catalog's, which leaves a mark in it: another catalog that
        writes there then knows that what it does not list may be ours."""
        if not self._marked:
            adopt_warehouse(self.catalog, self.engine)
            self._marked = True

    # checks

    def _fit(self, channel: Channel | None, history: History | None, kind: Kind, given: Schema) -> Schema:
        """The schema that the block is written in."""
        if channel is None or history is None:
            return _as_text(given)
        _need_partition_columns(channel, given)
        if kind == "delta" or history.scope:
            check_model_unchanged(history)
        if kind == "delta" and isinstance(channel.merge, Custom):
            return _as_text(given)
        given = given.without(DELETED)
        schema = reconcile(channel.name, history.schema, given, channel.on_schema_change, history.head)
        if history.schema is None:
            _check_first_schema(channel, schema)
        return schema

    def _check_sums(self, channel: Channel, history: History, staged: StagedBlock) -> None:
        """Refuse a delta with which a sum would leave its column's type, and could be read by nobody any more. Rows are
        looked at only where the bounds of files do not tell."""
        assert staged.manifest is not None
        types = limited_sums(history.merge, staged.manifest.schema)
        if not types or not staged.manifest.rows:
            return
        head = history.head
        near = self.catalog.history(channel.name, head, history.scope, back_to=head)
        if are_small(rooms(near, staged.manifest, types), types) and not self.catalog.has_drops(channel.name):
            return
        whole = self.catalog.history(channel.name, head, history.scope)
        tight = {r.partition for r in rooms(whole, staged.manifest, types) if r.room is None}
        parts, tracks = staged.manifest.by_partition(), {t.partition: t for t in whole.tracks}
        for partition in sorted(tight):
            block = Block(staged.id, channel.name, partition, "delta", head, head + 1, parts[partition], history.merge)
            track = tracks.get(partition, Track(partition, (), ()))
            for older in lines(whole, track):
                self.engine.check_sums(f"channel {channel.name!r}", block, older, types)

    def _compare_with_old(self, channel: Channel, history: History, manifest: Manifest) -> Manifest:
        """An Append channel cannot tell its consumers that rows have gone, so a base is compared before it is accepted.

        While nobody consumes changes there is nobody to tell, and the comparison is saved; the commit then requires
        that it is still so.
        """
        if not isinstance(channel.merge, Append) or history.head == 0 or not self.catalog.has_consumers(channel.name):
            return manifest
        dropped = self.engine.dropped(modes.snapshot(history), manifest)
        if dropped:
            raise UnrepresentableChange(
                f"the base for channel {channel.name!r} drops {dropped} rows, which an Append channel cannot tell its "
                "consumers of changes (R10)",
                found=f"{dropped} rows of version {history.head} are not in the new base",
                expected="a base that keeps every row",
                next="declare the channel with merge=nova.Upsert(key=...), or insert a base that keeps them",
                channel=channel.name,
                dropped=dropped,
            )
        return replace(manifest, keeps_all=True)


def _told(channel: str) -> str:
    """Where the changes that a base makes to a channel are staged; no port is called so."""
    return f"(changes of {channel})"


def _as_text(given: Schema) -> Schema:
    """Columns of nothing but nulls as text, in rows whose schema nothing later depends on."""
    return Schema(tuple(replace(f, type=DataType("string")) if f.type == UNKNOWN else f for f in given.fields))


def _check_first_schema(channel: Channel, given: Schema) -> None:
    """The first block gives the schema, which has to be one that the channel could have been defined with."""
    problems = channel.merge.problems(given)
    problems += [f"partition column {c!r} has no type yet" for c in channel.partition_columns if c not in given]
    if problems:
        raise SchemaMismatch(
            f"the first data of channel {channel.name!r} does not fit its merge model: {'; '.join(problems)}",
            found=str(given),
            expected="columns and types that the merge model can compare and combine",
            next="cast or rename the columns, or declare the channel with schema=",
            channel=channel.name,
            problems=problems,
        )


def _need_partition_columns(channel: Channel, given: Schema) -> None:
    lacking = [c for c in channel.partition_columns if c not in given]
    if lacking:
        raise PartitionError(
            f"channel {channel.name!r} was given data that does not say in which partition it belongs",
            found=f"columns {', '.join(given.names)}",
            expected=f"also {', '.join(lacking)}",
            next="add the column, or name the partition: partition=..., --partition",
            channel=channel.name,
        )


def publications(staged: StagedBlock, history: History, origin: Origin = "task") -> list[Publish]:
    """What a staged block publishes: one block in each partition (R13).

    A base replaces everything in its scope, so partitions that it leaves out are emptied: by a base without rows.
    """
    assert staged.manifest is not None
    parts = staged.manifest.by_partition()
    if staged.kind == "base":
        held = [t.partition for t in history.tracks if t.blocks[-1].kind == "delta" or t.blocks[-1].rows]
        for gone in held:
            parts.setdefault(gone, replace(staged.manifest, files=(), deletes=0))
    parts = parts or {history.scope: staged.manifest}
    return [
        Publish(staged.id if n == 0 else f"{staged.id}-{n}", history.channel, staged.kind, m, history.merge, p, origin)
        for n, (p, m) in enumerate(parts.items())
    ]


def requirements(published: Iterable[Publish], histories: Mapping[str, History]) -> dict[str, Any]:
    """What publishing these blocks requires beyond cursors and heads: schemas as they were, no consumer of lost
    rows."""
    schemas, unread = [], []
    for block in {p.channel: p for p in published}.values():
        history = histories[block.channel]
        if not isinstance(history.merge, Custom) or block.kind == "base" or history.schema is None:
            schemas.append(SchemaAt(block.channel, history.schema, block.manifest.schema))
        replaces_rows = block.kind == "base" and isinstance(history.merge, Append) and history.head > 0
        if replaces_rows and not block.manifest.keeps_all:
            unread.append(NoConsumers(block.channel))
    return {"schemas": tuple(schemas), "no_consumers": tuple(unread)}
