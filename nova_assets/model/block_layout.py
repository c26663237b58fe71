"""How the rows of a keyed block lie in its files: in buckets, and sorted inside them.

Everything about one key is in one bucket, so buckets are merged and compared one by one, and those that a change does
not touch need not be written again. For everyone else the files are plain Parquet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

HASHED_TYPES = frozenset(
    {"boolean", "tinyint", "smallint", "int", "bigint", "date", "timestamp", "timestamp_ntz", "string", "binary"}
)
"""Types of keys by which blocks are laid out: engines call the same values of them equal, and order them alike."""

LayoutKey: TypeAlias = tuple[Any, ...]
"""The values of a key in the order of a layout, as JSON has them."""


@dataclass(frozen=True, slots=True)
class KeyLayout:
    """What a block that is laid out says of all its files.

    Args:
        order: the columns of the key, all of them, in the order by which rows are sorted inside a bucket.
        types: theirs: the same number hashes otherwise as an ``int`` and as a ``bigint``.
        clustered: buckets are ranges of keys, in this order; otherwise the first bits of a key's hash are its bucket.
    """

    order: tuple[str, ...]
    types: tuple[str, ...] = ()
    clustered: bool = False

    def as_json(self) -> dict[str, Any]:
        return {"order": list(self.order), "types": list(self.types), "clustered": self.clustered}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> KeyLayout:
        return KeyLayout(tuple(data["order"]), tuple(data["types"]), data["clustered"])


@dataclass(frozen=True, slots=True)
class HashBuckets:
    """Which buckets of the hash the rows of a file are in, one after the other.

    Buckets are numbered by the first bits of the hash, and their count is a power of two; so a bucket of few is several
    of many, side by side.

    Args:
        bucket_count: how many buckets there are.
        first_bucket: the first of those that the file has.
        rows_per_bucket: how many rows it has of each.
    """

    bucket_count: int
    first_bucket: int
    rows_per_bucket: tuple[int, ...]

    def as_json(self) -> dict[str, Any]:
        return {"of": self.bucket_count, "first": self.first_bucket, "rows": list(self.rows_per_bucket)}


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The least and the greatest key of a file."""

    least: LayoutKey
    greatest: LayoutKey

    def as_json(self) -> dict[str, Any]:
        return {"least": list(self.least), "greatest": list(self.greatest)}


KeyPlacement: TypeAlias = HashBuckets | KeyRange


def key_placement_from_json(data: Mapping[str, Any] | None) -> KeyPlacement | None:
    """The place that ``as_json`` described."""
    if data is None:
        return None
    if "of" in data:
        return HashBuckets(data["of"], data["first"], tuple(data["rows"]))
    return KeyRange(tuple(data["least"]), tuple(data["greatest"]))
