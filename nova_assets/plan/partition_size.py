"""Size of a partition, and the number of buckets for its key layout. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from nova_assets.model.block import Block, DataFile

BUCKET_BYTES = 32 * 2**20
"""Target bytes of a bucket on disk: small enough that each core has several, and that several fit into memory."""

MAX_BUCKET_BYTES = 256 * 2**20
"""Maximum target bytes of a bucket, for a table that would otherwise have too many buckets."""

BUCKET_ROWS = 2**20
"""Approximate maximum number of rows of a bucket.

Narrow rows that compress well are many in few bytes, and the cost of merging depends on the number of rows.
"""

MAX_BUCKETS = 1024


@dataclass(frozen=True, slots=True)
class DataSize:
    """Size of stored data.

    Args:
        bytes: on disk.
    """

    bytes: int = 0
    rows: int = 0

    def __add__(self, other: DataSize) -> DataSize:
        return DataSize(self.bytes + other.bytes, self.rows + other.rows)


EMPTY_SIZE = DataSize()


def sum_sizes(blocks_or_files: Iterable[Block | DataFile]) -> DataSize:
    """Total size of blocks or files."""
    return sum((DataSize(s.bytes, s.rows) for s in blocks_or_files), EMPTY_SIZE)


def target_bucket_bytes(partition_size: DataSize) -> int:
    """Target bytes on disk of a bucket, for a partition of this size."""
    min_bytes = partition_size.bytes // MAX_BUCKETS
    by_rows = partition_size.bytes * BUCKET_ROWS // max(1, partition_size.rows)
    return max(1, min(max(BUCKET_BYTES, min(MAX_BUCKET_BYTES, min_bytes)), max(by_rows, min_bytes)))


def key_range_count_for(partition_size: DataSize) -> int:
    """Number of key ranges for a partition of this size."""
    return max(1, -(-partition_size.bytes // target_bucket_bytes(partition_size)))


def bucket_count_for(partition_size: DataSize) -> int:
    """Number of hash buckets for a partition of this size: a power of two."""
    return 1 << (key_range_count_for(partition_size) - 1).bit_length()
