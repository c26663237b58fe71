"""What manifests tell about rows before a file is read: whether a change has whole rows, and how many rows a version
has. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from nova_assets.model.block import Block
from nova_assets.model.channel import Channel
from nova_assets.model.merge import Append, Custom, MergeModel, Multiset
from nova_assets.model.partitions import WHOLE
from nova_assets.model.reads import DeltaChain, Read, Snapshot, SnapshotDiff, source_blocks
from nova_assets.model.schema import DELETED
from nova_assets.plan.partial_reads import columns_of_read, stored_blocks


def has_rows_after(change: Read, channel: Channel, now: Read) -> bool:
    """Whether a change without its deletions is exactly the changed rows as they are now, so that they need no lookup.

    This needs a key, by which each changed row replaces the whole earlier row. If the read does not tell this for
    certain, the result is False.

    Args:
        change: the change of the channel.
        now: the channel after the change.
    """
    if not replaces_whole_rows(channel.merge):
        return False
    if not isinstance(change, DeltaChain | SnapshotDiff) or not isinstance(now, Snapshot) or now.schema is None:
        return False
    columns = columns_of_read(change)
    if columns is None or columns.without_columns(DELETED) != now.schema:
        return False
    blocks = [*stored_blocks(change), *stored_blocks(now)]
    are_whole = {b.partition == WHOLE for b in blocks}
    is_partitioned_by_key = set(channel.partition_columns) <= set(channel.merge.key)
    return (
        len(blocks) == len(source_blocks(change)) + len(source_blocks(now))
        and len(are_whole) <= 1
        and is_partitioned_by_key
        and all(b.merge.as_json() == channel.merge.as_json() for b in blocks)
    )


def replaces_whole_rows(merge: MergeModel) -> bool:
    """Whether a changed row of a channel replaces the whole earlier row with its key."""
    return bool(merge.key) and not merge.needs_earlier_row and not isinstance(merge, Custom)


@dataclass(frozen=True, slots=True)
class RowCount:
    """Number of rows of a snapshot.

    Args:
        at_most: the number, or an upper bound.
        is_exact: whether it is the number. A row of a delta on a keyed channel may replace an earlier row.
    """

    at_most: int
    is_exact: bool


def count_rows(snapshot: Snapshot) -> RowCount | None:
    """Number of rows of a snapshot of committed blocks; None if only the files tell it."""
    blocks = [b for b in (*snapshot.bases, *snapshot.deltas) if isinstance(b, Block)]
    assert len(blocks) == len(snapshot.bases) + len(snapshot.deltas), "a staged block is no version"
    deltas = [b for b in blocks if b.kind == "delta" and b.rows]
    rows = sum(b.rows - b.manifest.deletes for b in blocks)
    if not deltas or isinstance(snapshot.merge, Append):
        return RowCount(rows, True)
    if isinstance(snapshot.merge, Custom):
        return None
    if any(b.manifest.deletes for b in deltas):
        return RowCount(rows, False)
    is_first_delta = len(deltas) == len(blocks) == 1 and not deltas[0].merge.order_by
    return RowCount(rows, isinstance(snapshot.merge, Multiset) or is_first_delta)  # one delta has a key once (R11)
