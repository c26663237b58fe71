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

Key: TypeAlias = tuple[Any, ...]
"""The values of a key in the order of a layout, as JSON has them."""


@dataclass(frozen=True, slots=True)
class Layout:
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
    def from_json(data: Mapping[str, Any]) -> Layout:
        return Layout(tuple(data["order"]), tuple(data["types"]), data["clustered"])


@dataclass(frozen=True, slots=True)
class Hashed:
    """Which buckets of the hash the rows of a file are in, one after the other.

    Buckets are numbered by the first bits of the hash, and their count is a power of two; so a bucket of few is several
    of many, side by side.

    Args:
        of: how many buckets there are.
        first: the first of those that the file has.
        rows: how many rows it has of each.
    """

    of: int
    first: int
    rows: tuple[int, ...]

    def as_json(self) -> dict[str, Any]:
        return {"of": self.of, "first": self.first, "rows": list(self.rows)}


@dataclass(frozen=True, slots=True)
class Ranged:
    """The least and the greatest key of a file."""

    least: Key
    greatest: Key

    def as_json(self) -> dict[str, Any]:
        return {"least": list(self.least), "greatest": list(self.greatest)}


Place: TypeAlias = Hashed | Ranged


def place_from_json(data: Mapping[str, Any] | None) -> Place | None:
    """The place that ``as_json`` described."""
    if data is None:
        return None
    if "of" in data:
        return Hashed(data["of"], data["first"], tuple(data["rows"]))
    return Ranged(tuple(data["least"]), tuple(data["greatest"]))
