"""Inserts of external data as one block of one channel, by the same begin, stage and commit as an execution."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from nova_assets.errors import DefinitionError, NotSupported
from nova_assets.execution.changelog import stage_changelog
from nova_assets.execution.commit_request import BlockRequirements, load_block_requirements, split_staged_block
from nova_assets.execution.insert_checks import InsertChecks
from nova_assets.execution.lagging_consumers import has_consumer_without_snapshot
from nova_assets.execution.retries import plan_again_after_conflict
from nova_assets.execution.runtime import Runtime
from nova_assets.masking import get_logger
from nova_assets.model.block import Kind, Origin
from nova_assets.model.block_options import NO_OPTIONS, BlockFormat, BlockOptions, options_from_arguments
from nova_assets.model.channel import Channel
from nova_assets.model.channel_state import ChannelState
from nova_assets.model.commit import Commit, CommitRequest, RequireHead, RequireNoConsumers, insert_digest
from nova_assets.model.engine import Frame
from nova_assets.model.execution import Execution
from nova_assets.model.merge import MergeModel
from nova_assets.model.partitions import WHOLE
from nova_assets.model.provenance import READ_VERSIONS
from nova_assets.model.reads import SnapshotDiff
from nova_assets.model.schema import DELETED, Schema
from nova_assets.model.schema_evolution import reconcile_schema
from nova_assets.plan import modes
from nova_assets.plan.partial_reads import keeps_merge_columns
from nova_assets.plan.required_base import check_merge_model_accepts
from nova_assets.store.channel_registry import ChannelRegistry
from nova_assets.store.lost_numbers import check_number_not_lost

log = get_logger("nova_assets.insert")


@dataclass(frozen=True, slots=True)
class InsertCheck:
    """Result of an insert's dry run: the validated insert, the schema of its block, and the number it would get."""

    channel: str
    kind: Kind
    head: int
    schema: Schema
    next_number: int


@dataclass(frozen=True, slots=True)
class Insert:
    """What ``insert`` is to do with its rows.

    Args:
        idempotency_key, partition, keep_files: as for ``DataInserter.insert``.
        options: merge model and file format of the block.
    """

    kind: Kind = "delta"
    idempotency_key: str | None = None
    partition: str | Mapping[str, object] | None = None
    options: BlockOptions = NO_OPTIONS
    keep_files: bool = False


class DataInserter:
    """Store methods that insert rows into channels, and restore earlier ones."""

    def __init__(self, runtime: Runtime, registry: ChannelRegistry) -> None:
        self.runtime = runtime
        self.registry = registry
        self.catalog = runtime.catalog
        self.engine = runtime.engine

    def insert(
        self,
        channel: Channel | str,
        data: Any,
        kind: Kind = "delta",
        idempotency_key: str | None = None,
        partition: str | Mapping[str, object] | None = None,
        *,
        merge: MergeModel | None = None,
        format: BlockFormat | None = None,
        keep_files: bool = False,
    ) -> Commit:
        """Insert one block into every partition of a channel that the data belongs to. The insert is atomic.

        Args:
            channel: name of the channel. A channel that the project defines is registered on its first use.
            data: an Arrow table, a pandas or Spark DataFrame, a list of dicts, or the paths of Parquet, ORC, Avro, CSV
                or JSON-lines files. CSV and JSON-lines files may be compressed (``.gz``, ``.zst``). On keyed channels,
                a row with ``_deleted`` true is a deletion.
            kind: ``delta`` adds the data to the channel. ``base`` replaces the rows of the channel. A base empties
                every partition that it does not contain, unless ``partition`` limits it to some partitions (R13).
            idempotency_key: a second insert of the same rows with the same key changes nothing and returns the first
                commit. The rows may come in another order, in other files, or as another kind of input.
            partition: the partition of all rows, such as ``"dt=2024-01-01"``. The data then need not contain the
                partition columns. By default, each row goes to the partition that its partition columns name.
            merge: merge model of this delta (Nova 3.1). By default, the channel's model. It needs the same key.
            format: file format of this block: ``parquet`` (default), ``orc``, ``avro``, ``csv`` or ``json``.
            keep_files: copy the files into the warehouse as they are, in place of writing their rows into new files.
                All files need the same format, and exactly the columns and types of the channel. On a partitioned
                channel, each file belongs to one partition.

        Returns:
            The commit. Its ``seq`` is the block's sequence number. An empty delta takes no number (R1).

        Raises:
            ChannelNotFound: no such channel.
            SchemaMismatch: the columns or types differ from the channel's.
            BadKey: a key is null, or one block holds several live rows of one key.
            BadRecord: a file is damaged, or its content does not fit its file name.
            EmptyInput: the input is empty.
            PartitionError: a row belongs to no partition, or to another partition than ``partition``.
            UnrepresentableChange: the base drops rows that consumers of an Append channel have read (R10).
            ModelChanged: the data is a delta, and no base was written since the merge model changed (R18).
            IdempotencyConflict: the key was used for different rows.
        """
        insert = Insert(kind, idempotency_key, partition, options_from_arguments(merge, format), keep_files)
        state = self._insertable_state(channel, insert)
        name, scope = state.channel.name, state.parse_scope(partition)
        repeated_commit = (
            None if idempotency_key is None else self.catalog.commits.by_idempotency_key(name, idempotency_key)
        )
        if repeated_commit is not None and repeated_commit.digest is None:
            return repeated_commit.as_repeated(name, None)
        with self.engine.computation_scope():
            frame, insert = self._to_frame(state, data, insert)
            if repeated_commit is not None:
                # The rows are read again, half a second per million: unread, other rows under a used key would be lost.
                return repeated_commit.as_repeated(name, self._compute_frame_digest(state, scope, frame, kind))
            return self._insert_with_retries(name, scope, frame, insert)

    def check_insert(
        self,
        channel: Channel | str,
        data: Any,
        kind: Kind = "delta",
        partition: str | Mapping[str, object] | None = None,
        *,
        merge: MergeModel | None = None,
        format: BlockFormat | None = None,
        keep_files: bool = False,
    ) -> InsertCheck:
        """Dry run of ``insert``: validate the data as far as possible before writing, without changing anything."""
        insert = Insert(kind, None, partition, options_from_arguments(merge, format), keep_files)
        state = self._insertable_state(channel, insert)
        definition = state.channel
        history = self.catalog.histories.of(definition.name, state.head, state.parse_scope(partition), state.head)
        frame, _ = self._to_frame(state, data, insert)
        if definition.partitions:
            frame = self.engine.inputs.add_partition_columns(frame, definition, history.scope, history.schema)
        schema = reconcile_schema(
            definition.name,
            history.schema,
            self.engine.frames.schema_of(frame).without_columns(DELETED),
            definition.on_schema_change,
            history.head,
        )
        check_merge_model_accepts(history, kind)
        return InsertCheck(definition.name, kind, history.head, schema, state.next_number)

    def restore(self, channel: Channel | str, at: int) -> Commit:
        """Restore the content that a channel had at a sequence number. History is not rewritten (R19).

        The restored content is committed as a new base. Consumers see the differences as changes, as with every base.

        Raises:
            ChannelNotFound: no such channel.
            VersionNotFound: the channel has no such sequence number.
            BlockCollected: the blocks of the version were collected (R15).
            UnrepresentableChange: an Append channel with consumers would lose rows (R10).
            NotSupported: the version was merged by columns that the channel no longer has under their names.
        """
        state = self.registry.registered_state(channel)
        name = state.channel.name
        state.channel.refuse_external()
        check_number_not_lost(self.catalog, name, at)
        current_history = self.catalog.histories.of(name, None, WHOLE, state.head)
        restored_snapshot = modes.snapshot(self.catalog.histories.of(name, at, back_to=at), at)
        in_current_columns = replace(restored_snapshot, schema=current_history.schema)
        if not keeps_merge_columns(SnapshotDiff(restored_snapshot, in_current_columns)):
            raise NotSupported(
                f"version {at} of channel {name!r} was merged by columns that were dropped or renamed later",
                found=f"columns {restored_snapshot.schema}, now {current_history.schema}",
                next=f"insert the rows of store.read({name!r}, at={at}) in the present columns, with kind='base'",
            )
        with self.engine.computation_scope():
            frame = self.engine.reader.fetch(in_current_columns)
            return self._insert_with_retries(name, WHOLE, frame, Insert("base"), restored=at)

    def _insertable_state(self, channel: Channel | str, insert: Insert) -> ChannelState:
        """State of a channel that takes rows from outside, in blocks with these options."""
        state = self.registry.registered_state(channel)
        insert.options.check(state.channel, insert.kind)
        state.channel.refuse_external()
        return state

    def _to_frame(self, state: ChannelState, data: Any, insert: Insert) -> tuple[Frame, Insert]:
        """Rows to insert. With ``keep_files``, the options of the block name the files, and have their format."""
        allow_widening = state.channel.on_schema_change == "evolve"
        if not insert.keep_files:
            return self.engine.inputs.convert(data, state.schema, allow_widening=allow_widening), insert
        frame, kept = self.engine.inputs.convert_kept_files(data, state.schema, allow_widening=allow_widening)
        if insert.options.format not in (None, kept.format):
            raise DefinitionError(
                "keep_files= keeps the format of the files",
                found=f"format={insert.options.format!r}, and files of format {kept.format!r}",
                expected="files of that format, or no format=",
            )
        return frame, replace(insert, options=replace(kept, merge=insert.options.merge))

    def _compute_frame_digest(self, state: ChannelState, scope: str, frame: Frame, kind: Kind) -> str:
        """Digest that the insert of a frame would have, without writing the frame."""
        if state.channel.partitions:
            frame = self.engine.inputs.add_partition_columns(frame, state.channel, scope, state.schema)
        return insert_digest(kind, scope, self.engine.writer.frame_digest(frame, state.schema))

    def _insert_with_retries(
        self, channel: str, scope: str, frame: Frame, insert: Insert, restored: int | None = None
    ) -> Commit:
        """Insert a frame as one block. It is planned again if another commit comes first, so of concurrent bases, the
        last one replaces all others.

        Args:
            restored: version of the channel that the frame restores.
        """
        return plan_again_after_conflict(
            lambda: self._insert_once(channel, scope, frame, insert, restored),
            f"the {'insert' if restored is None else 'restore'} of {channel}",
            self.runtime.max_attempts,
            log,
        )

    def _insert_once(self, channel: str, scope: str, frame: Frame, insert: Insert, restored: int | None) -> Commit:
        purpose = "commit" if restored is None else "restore"
        writer = self.runtime.channel_writer
        checks = InsertChecks(self.runtime, channel, insert.kind, scope) if restored is None else None
        pinned = (channel, *(checks.channels if checks is not None else ()))
        with writer.write(*pinned, scope=scope, purpose=purpose) as execution:
            request = self._stage_block(execution, channel, frame, insert, "insert" if restored is None else "restore")
            if checks is not None:
                request = checks.run(execution).added_to(request)
            else:
                request = replace(request, details={READ_VERSIONS: {channel: restored}})
            commit = writer.commit(request)
        if commit.repeated or not commit.numbers:
            self.runtime.staging.delete_staged(execution)
        return commit

    def _stage_block(
        self, execution: Execution, channel: str, frame: Frame, insert: Insert, origin: Origin
    ) -> CommitRequest:
        kind, head, scope = insert.kind, execution.pins[channel].head, execution.pins[channel].partition
        # Two reads: a history through file views waits for their lock, and would hold the shared transaction meanwhile.
        history = self.catalog.histories.of(channel, head, scope, head if kind == "delta" else None, back_to=head)
        state = self.catalog.definitions.channel(channel)
        definition = state.channel
        staged = self.runtime.staging.write(
            execution,
            channel,
            kind,
            definition,
            history,
            frame,
            with_digest=insert.idempotency_key is not None,
            options=insert.options,
        )
        manifest = staged.manifest
        assert manifest is not None
        added_blocks = split_staged_block(staged, history, origin)
        requirements = BlockRequirements()
        if kind == "base" and head > 0:
            # Before the first base, collection did not keep snapshots at cursors, so every consumer gets a changelog.
            needs_changelog = (
                has_consumer_without_snapshot(self.catalog, channel, head)
                if state.may_get_base
                else self.catalog.cursors.has_consumers(channel)
            )
            if needs_changelog:
                changelog = stage_changelog(self.runtime.staging, execution, definition, history, manifest)
                added_blocks = [*split_staged_block(changelog, history, origin), *added_blocks]
            elif not state.may_get_base:
                requirements = BlockRequirements(without_consumers=(RequireNoConsumers(channel),))
        requirements = load_block_requirements(self.catalog, added_blocks, {channel: history}) + requirements
        return CommitRequest(
            id=uuid.uuid4().hex,
            execution_id=execution.id,
            epoch=execution.epoch,
            binding=None,
            added_blocks=tuple(added_blocks),
            required_heads=(RequireHead(channel, head, scope),) if kind == "base" else (),
            idempotency=None if insert.idempotency_key is None else (channel, insert.idempotency_key),
            rows_digest=None if manifest.digest is None else insert_digest(kind, history.scope, manifest.digest),
            schema_changes=requirements.schema_changes,
            required_without_consumers=requirements.without_consumers,
            required_sum_headrooms=requirements.sum_headrooms,
        )
