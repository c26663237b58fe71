"""Staging of blocks before a commit (R3): recorded, written, described by a manifest, then published or deleted."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from nova_assets.errors import BlockCollected, PartitionError, SchemaMismatch, UnrepresentableChange
from nova_assets.execution.warehouse_identity import adopt_warehouse
from nova_assets.model.block import Block, Kind, Manifest, Origin, StagedBlock
from nova_assets.model.catalog import Catalog
from nova_assets.model.channel import Channel
from nova_assets.model.commit import AddBlock, CommitRequest, RequireNoConsumers, SetSchema
from nova_assets.model.engine import Engine, Frame
from nova_assets.model.execution import Execution, TaskReport
from nova_assets.model.merge import Append, Custom
from nova_assets.model.partitions import WHOLE
from nova_assets.model.read_strategy import ActualCost
from nova_assets.model.reads import DeltaChain, Snapshot, SnapshotDiff
from nova_assets.model.schema import DELETED, UNKNOWN_TYPE, DataType, Schema
from nova_assets.model.schema_evolution import reconcile_schema
from nova_assets.model.sum_bounds import RequireSumHeadroom, overflowable_sums
from nova_assets.model.timeline import History, PartitionHistory
from nova_assets.nova_error import NovaError
from nova_assets.plan import modes
from nova_assets.plan.garbage_collection import history_in_scope
from nova_assets.plan.read_strategy import estimate_strategies
from nova_assets.plan.run import check_model_unchanged
from nova_assets.plan.run_plan import RunPlan, Step
from nova_assets.plan.sum_bounds import are_sums_small, sum_headrooms, summed_blocks

_SKIPPED_FOLDER = "(skipped)"
_CHECKED_PORT = "(checks)"  # parentheses cannot occur in a port's name


class Staging:
    """Writes blocks for executions, and builds commit requests from the staged blocks."""

    def __init__(self, catalog: Catalog, engine: Engine, crash_point: Callable[[str], None]) -> None:
        self.catalog = catalog
        self.engine = engine
        self.crash_point = crash_point
        self._warehouse_adopted = False

    def write(
        self,
        execution: Execution,
        port: str,
        kind: Kind,
        channel: Channel | None,
        history: History | None,
        frame: Frame,
        *,
        with_digest: bool = False,
    ) -> Manifest:
        """Stage one block.

        Args:
            channel, history: None for a private port.
            with_digest: include a digest of the rows in the manifest.

        Raises:
            SchemaMismatch, BadKey, ModelChanged, UnrepresentableChange, SumOverflow: nothing of the block is published.
        """
        scope = WHOLE if history is None else history.scope
        if channel is not None and channel.partitions:
            frame = self.engine.add_partition_columns(
                frame, channel, scope, None if history is None else history.schema
            )
        schema = self._resolve_block_schema(channel, history, kind, self.engine.schema_of(frame))
        block = self._record_staged_block(execution, port, kind, channel, scope)
        manifest = self.engine.write(frame, block, channel, schema, digest=with_digest)
        self.crash_point("stage.written")
        if channel is not None and history is not None and kind == "base":
            manifest = self._check_base_keeps_rows(channel, history, manifest)
        elif channel is not None and history is not None:
            self._check_sums(channel, history, replace(block, manifest=manifest))
        self.catalog.record_manifest(block.id, manifest)
        return manifest

    def write_compacted(
        self, execution: Execution, port: str, kind: Kind, channel: Channel, read: Snapshot | DeltaChain, schema: Schema
    ) -> tuple[Manifest, ActualCost]:
        """Stage a block of rows that the channel holds already, without validation. Returns manifest and cost."""
        expected, started = estimate_strategies(read, "block"), time.monotonic()
        block = self._record_staged_block(execution, port, kind, channel, WHOLE)
        manifest, way = self.engine.rewrite(read, block, channel, schema)
        self.crash_point("stage.written")
        self.catalog.record_manifest(block.id, manifest)
        new = [f for f in manifest.files if f.path.startswith(f"{block.folder}/")]
        took = time.monotonic() - started
        estimate = next((e for e in expected if e.strategy == way), None)
        return manifest, ActualCost(way, estimate, took, sum(f.rows for f in new), sum(f.bytes for f in new))

    def _record_staged_block(
        self, execution: Execution, port: str, kind: Kind, channel: Channel | None, scope: str
    ) -> StagedBlock:
        """Record a block in the catalog before any of its files is written (R3)."""
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
        self._adopt_warehouse_once()
        self.catalog.record_staged_blocks([block])
        self.crash_point("stage.recorded")
        return block

    def record_skipped_task(self, execution: Execution, step: Step) -> None:
        """Record that a task was skipped: its outputs change nothing, and their readers see the pinned state."""
        blocks = [
            StagedBlock(uuid.uuid4().hex, execution.id, o.channel, o.port, "delta", _SKIPPED_FOLDER, execution.epoch)
            for o in step.outputs
        ]
        self.catalog.record_staged_blocks(blocks)
        for block in blocks:
            self.catalog.record_manifest(block.id, Manifest((), Schema(())))

    def record_checks_passed(self, execution: Execution) -> None:
        """Record that all blocking checks passed on the staged blocks, for the process that commits."""
        mark = StagedBlock(
            uuid.uuid4().hex, execution.id, None, _CHECKED_PORT, "delta", _SKIPPED_FOLDER, execution.epoch
        )
        self.catalog.record_staged_blocks([mark])
        self.catalog.record_manifest(mark.id, Manifest((), Schema(())))

    def checks_passed(self, execution: Execution) -> bool:
        return _CHECKED_PORT in self.complete_blocks_by_port(execution)

    def forget_staged_ports(self, execution: Execution, ports: Iterable[str]) -> None:
        """Forget the staged blocks of ports whose task runs again. Their files are deleted with the execution."""
        self.catalog.drop_staged_blocks(execution.id, [*ports, _CHECKED_PORT])

    def delete_staged(self, execution: Execution) -> None:
        """Delete the staged files that no block uses. Files that cannot be deleted now are deleted by a later sweep."""
        with suppress(NovaError):
            staged = self.catalog.staged_blocks(execution.id)
            for block in staged:
                self.engine.delete_staged_folder(block.folder)
            self.catalog.mark_swept([b.id for b in staged], is_final=True)

    def abort_and_delete_staged(self, execution: Execution, cause: BaseException | str) -> None:
        """Abort an execution that will not be resumed, and delete its staged files.

        If the execution was committed, the catalog refuses the abort, and the files stay.
        """
        reason = cause if isinstance(cause, str) else f"{type(cause).__name__}: {cause}"
        with suppress(NovaError):
            self.catalog.abort(execution.id, reason[:4000])
            self.delete_staged(execution)

    def complete_blocks_by_port(self, execution: Execution) -> dict[str, StagedBlock]:
        """Port -> its staged block, for completely written blocks."""
        return {b.port: b for b in self.catalog.staged_blocks(execution.id) if b.manifest is not None}

    def skipped_ports(self, execution: Execution) -> frozenset[str]:
        """Ports whose writing task was skipped."""
        return frozenset(p for p, b in self.complete_blocks_by_port(execution).items() if b.folder == _SKIPPED_FOLDER)

    def uncommitted_blocks_by_port(self, execution: Execution, histories: Mapping[str, History]) -> dict[str, Block]:
        """Port -> its staged block, as if it were committed on top of the pins (R5)."""
        found = {}
        for port, staged in self.complete_blocks_by_port(execution).items():
            if staged.manifest is None or staged.folder == _SKIPPED_FOLDER:
                continue
            history = histories.get(staged.channel or "")
            head, merge = (history.head, history.merge) if history is not None else (0, Append())
            lo = head if staged.kind == "delta" else head + 1
            found[port] = Block(
                staged.id, staged.channel or port, staged.partition, staged.kind, lo, head + 1, staged.manifest, merge
            )
        return found

    def stage_missing_changelogs(self, execution: Execution, histories: Mapping[str, History]) -> None:
        """Stage the changes of each staged base beside it, if a lagging consumer could not derive them (R15).

        That happens if the snapshot at the consumer's cursor was collected before it was known that the channel may get
        a base.
        """
        done = self.complete_blocks_by_port(execution)
        for block in done.values():
            channel = block.channel
            if block.kind != "base" or channel is None or block.manifest is None or _changelog_port(channel) in done:
                continue
            head = histories[channel].head
            if head and self.catalog.has_consumers(channel) and self.has_consumer_without_snapshot(channel, head):
                history = self.catalog.history(channel, head, histories[channel].scope, back_to=head)
                self.stage_changelog(execution, self.catalog.channel(channel).channel, history, block.manifest)

    def has_consumer_without_snapshot(self, channel: str, head: int) -> bool:
        """Whether the snapshot at a lagging consumer's cursor was collected."""
        lagging = self.catalog.lagging_cursors(channel, head)
        if not lagging:
            return False
        history = self.catalog.history(channel, head, back_to=min(seq for seq, _ in lagging))
        for seq, scope in lagging:
            try:
                modes.snapshot(history_in_scope(history, scope), seq)
            except BlockCollected:
                return True
        return False

    def stage_changelog(self, execution: Execution, channel: Channel, history: History, base: Manifest) -> StagedBlock:
        """Stage the changes that a base makes, as a delta to be committed beside it (R15)."""
        new = Block("", channel.name, history.scope, "base", history.head + 1, history.head + 1, base, history.merge)
        after = Snapshot(channel.name, history.head + 1, (new,), (), base.schema, history.merge)
        frame = self.engine.fetch(SnapshotDiff(modes.snapshot(history), after))
        unchanged = replace(history, last_merge=None)  # a changed model takes effect with this base
        self.write(execution, _changelog_port(channel.name), "delta", channel, unchanged, frame)
        return self.complete_blocks_by_port(execution)[_changelog_port(channel.name)]

    def build_commit_request(
        self,
        execution: Execution,
        plan: RunPlan,
        histories: Mapping[str, History],
        task_reports: Sequence[TaskReport] = (),
    ) -> CommitRequest:
        """Commit request for everything that the execution staged, with its requirements (R2, R6).

        Args:
            task_reports: reports of the tasks that ran in this process, stored beside the commit.
        """
        published = tuple(
            part
            for b in self.complete_blocks_by_port(execution).values()
            if b.channel is not None and b.folder != _SKIPPED_FOLDER
            for part in blocks_to_publish(b, histories[b.channel])
        )
        return CommitRequest(
            id=uuid.uuid4().hex,
            execution_id=execution.id,
            epoch=execution.epoch,
            binding=execution.binding,
            added_blocks=published,
            cursors=plan.cursors,
            required_heads=plan.heads,
            consumed={c: (p.cursor, p.head) for c, p in execution.pins.items() if c in plan.consumed},
            details={"tasks": [r.as_json() for r in task_reports]} if task_reports else {},
            required_sum_headrooms=self.load_sum_headrooms(published, histories),
            **commit_requirements(published, histories),
        )

    def load_sum_headrooms(
        self, published: Iterable[AddBlock], histories: Mapping[str, History]
    ) -> tuple[RequireSumHeadroom, ...]:
        """Limits that publishing these blocks sets for concurrent deltas, so that no sum overflows in total."""
        found: list[RequireSumHeadroom] = []
        for part in published:
            types = overflowable_sums(part.merge, part.manifest.schema) if part.kind == "delta" else {}
            if types and part.manifest.rows:
                head = histories[part.channel].head
                near = self.catalog.history(part.channel, head, part.partition, back_to=head)
                found += sum_headrooms(near, part.manifest, types)
        return tuple(found)

    def _adopt_warehouse_once(self) -> None:
        """Check once per process that the warehouse belongs to the catalog, and write the catalog's marker file.

        The marker tells other catalogs that unlisted files in this warehouse may belong to this catalog.
        """
        if not self._warehouse_adopted:
            adopt_warehouse(self.catalog, self.engine)
            self._warehouse_adopted = True

    # checks

    def _resolve_block_schema(
        self, channel: Channel | None, history: History | None, kind: Kind, frame_schema: Schema
    ) -> Schema:
        """Schema in which the block is written."""
        if channel is None or history is None:
            return _null_columns_as_text(frame_schema)
        _check_partition_columns(channel, frame_schema)
        if kind == "delta" or history.scope:
            check_model_unchanged(history)
        if kind == "delta" and isinstance(channel.merge, Custom):
            return _null_columns_as_text(frame_schema)
        frame_schema = frame_schema.without_columns(DELETED)
        schema = reconcile_schema(channel.name, history.schema, frame_schema, channel.on_schema_change, history.head)
        if history.schema is None:
            _check_first_schema(channel, schema)
        return schema

    def _check_sums(self, channel: Channel, history: History, staged: StagedBlock) -> None:
        """Refuse a delta that would make a sum overflow its column's type, which no reader could read any more.

        Rows are read only if the bounds of the files do not decide.
        """
        assert staged.manifest is not None
        types = overflowable_sums(history.merge, staged.manifest.schema)
        if not types or not staged.manifest.rows:
            return
        head = history.head
        since_base = self.catalog.history(channel.name, head, history.scope, back_to=head)
        if are_sums_small(
            sum_headrooms(since_base, staged.manifest, types), types
        ) and not self.catalog.has_dropped_partitions(channel.name):
            return
        full_history = self.catalog.history(channel.name, head, history.scope)
        tight = {r.partition for r in sum_headrooms(full_history, staged.manifest, types) if r.headroom is None}
        parts, tracks = staged.manifest.split_by_partition(), {t.partition: t for t in full_history.partition_histories}
        for partition in sorted(tight):
            block = Block(staged.id, channel.name, partition, "delta", head, head + 1, parts[partition], history.merge)
            track = tracks.get(partition, PartitionHistory(partition, (), ()))
            for older in summed_blocks(full_history, track):
                self.engine.check_sums(f"channel {channel.name!r}", block, older, types)

    def _check_base_keeps_rows(self, channel: Channel, history: History, manifest: Manifest) -> Manifest:
        """Check that a base of an Append channel drops no rows, since the channel cannot represent removals to its
        consumers.

        The comparison is skipped while the channel has no consumers. The commit then requires that there are still
        none.
        """
        if not isinstance(channel.merge, Append) or history.head == 0 or not self.catalog.has_consumers(channel.name):
            return manifest
        dropped = self.engine.count_dropped_rows(modes.snapshot(history), manifest)
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
        return replace(manifest, drops_no_rows=True)


def _changelog_port(channel: str) -> str:
    """Port under which the changes of a base are staged. Parentheses cannot occur in a port's name."""
    return f"(changes of {channel})"


def _null_columns_as_text(schema: Schema) -> Schema:
    """Schema with all-null columns as text, for rows whose schema nothing later depends on."""
    return Schema(tuple(replace(f, type=DataType("string")) if f.type == UNKNOWN_TYPE else f for f in schema.fields))


def _check_first_schema(channel: Channel, schema: Schema) -> None:
    """Check that the schema of the first block is one that the channel could have been declared with."""
    problems = channel.merge.problems(schema)
    problems += [f"partition column {c!r} has no type yet" for c in channel.partition_columns if c not in schema]
    if problems:
        raise SchemaMismatch(
            f"the first data of channel {channel.name!r} does not fit its merge model: {'; '.join(problems)}",
            found=str(schema),
            expected="columns and types that the merge model can compare and combine",
            next="cast or rename the columns, or declare the channel with schema=",
            channel=channel.name,
            problems=problems,
        )


def _check_partition_columns(channel: Channel, schema: Schema) -> None:
    lacking = [c for c in channel.partition_columns if c not in schema]
    if lacking:
        raise PartitionError(
            f"channel {channel.name!r} was given data that does not say in which partition it belongs",
            found=f"columns {', '.join(schema.names)}",
            expected=f"also {', '.join(lacking)}",
            next="add the column, or name the partition: partition=..., --partition",
            channel=channel.name,
        )


def blocks_to_publish(staged: StagedBlock, history: History, origin: Origin = "task") -> list[AddBlock]:
    """Blocks that a staged block publishes: one for each partition (R13).

    A base replaces everything in its scope, so each partition that it does not contain gets a base without rows.
    """
    assert staged.manifest is not None
    parts = staged.manifest.split_by_partition()
    if staged.kind == "base":
        nonempty_partitions = [
            t.partition for t in history.partition_histories if t.blocks[-1].kind == "delta" or t.blocks[-1].rows
        ]
        for partition in nonempty_partitions:
            parts.setdefault(partition, replace(staged.manifest, files=(), deletes=0))
    parts = parts or {history.scope: staged.manifest}
    return [
        AddBlock(staged.id if n == 0 else f"{staged.id}-{n}", history.channel, staged.kind, m, history.merge, p, origin)
        for n, (p, m) in enumerate(parts.items())
    ]


def commit_requirements(published: Iterable[AddBlock], histories: Mapping[str, History]) -> dict[str, Any]:
    """Requirements for publishing these blocks beyond cursors and heads: unchanged schemas, and no consumer of dropped
    rows.
    """
    schemas, unread = [], []
    for block in {p.channel: p for p in published}.values():
        history = histories[block.channel]
        if not isinstance(history.merge, Custom) or block.kind == "base" or history.schema is None:
            schemas.append(SetSchema(block.channel, history.schema, block.manifest.schema))
        replaces_rows = block.kind == "base" and isinstance(history.merge, Append) and history.head > 0
        if replaces_rows and not block.manifest.drops_no_rows:
            unread.append(RequireNoConsumers(block.channel))
    return {"schema_changes": tuple(schemas), "required_without_consumers": tuple(unread)}
