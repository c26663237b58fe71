"""How much a partition has, and into how many buckets that is laid out. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from nova_assets.model.block import Block, DataFile

BUCKET_BYTES = 32 * 2**20
"""Of a bucket on disk: so small that several cores have some, and each fits into memory several times."""

MAX_BUCKET_BYTES = 256 * 2**20
"""Of a bucket of a table so large that its buckets would be too many otherwise."""

BUCKET_ROWS = 2**20
"""Of a bucket, about: narrow rows that pack well are many in few bytes, and what a change touches is merged by the
row."""

MAX_BUCKETS = 1024


@dataclass(frozen=True, slots=True)
class DataSize:
    """What is stored, or a part of it.

    Args:
        bytes: on disk.
    """

    bytes: int = 0
    rows: int = 0

    def __add__(self, other: DataSize) -> DataSize:
        return DataSize(self.bytes + other.bytes, self.rows + other.rows)


EMPTY_SIZE = DataSize()


def sum_sizes(blocks_or_files: Iterable[Block | DataFile]) -> DataSize:
    """Of several together."""
    return sum((DataSize(s.bytes, s.rows) for s in blocks_or_files), EMPTY_SIZE)


def target_bucket_bytes(partition_size: DataSize) -> int:
    """What a bucket of a partition of this size should hold, in bytes on disk."""
    min_bytes = partition_size.bytes // MAX_BUCKETS
    by_rows = partition_size.bytes * BUCKET_ROWS // max(1, partition_size.rows)
    return max(1, min(max(BUCKET_BYTES, min(MAX_BUCKET_BYTES, min_bytes)), max(by_rows, min_bytes)))


def piece_count_for(partition_size: DataSize) -> int:
    """Into how many pieces a partition of this size is laid out."""
    return max(1, -(-partition_size.bytes // target_bucket_bytes(partition_size)))


def bucket_count_for(partition_size: DataSize) -> int:
    """Into how many buckets a partition of this size is laid out: a power of two."""
    return 1 << (piece_count_for(partition_size) - 1).bit_length()
