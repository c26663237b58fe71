"""Number of rows of a version of a channel, as far as its manifests tell it. No file is read. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from nova_assets.model.block import Block
from nova_assets.model.merge import Append, Custom, Multiset
from nova_assets.model.reads import Snapshot


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
