"""Staging of blocks before a commit (R3): recorded, written, described by a manifest, then published or deleted."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

from nova_assets.catalog.catalog import Catalog
from nova_assets.crash_points import crash_point
from nova_assets.errors import PartitionError, SchemaMismatch, UnrepresentableChange
from nova_assets.execution.lagging_consumers import prepare_consumers_for
from nova_assets.execution.warehouse_identity import WarehouseCheck, check_or_adopt_warehouse
from nova_assets.model.block import Block, Kind, Manifest, StagedBlock
from nova_assets.model.block_options import NO_OPTIONS, BlockOptions
from nova_assets.model.channel import Channel
from nova_assets.model.engine import Engine, Frame
from nova_assets.model.execution import Execution
from nova_assets.model.merge import Append, Custom
from nova_assets.model.partitions import WHOLE
from nova_assets.model.read_strategy import ActualCost
from nova_assets.model.reads import DeltaChain, Snapshot
from nova_assets.model.schema import DELETED, HIDDEN_PREFIX, UNKNOWN_TYPE, DataType, Schema
from nova_assets.model.schema_evolution import reconcile_schema
from nova_assets.model.sum_bounds import overflowable_sums
from nova_assets.model.timeline import History, PartitionHistory
from nova_assets.nova_error import NovaError
from nova_assets.plan import modes
from nova_assets.plan.read_strategy import estimate_strategies
from nova_assets.plan.required_base import check_merge_model_accepts
from nova_assets.plan.run_plan import Output
from nova_assets.plan.sum_bounds import block_chains_to_sum, is_headroom_ample, sum_headrooms

SKIPPED_FOLDER = "(skipped)"
_CHECKED_PORT = "(checks)"  # parentheses cannot occur in a port's name


class Staging:
    """Writes blocks for executions, and lists the blocks that an execution has staged."""

    def __init__(self, catalog: Catalog, engine: Engine) -> None:
        self.catalog = catalog
        self.engine = engine
        self.warehouse_check = WarehouseCheck(catalog, engine)
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
        may_hide: bool = False,
        options: BlockOptions = NO_OPTIONS,
    ) -> StagedBlock:
        """Stage one block. Returns it with its manifest.

        Args:
            channel, history: None for a private port.
            may_hide: whether the frame may have hidden columns.
            with_digest: include a digest of the rows in the manifest.
            options: merge model and file format of the block.

        Raises:
            SchemaMismatch, BadKey, ModelChanged, UnrepresentableChange, SumOverflow: nothing of the block is published.
        """
        scope = WHOLE if history is None else history.scope
        own_merge = None
        if channel is not None and history is not None:
            options.check(channel, kind)
            own_merge = options.own_merge(channel.merge)
            prepare_consumers_for(self.catalog, channel, own_merge, history.head)
        if channel is not None and channel.partitions:
            frame = self.engine.inputs.add_partition_columns(
                frame, channel, scope, None if history is None else history.schema
            )
        schema = resolve_block_schema(channel, history, kind, self.engine.frames.schema_of(frame), may_hide=may_hide)
        block = self._record_staged_block(execution, port, kind, channel, scope)
        manifest = self.engine.writer.write(frame, block, channel, schema, digest=with_digest, options=options)
        manifest = replace(manifest, merge=own_merge)
        crash_point("stage.written")
        if channel is not None and history is not None and kind == "base":
            manifest = check_base_keeps_rows(self.catalog, self.engine, channel, history, manifest)
        elif channel is not None and history is not None:
            check_no_sum_overflow(self.catalog, self.engine, channel, history, replace(block, manifest=manifest))
        self.catalog.staging.record_manifest(block.id, manifest)
        return replace(block, manifest=manifest)

    def write_compacted(
        self, execution: Execution, port: str, kind: Kind, channel: Channel, read: Snapshot | DeltaChain, schema: Schema
    ) -> tuple[StagedBlock, ActualCost]:
        """Stage a block of rows that the channel holds already, without validation. Returns it with its cost."""
        expected, started = estimate_strategies(read, "block"), time.monotonic()
        block = self._record_staged_block(execution, port, kind, channel, WHOLE)
        manifest, strategy = self.engine.rewriter.rewrite(read, block, channel, schema)
        crash_point("stage.written")
        self.catalog.staging.record_manifest(block.id, manifest)
        new = [f for f in manifest.files if f.path.startswith(f"{block.folder}/")]
        seconds = time.monotonic() - started
        estimate = next((e for e in expected if e.strategy == strategy), None)
        cost = ActualCost(strategy, estimate, seconds, sum(f.rows for f in new), sum(f.bytes for f in new))
        return replace(block, manifest=manifest), cost

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
        self.catalog.staging.record([block])
        crash_point("stage.recorded")
        return block

    def record_unchanged(self, execution: Execution, outputs: Iterable[Output]) -> None:
        """Record that outputs of a task change nothing, so that their readers see the pinned state."""
        blocks = [
            StagedBlock(uuid.uuid4().hex, execution.id, o.channel, o.port, "delta", SKIPPED_FOLDER, execution.epoch)
            for o in outputs
        ]
        self.catalog.staging.record(blocks)
        for block in blocks:
            self.catalog.staging.record_manifest(block.id, Manifest((), Schema(())))

    def record_checks_passed(self, execution: Execution) -> None:
        """Record that all blocking checks passed on the staged blocks, for the process that commits."""
        marker = StagedBlock(
            uuid.uuid4().hex, execution.id, None, _CHECKED_PORT, "delta", SKIPPED_FOLDER, execution.epoch
        )
        self.catalog.staging.record([marker])
        self.catalog.staging.record_manifest(marker.id, Manifest((), Schema(())))

    def has_passed_checks(self, execution: Execution) -> bool:
        return _CHECKED_PORT in self.complete_blocks_by_port(execution)

    def forget_staged_ports(self, execution: Execution, ports: Iterable[str]) -> dict[str, StagedBlock]:
        """Forget the staged blocks of ports whose task runs again. Their files are deleted with the execution.

        Returns:
            Port -> its staged block, for the other completely written blocks.
        """
        forgotten = {*ports, _CHECKED_PORT}
        staged = self.catalog.staging.of(execution.id)
        if any(b.port in forgotten for b in staged):
            self.catalog.staging.drop(execution.id, forgotten)
        return {b.port: b for b in staged if b.manifest is not None and b.port not in forgotten}

    def delete_staged(self, execution: Execution, *, is_rollback: bool = False) -> None:
        """Delete the staged files that no block uses. Files that cannot be deleted now are deleted by a later sweep.

        A block without a manifest is swept a second time: Spark may still write for a task that failed or was
        interrupted.

        Args:
            is_rollback: the execution was aborted, which the timelines of its channels tell.
        """
        with suppress(NovaError):
            staged = self.catalog.staging.of(execution.id)
            removed_files = {b.id: self.engine.warehouse.delete_staged_folder(b.folder) for b in staged}
            complete = {b.id for b in staged if b.manifest is not None}
            of_complete = {b: f for b, f in removed_files.items() if b in complete}
            self.catalog.staging.mark_swept(of_complete, is_final=True, is_rollback=is_rollback)
            of_incomplete = {b: f for b, f in removed_files.items() if b not in complete}
            self.catalog.staging.mark_swept(of_incomplete, is_rollback=is_rollback)

    def abort_and_delete_staged(self, execution: Execution, cause: BaseException | str) -> None:
        """Abort an execution that will not be resumed, and delete its staged files.

        If the execution was committed, the catalog refuses the abort, and the files stay.
        """
        reason = cause if isinstance(cause, str) else f"{type(cause).__name__}: {cause}"
        with suppress(NovaError):
            self.catalog.executions.abort(execution.id, reason[:4000])
            self.delete_staged(execution, is_rollback=True)

    def delete_dead_staging(self, lease_seconds: float, sweep_delay_seconds: float) -> int:
        """Delete staged files of executions that have been dead for longer than lease and delay. Returns the number of
        folders.

        Each folder is deleted a second time later, since Spark may continue to write for a killed process. An undecided
        copy of a catalog deletes nothing: in the original, the executions may be alive.
        """
        blocks = self.catalog.staging.sweepable(sweep_delay_seconds, lease_seconds + sweep_delay_seconds)
        if blocks and self.catalog.identity.copied_from() is not None:
            return 0
        if blocks:
            WarehouseCheck(self.catalog, self.engine).check()  # a new one remembers nothing
        removed_files: dict[str, list[str]] = {}
        for block in blocks:
            crash_point("sweep.before")
            removed_files[block.id] = self.engine.warehouse.delete_staged_folder(block.folder)
        if blocks:
            crash_point("sweep.after")
            self.catalog.staging.mark_swept(removed_files)
        return len(blocks)

    def complete_blocks_by_port(self, execution: Execution) -> dict[str, StagedBlock]:
        """Port -> its staged block, for completely written blocks."""
        return {b.port: b for b in self.catalog.staging.of(execution.id) if b.manifest is not None}

    def _adopt_warehouse_once(self) -> None:
        """Check once per process that the warehouse belongs to the catalog, and write the catalog's marker file.

        The marker tells other catalogs that unlisted files in this warehouse may belong to this catalog.
        """
        if not self._warehouse_adopted:
            check_or_adopt_warehouse(self.catalog, self.engine)
            self._warehouse_adopted = True


def ports_without_new_data(staged_by_port: Mapping[str, StagedBlock]) -> frozenset[str]:
    """Ports whose writing task was skipped, because it had no new data."""
    return frozenset(p for p, b in staged_by_port.items() if b.folder == SKIPPED_FOLDER)


def uncommitted_blocks_by_port(
    staged_by_port: Mapping[str, StagedBlock], histories: Mapping[str, History]
) -> dict[str, Block]:
    """Port -> its staged block, as if it were committed on top of the pins (R5)."""
    block_by_port = {}
    for port, staged in staged_by_port.items():
        if staged.manifest is None or staged.folder == SKIPPED_FOLDER:
            continue
        history = histories.get(staged.channel or "")
        head, merge = (history.head, history.merge) if history is not None else (0, Append())
        lo = head if staged.kind == "delta" else head + 1
        own = staged.manifest.merge
        block_by_port[port] = Block(
            staged.id,
            staged.channel or port,
            staged.partition,
            staged.kind,
            lo,
            head + 1,
            staged.manifest,
            merge if own is None else own,
            channel_merge=None if own is None else merge,
        )
    return block_by_port


def resolve_block_schema(
    channel: Channel | None, history: History | None, kind: Kind, frame_schema: Schema, *, may_hide: bool = False
) -> Schema:
    """Schema in which the block is written.

    Args:
        may_hide: whether columns with the prefix of hidden columns are hidden. Otherwise they are refused.
    """
    split_schema = frame_schema.with_hidden_prefix()
    frame_schema, hidden = split_schema.visible, split_schema.hidden
    if hidden and not may_hide:
        raise SchemaMismatch(
            f"column {hidden[0].name!r} has a reserved name",
            expected=f"a name that does not begin with {HIDDEN_PREFIX}",
            **({} if channel is None else {"channel": channel.name}),
        )
    if channel is None or history is None:
        return _null_columns_as_text(frame_schema)
    _check_partition_columns(channel, frame_schema)
    check_merge_model_accepts(history, kind)
    if kind == "delta" and isinstance(channel.merge, Custom):
        return _null_columns_as_text(frame_schema)
    frame_schema = frame_schema.without_columns(DELETED)
    declared = _declared_schema(history, kind, frame_schema)
    schema = reconcile_schema(channel.name, declared, frame_schema, channel.on_schema_change, history.head)
    if history.schema is None:
        _check_first_schema(channel, schema)
    return replace(schema, hidden=hidden)


def _declared_schema(history: History, kind: Kind, frame_schema: Schema) -> Schema | None:
    """Schema that the rows of a block have to fit. A base may bring changed columns, or the present ones, as a restored
    version does. Their names differ.
    """
    is_present = history.schema is not None and set(frame_schema.names) == set(history.schema.names)
    return history.next_schema if kind == "base" and history.next_schema and not is_present else history.schema


def check_no_sum_overflow(
    catalog: Catalog, engine: Engine, channel: Channel, history: History, staged: StagedBlock
) -> None:
    """Refuse a delta that would make a sum overflow its column's type, which no reader could read any more.

    Rows are read only if the bounds of the files do not decide.
    """
    assert staged.manifest is not None
    merge = staged.manifest.merge or history.merge
    types = overflowable_sums(merge, staged.manifest.schema)
    if not types or not staged.manifest.rows:
        return
    head = history.head
    since_base = catalog.histories.of(channel.name, head, history.scope, back_to=head)
    if is_headroom_ample(
        sum_headrooms(since_base, staged.manifest, types), types
    ) and not catalog.histories.has_dropped_partitions(channel.name):
        return
    full_history = catalog.histories.of(channel.name, head, history.scope)
    partitions_without_headroom = {
        r.partition for r in sum_headrooms(full_history, staged.manifest, types) if r.headroom is None
    }
    manifests, histories = (
        staged.manifest.split_by_partition(),
        {t.partition: t for t in full_history.partition_histories},
    )
    for partition in sorted(partitions_without_headroom):
        block = Block(staged.id, channel.name, partition, "delta", head, head + 1, manifests[partition], merge)
        partition_history = histories.get(partition, PartitionHistory(partition, (), ()))
        for older in block_chains_to_sum(full_history, partition_history):
            engine.reader.check_no_sum_overflow(f"channel {channel.name!r}", block, older, types)


def check_base_keeps_rows(
    catalog: Catalog, engine: Engine, channel: Channel, history: History, manifest: Manifest
) -> Manifest:
    """Check that a base of an Append channel drops no rows, since the channel cannot represent removals to its
    consumers.

    The comparison is skipped while the channel has no consumers. The commit then requires that there are still
    none.
    """
    if not isinstance(channel.merge, Append) or history.head == 0 or not catalog.cursors.has_consumers(channel.name):
        return manifest
    dropped = engine.reader.count_dropped_rows(modes.snapshot(history), manifest)
    if dropped:
        raise UnrepresentableChange(
            f"the base for channel {channel.name!r} drops {dropped} rows, which an Append channel cannot report "
            "to its consumers (R10)",
            found=f"{dropped} rows of version {history.head} are not in the new base",
            expected="a base that keeps every row",
            next="declare the channel with merge=nova.Upsert(key=...), or insert a base that keeps these rows",
            channel=channel.name,
            dropped=dropped,
        )
    return replace(manifest, drops_no_rows=True)


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
    missing_columns = [c for c in channel.partition_columns if c not in schema]
    if missing_columns:
        raise PartitionError(
            f"the data for channel {channel.name!r} does not determine its partition",
            found=f"columns {', '.join(schema.names)}",
            expected=f"also {', '.join(missing_columns)}",
            next="add the column, or name the partition: partition=..., --partition",
            channel=channel.name,
        )
