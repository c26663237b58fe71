"""Views that tasks get for inputs in the mode ``changes``: one channel before, between and after the changes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import Any

from nova_assets.model import reads
from nova_assets.model.block import Block
from nova_assets.model.channel import Channel
from nova_assets.model.engine import Engine, Frame
from nova_assets.model.merge import Custom, MergeModel
from nova_assets.model.modes_view import View
from nova_assets.model.reads import PrivatePortRead, Read, Snapshot
from nova_assets.model.schema import DELETED, Schema
from nova_assets.plan.batch_size import row_width_of_file
from nova_assets.plan.manifest_rows import has_rows_after
from nova_assets.plan.partial_reads import narrow_columns

MAX_LOCAL_ROWS, MAX_LOCAL_BYTES = 1_000_000, 64 * 2**20
"""Maximum rows and uncompressed bytes of a change in this process. Spark knows the size of such a change, sends it to
the other side of a join, and does not compute it again each time it is used. With 400,000 changed rows, a star join
takes a quarter of the CPU time.
"""

MAX_COMPUTED_ROWS = 2_500_000
"""Maximum rows of a frame that a task computes into this process: each row of a change may add one row to a result, and
remove one.
"""


def build_view(
    engine: Engine,
    read_by_mode: Mapping[str, Read],
    read_frame: Callable[[Read], Frame],
    channel: Channel | None,
    *,
    has_run: bool,
    is_changed: bool,
    has_dropped_partitions: Callable[[], bool],
    reason_without_change: str = "",
) -> View:
    """The view of an input.

    Args:
        read_by_mode: the reads ``all``, ``new`` and ``old``, with the blocks that this execution has staged.
        read_frame: returns the frame of a read.
        channel: None for a private port.
        has_run: whether the binding has read the channel before.
        is_changed: whether there may be a change.
        has_dropped_partitions: tells whether a partition of the channel was ever dropped.
        reason_without_change: why the change is not known; empty if it is known.
    """

    change = read_by_mode["new"]
    is_small = not isinstance(change, PrivatePortRead) and is_small_change(change)

    @cache
    def load_change() -> Frame:
        return engine.reader.fetch(change) if is_small else read_frame(change)

    def load_changed_rows(mode: str, columns: Collection[str] | None) -> Frame:
        """Rows of a mode that have a key of the change; without a key, rows that equal a row of the change."""
        assert channel is not None
        if mode == "after" and has_rows_after(change, channel, read_by_mode["all"]):
            return engine.frames.drop_deletions(load_change())
        read = read_by_mode[{"before": "old", "after": "all"}[mode]]
        if not isinstance(read, Snapshot):
            rows: Any = read_frame(read)
        elif columns is None or read.schema is None or not channel.merge.key:
            rows = read
        else:
            rows = narrow_columns(read, [name for name in read.schema.names if name.lower() in columns])
        return engine.reader.filter_by_keys(rows, load_change(), channel.merge.key, may_be_table=is_small)

    merge = None if channel is None else channel.merge
    has_changed_rows = merge is not None and merge.has_deletions
    return View(
        lambda: read_frame(read_by_mode["all"]),
        load_change,
        lambda: read_frame(read_by_mode["old"]),
        changed_rows=load_changed_rows if has_changed_rows else None,
        to_frame=lambda rows: engine.frames.to_frame(rows),
        has_run=has_run,
        is_changed=is_changed,
        has_small_change=is_small,
        has_dropped_partitions=has_dropped_partitions,
        has_new_definition=merge is not None and has_new_definition(read_by_mode, merge),
        schema=_schema_of(read_by_mode["all"], merge),
        reason_without_change=reason_without_change,
        list_partitions=lambda mode: list_partitions(read_by_mode[mode]),
    )


def is_small_change(change: Read) -> bool:
    """Whether the rows of a change are few enough for this process."""
    blocks = [b for b in reads.source_blocks(change) if isinstance(b, Block)]
    size = sum(row_width_of_file(f).row_bytes * f.rows for b in blocks for f in b.manifest.files)
    return sum(b.rows for b in blocks) <= MAX_LOCAL_ROWS and size <= MAX_LOCAL_BYTES


def count_rows(read: Read) -> int:
    """Rows of the blocks that a read opens."""
    return sum(b.rows for b in reads.source_blocks(read) if isinstance(b, Block))


def _schema_of(read: Read, merge: MergeModel | None) -> Schema | None:
    """Columns of a snapshot's frame; None if its function model or its source decides."""
    return read.schema if isinstance(read, Snapshot) and not isinstance(merge, Custom) else None


def list_partitions(read: Read) -> frozenset[str]:
    """Partitions of the blocks that a read opens."""
    return frozenset(b.partition for b in reads.source_blocks(read) if isinstance(b, Block))


def has_new_definition(read_by_mode: Mapping[str, Read], merge: MergeModel) -> bool:
    """Whether columns or merge model of a channel differ from those at the cursor, or of its newest block."""
    now, before = read_by_mode["all"], read_by_mode["old"]
    if not isinstance(now, Snapshot) or now.schema is None:
        return False
    blocks = [b for b in reads.source_blocks(now) if isinstance(b, Block)]
    if not blocks:
        return False
    newest = max(blocks, key=lambda b: b.hi)
    is_redeclared = newest.manifest.schema.without_columns(DELETED) != now.schema or newest.model_of_channel != merge
    is_other_before = isinstance(before, Snapshot) and (
        before.schema != now.schema or reads.merge_model_of(before) != merge
    )
    return is_redeclared or is_other_before
