"""Inserts of external data as one block of one channel, by the same begin, stage and commit as an execution."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from nova_assets.errors import DefinitionError, NotSupported
from nova_assets.execution.changelog import stage_changelog
from nova_assets.execution.commit_request import BlockRequirements, load_block_requirements, split_staged_block
from nova_assets.execution.conflict_retry import plan_again_after_conflict
from nova_assets.execution.insert_checks import InsertChecks
from nova_assets.execution.lagging_consumers import has_consumer_without_snapshot
from nova_assets.execution.runtime import Runtime
from nova_assets.masking import get_logger
from nova_assets.model.block import Kind, Origin
from nova_assets.model.block_options import NO_OPTIONS, BlockOptions
from nova_assets.model.channel import Channel
from nova_assets.model.channel_state import ChannelState
from nova_assets.model.commit import Commit, CommitRequest, RequireHead, RequireNoConsumers, insert_digest
from nova_assets.model.engine import Frame
from nova_assets.model.execution import Execution
from nova_assets.model.partitions import WHOLE
from nova_assets.model.provenance import READ_VERSIONS
from nova_assets.model.reads import SnapshotDiff
from nova_assets.model.schema import DELETED, Schema
from nova_assets.model.schema_evolution import reconcile_schema
from nova_assets.model.timeline import History
from nova_assets.operations.lost_numbers import check_number_not_lost
from nova_assets.plan import modes
from nova_assets.plan.partial_reads import keeps_merge_columns
from nova_assets.plan.required_base import check_merge_model_accepts

log = get_logger("nova_assets.insert")


@dataclass(frozen=True, slots=True)
class InsertCheck:
    """Result of an insert's dry run: the validated insert, the schema of its block, and the number it would get."""

    channel: str
    kind: Kind
    head: int
    schema: Schema
    next_number: int


class DataInserter:
    """Inserts data into channels."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.catalog = runtime.catalog
        self.engine = runtime.engine

    def insert(
        self,
        channel: str,
        data: Any,
        kind: Kind = "delta",
        idempotency_key: str | None = None,
        partition: str | Mapping[str, object] | None = None,
        options: BlockOptions = NO_OPTIONS,
        keep_files: bool = False,
    ) -> Commit:
        """Insert one block, atomically.

        A base is planned again if another commit comes first. Of concurrent bases, the last base replaces all others.

        Raises:
            ChannelNotFound, SchemaMismatch, BadKey, BadRecord, EmptyInput, UnrepresentableChange, ModelChanged.
            IdempotencyConflict: the key was used for different rows.
            CheckFailed: the rows violate a check that the project gives to the channel.
        """
        _check_kind(kind)
        state = self.catalog.channel(channel)
        options.check(state.channel, kind)
        repeated_commit = (
            None if idempotency_key is None else self.catalog.commit_by_idempotency_key(channel, idempotency_key)
        )
        if repeated_commit is not None and repeated_commit.digest is None:
            return repeated_commit.as_repeated(channel, None)
        history = self._load_head_history(state, partition)
        with self.engine.computation_scope():
            frame, options = self._to_frame_and_options(state.channel, data, history.schema, options, keep_files)
            if repeated_commit is not None:
                # The rows are read again, half a second per million: unread, other rows under a used key would be lost.
                return repeated_commit.as_repeated(
                    channel, self._compute_frame_digest(state.channel, history, frame, kind)
                )
            return self._insert_with_retries(channel, history.scope, frame, kind, idempotency_key, options)

    def restore(self, channel: str, at: int) -> Commit:
        """Commit the content of an earlier version as a new base (R19).

        Raises:
            VersionNotFound: the channel has no such sequence number.
            BlockCollected: the blocks of the version were collected.
            UnrepresentableChange: an Append channel with consumers would lose rows (R10).
            NotSupported: the version was merged by columns that the channel no longer has under their names.
        """
        state = self.catalog.channel(channel)
        state.channel.refuse_external()
        check_number_not_lost(self.catalog, channel, at)
        current_history = self.catalog.history(channel, None, WHOLE, state.head)
        restored_snapshot = modes.snapshot(self.catalog.history(channel, at, back_to=at), at)
        in_current_columns = replace(restored_snapshot, schema=current_history.schema)
        if not keeps_merge_columns(SnapshotDiff(restored_snapshot, in_current_columns)):
            raise NotSupported(
                f"version {at} of channel {channel!r} was merged by columns that were dropped or renamed later",
                found=f"columns {restored_snapshot.schema}, now {current_history.schema}",
                next=f"insert the rows of store.read({channel!r}, at={at}) in the present columns, with kind='base'",
            )
        with self.engine.computation_scope():
            frame = self.engine.reader.fetch(in_current_columns)
            return self._insert_with_retries(channel, WHOLE, frame, "base", None, restored=at)

    def _insert_with_retries(
        self,
        channel: str,
        scope: str,
        frame: Frame,
        kind: Kind,
        idempotency_key: str | None,
        options: BlockOptions = NO_OPTIONS,
        restored: int | None = None,
    ) -> Commit:
        """Insert a frame as one block.

        Args:
            restored: version of the channel that the frame restores.
        """
        return plan_again_after_conflict(
            lambda: self._insert_once(channel, scope, frame, kind, idempotency_key, options, restored),
            f"the {'insert' if restored is None else 'restore'} of {channel}",
            self.runtime.max_attempts,
            log,
        )

    def check_insert(
        self,
        channel: str,
        data: Any,
        kind: Kind = "delta",
        partition: str | Mapping[str, object] | None = None,
        options: BlockOptions = NO_OPTIONS,
        keep_files: bool = False,
    ) -> InsertCheck:
        """Validate an insert as far as possible before writing. Changes nothing."""
        _check_kind(kind)
        state = self.catalog.channel(channel)
        history = self._load_head_history(state, partition)
        definition = state.channel
        options.check(definition, kind)
        frame, options = self._to_frame_and_options(definition, data, history.schema, options, keep_files)
        if definition.partitions:
            frame = self.engine.inputs.add_partition_columns(frame, definition, history.scope, history.schema)
        frame_schema = self.engine.frames.schema_of(frame)
        schema = reconcile_schema(
            channel, history.schema, frame_schema.without_columns(DELETED), definition.on_schema_change, history.head
        )
        check_merge_model_accepts(history, kind)
        return InsertCheck(channel, kind, history.head, schema, state.next_number)

    def _compute_frame_digest(self, definition: Channel, history: History, frame: Frame, kind: Kind) -> str:
        """Digest that the insert of a frame would have, without writing the frame."""
        if definition.partitions:
            frame = self.engine.inputs.add_partition_columns(frame, definition, history.scope, history.schema)
        return insert_digest(kind, history.scope, self.engine.writer.frame_digest(frame, history.schema))

    def _to_frame_and_options(
        self, definition: Channel, data: Any, schema: Schema | None, options: BlockOptions, keep_files: bool
    ) -> tuple[Frame, BlockOptions]:
        """Rows to insert, with the options of their block."""
        allow_widening = definition.on_schema_change == "evolve"
        if not keep_files:
            return self.engine.inputs.convert(data, schema, allow_widening=allow_widening), options
        frame, kept = self.engine.inputs.convert_kept_files(data, schema, allow_widening=allow_widening)
        if options.format not in (None, kept.format):
            raise DefinitionError(
                "keep_files= keeps the format of the files",
                found=f"format={options.format!r}, and files of format {kept.format!r}",
                expected="files of that format, or no format=",
            )
        return frame, replace(kept, merge=options.merge)

    def _load_head_history(self, state: ChannelState, partition: str | Mapping[str, object] | None) -> History:
        """History of a channel at its head, without blocks."""
        state.channel.refuse_external()
        scope = state.parse_scope(partition)
        return self.catalog.history(state.channel.name, state.head, scope, state.head)

    def _insert_once(
        self,
        channel: str,
        scope: str,
        frame: Frame,
        kind: Kind,
        idempotency_key: str | None,
        options: BlockOptions,
        restored: int | None,
    ) -> Commit:
        origin: Origin = "insert" if restored is None else "restore"
        purpose = "commit" if restored is None else "restore"
        writer = self.runtime.channel_writer
        checks = InsertChecks(self.runtime, channel, kind, scope) if restored is None else None
        pinned = (channel, *(checks.channels if checks is not None else ()))
        with writer.write(*pinned, scope=scope, purpose=purpose) as execution:
            request = self._stage_block(execution, channel, frame, kind, idempotency_key, origin, options)
            if checks is not None:
                request = checks.run(execution).added_to(request)
            else:
                request = replace(request, details={READ_VERSIONS: {channel: restored}})
            commit = writer.commit(request)
        if commit.repeated or not commit.numbers:
            self.runtime.staging.delete_staged(execution)
        return commit

    def _stage_block(
        self,
        execution: Execution,
        channel: str,
        frame: Frame,
        kind: Kind,
        idempotency_key: str | None,
        origin: Origin,
        options: BlockOptions,
    ) -> CommitRequest:
        head, scope = execution.pins[channel].head, execution.pins[channel].partition
        history = self.catalog.history(channel, head, scope, head if kind == "delta" else None, back_to=head)
        state = self.catalog.channel(channel)
        definition = state.channel
        manifest = self.runtime.staging.write(
            execution,
            channel,
            kind,
            definition,
            history,
            frame,
            with_digest=idempotency_key is not None,
            options=options,
        )
        block = self.runtime.staging.complete_blocks_by_port(execution)[channel]
        added_blocks = split_staged_block(replace(block, manifest=block.manifest or manifest), history, origin)
        requirements = BlockRequirements()
        if kind == "base" and head > 0:
            # Before the first base, collection did not keep snapshots at cursors, so every consumer gets a changelog.
            needs_changelog = (
                has_consumer_without_snapshot(self.catalog, channel, head)
                if state.may_get_base
                else self.catalog.has_consumers(channel)
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
            idempotency=None if idempotency_key is None else (channel, idempotency_key),
            rows_digest=None if manifest.digest is None else insert_digest(kind, history.scope, manifest.digest),
            schema_changes=requirements.schema_changes,
            required_without_consumers=requirements.without_consumers,
            required_sum_headrooms=requirements.sum_headrooms,
        )


def _check_kind(kind: str) -> None:
    if kind not in ("base", "delta"):
        raise DefinitionError(
            f"{kind!r} is not a kind of insert",
            expected='"delta" (adds rows to the channel) or "base" (replaces the rows of the channel)',
        )
