"""Preconditions of a commit: everything on which the execution relied is unchanged (R6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, RowMapping, select

from nova_assets.catalog.commit_rows import find_already_added_blocks, sequence_range
from nova_assets.catalog.cursors import cursor_conditions, has_active_consumers, partition_of_conflicting_cursor
from nova_assets.catalog.tables import blocks, cursors, files
from nova_assets.errors import CommitConflict
from nova_assets.model.block import DataFile
from nova_assets.model.commit import AddBlock, CommitRequest, MoveCursor, RequireHead
from nova_assets.model.partitions import is_in_scope
from nova_assets.model.schema import Schema
from nova_assets.model.sum_bounds import RequireSumHeadroom, largest_recorded_magnitude


def check_preconditions(
    c: Connection, request: CommitRequest, execution: RowMapping | None, channel_rows: Mapping[str, RowMapping]
) -> None:
    """Check all preconditions of a commit, inside a transaction that holds the rows of its execution and channels.

    Args:
        execution: row of the execution; None if there is none.
        channel_rows: row of each channel of the request.

    Raises:
        CommitConflict: a precondition failed.
    """
    # A lapsed lease does not refuse the commit. Others may take over then, and change this row first. Until then the
    # staged files are there, and an hour of Spark is not lost because a machine slept.
    if execution is None or execution["state"] != "running" or execution["epoch"] != request.epoch:
        actual = "gone" if execution is None else f"{execution['state']}, epoch {execution['epoch']}"
        raise commit_conflict("the execution is no longer live", "execution", actual, f"running, epoch {request.epoch}")
    for head in request.required_heads:
        _check_head_unmoved(c, head, channel_rows[head.channel]["head"])
    for cursor in request.cursors:
        _check_cursor_unmoved(c, cursor)
    if request.binding is not None and request.cursors:
        _check_same_cursor_kind(c, request.binding, execution["partition"])
    for schema in request.schema_changes:
        _check_schema_unchanged(schema.channel, schema.expected, channel_rows[schema.channel]["schema"])
        if schema.is_next:
            _check_schema_unchanged(schema.channel, schema.to, channel_rows[schema.channel]["next_schema"])
    _check_blocks_not_added(c, [p for p in request.added_blocks if p.span is not None and not p.replaces_base])
    for no_consumer in request.required_without_consumers:
        _check_no_consumer(c, no_consumer.channel, request.execution_id)
    # Deltas of several writers do not exclude each other (R6), so others may have added to the same sums.
    for sum_headroom in request.required_sum_headrooms:
        if channel_rows[sum_headroom.channel]["head"] != sum_headroom.seq:
            _check_sum_headroom(c, sum_headroom)


def _check_head_unmoved(c: Connection, expected: RequireHead, current_head: int) -> None:
    """Check that no commit has changed the channel, or the expected scope of it, since the execution began."""
    head, scope_text = current_head, ""
    if expected.scope and head != expected.seq:
        later_blocks = select(blocks.c.partition, blocks.c.hi).where(
            blocks.c.channel == expected.channel, blocks.c.hi > expected.seq, blocks.c.origin != "compact"
        )
        changed_numbers = [
            hi for partition, hi in c.execute(later_blocks).all() if is_in_scope(partition, expected.scope)
        ]
        head, scope_text = max(changed_numbers, default=expected.seq), f" in {expected.scope}"
    if head != expected.seq:
        message = f"channel {expected.channel!r} has moved{scope_text} since the execution began"
        raise commit_conflict(message, "head", head, expected.seq, expected.channel)


def _check_cursor_unmoved(c: Connection, cursor: MoveCursor) -> None:
    position = c.execute(select(cursors.c.seq).where(*cursor_conditions(cursor))).scalar() or 0
    if position != cursor.expected:
        message = f"the cursor of {cursor.binding!r} on channel {cursor.channel!r} has moved"
        raise commit_conflict(message, "cursor", position, cursor.expected, cursor.channel)


def _check_same_cursor_kind(c: Connection, binding: str, partition: str) -> None:
    """Check that the binding was not executed meanwhile for partitions instead of unpartitioned, or the reverse."""
    other_partition = partition_of_conflicting_cursor(c, binding, partition)
    if other_partition is not None:
        message = f"binding {binding!r} has run meanwhile {f'for {other_partition}' if other_partition else 'whole'}"
        raise commit_conflict(message, "cursor", other_partition or "(whole)", partition or "(whole)")


def _check_schema_unchanged(channel: str, expected: Schema | None, current_schema: Any) -> None:
    if current_schema != (None if expected is None else expected.as_json()):
        current_schema_text = None if current_schema is None else str(Schema.from_json(current_schema))
        message = f"the schema of channel {channel!r} has changed"
        raise commit_conflict(message, "schema", current_schema_text, str(expected), channel)


def _check_blocks_not_added(c: Connection, maintained_blocks: list[AddBlock]) -> None:
    """Check that no other process has added the blocks of a compaction meanwhile."""
    for existing in find_already_added_blocks(c, maintained_blocks):
        message = f"channel {existing.channel!r} was compacted at {sequence_range(existing)[1]} meanwhile"
        raise commit_conflict(message, "compacted", "a base", "none", existing.channel)


def _check_no_consumer(c: Connection, channel: str, execution_id: str) -> None:
    if has_active_consumers(c, channel, execution_id):
        message = f"channel {channel!r} has a consumer now: the base must be compared with what it replaces"
        raise commit_conflict(message, "consumers", "a consumer", "none", channel)


def _check_sum_headroom(c: Connection, sum_headroom: RequireSumHeadroom) -> None:
    """Check that the additions of other commits leave a summed column within its type, whatever this commit adds.

    Raises:
        CommitConflict: the sum may overflow, or the added amount is unknown.
    """
    later_files = select(files.c.rows, files.c.ranges).join(blocks, blocks.c.id == files.c.block_id)
    later_files = later_files.where(
        blocks.c.channel == sum_headroom.channel, blocks.c.partition == sum_headroom.partition
    )
    later_files = later_files.where(blocks.c.hi > sum_headroom.seq, blocks.c.origin != "compact")
    added_files = [
        DataFile("", n, 0, {k: (v[0], v[1]) for k, v in ranges.items()}) for n, ranges in c.execute(later_files)
    ]
    bounds = [largest_recorded_magnitude([file], sum_headroom.column) for file in added_files]
    finite_bounds = [b for b in bounds if b is not None]
    if len(finite_bounds) < len(bounds) or (
        bounds and (sum_headroom.headroom is None or sum(finite_bounds) > sum_headroom.headroom)
    ):
        message = (
            f"others have added to column {sum_headroom.column!r} of channel {sum_headroom.channel!r} "
            "since the execution began"
        )
        raise commit_conflict(message, "sums", "later deltas", f"a sum as at {sum_headroom.seq}", sum_headroom.channel)


def commit_conflict(
    message: str, reason: str, found: object, expected: object, channel: str | None = None
) -> CommitConflict:
    return CommitConflict(
        message, found=found, expected=expected, next="it is planned again", reason=reason, channel=channel
    )
