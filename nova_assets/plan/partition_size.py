"""How much a partition has, and into how many buckets that is laid out. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from nova_assets.model.block import Block, DataFile

BUCKET_BYTES = 32 * 2**20
"""Of a bucket on disk: so small that several cores have some, and each fits into memory several times."""

LARGEST_BYTES = 256 * 2**20
"""Of a bucket of a table so large that its buckets would be too many otherwise."""

BUCKET_ROWS = 2**20
"""Of a bucket, about: narrow rows that pack well are many in few bytes, and what a change touches is merged by the
row."""

MANY_BUCKETS = 1024


@dataclass(frozen=True, slots=True)
class Size:
    """What is stored, or a part of it.

    Args:
        bytes: on disk.
    """

    bytes: int = 0
    rows: int = 0

    def __add__(self, other: Size) -> Size:
        return Size(self.bytes + other.bytes, self.rows + other.rows)


NOTHING = Size()


def size_of(stored: Iterable[Block | DataFile]) -> Size:
    """Of several together."""
    return sum((Size(s.bytes, s.rows) for s in stored), NOTHING)


def bucket_bytes(whole: Size) -> int:
    """What a bucket of a partition of this size should hold, in bytes on disk."""
    least = whole.bytes // MANY_BUCKETS
    by_rows = whole.bytes * BUCKET_ROWS // max(1, whole.rows)
    return max(1, min(max(BUCKET_BYTES, min(LARGEST_BYTES, least)), max(by_rows, least)))


def pieces_for(whole: Size) -> int:
    """Into how many pieces a partition of this size is laid out."""
    return max(1, -(-whole.bytes // bucket_bytes(whole)))


def buckets_for(whole: Size) -> int:
    """Into how many buckets a partition of this size is laid out: a power of two."""
    return 1 << (pieces_for(whole) - 1).bit_length()
