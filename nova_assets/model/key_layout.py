"""Key layout of a block: rows are distributed over buckets by key, and sorted inside each bucket.

All rows of a key are in one bucket. Buckets are therefore merged and compared one by one, and buckets that a change
does not touch need not be rewritten. For other readers the files are plain Parquet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from nova_assets.model.json_form import JsonForm, json_key, register_form

HASHED_TYPES = frozenset(
    {"boolean", "tinyint", "smallint", "int", "bigint", "date", "timestamp", "timestamp_ntz", "string", "binary"}
)
"""Key types for which blocks get a key layout: all engines agree on equality and order of their values."""

LayoutKey: TypeAlias = tuple[Any, ...]
"""Values of a key in layout order, as JSON values."""


@dataclass(frozen=True, slots=True)
class KeyLayout(JsonForm):
    """Key layout shared by all files of a block.

    Args:
        order: all key columns, in the order by which rows are sorted inside a bucket.
        types: types of these columns. The same number has different hashes as an ``int`` and as a ``bigint``.
        clustered: buckets are key ranges in this order; otherwise the first bits of a key's hash select the bucket.
    """

    order: tuple[str, ...]
    types: tuple[str, ...] = ()
    clustered: bool = False


@dataclass(frozen=True, slots=True)
class HashBuckets(JsonForm):
    """Consecutive hash buckets whose rows a file contains.

    The first bits of the hash number the buckets, and their count is a power of two. A bucket of a coarse layout is
    therefore a run of adjacent buckets of a finer layout.

    Args:
        bucket_count: total number of buckets.
        first_bucket: first bucket in the file.
        rows_per_bucket: number of rows per bucket, from the first bucket on.
    """

    bucket_count: int = field(metadata=json_key("of"))
    first_bucket: int = field(metadata=json_key("first"))
    rows_per_bucket: tuple[int, ...] = field(metadata=json_key("rows"))


@dataclass(frozen=True, slots=True)
class KeyRange(JsonForm):
    """Smallest and greatest key of a file."""

    least: LayoutKey
    greatest: LayoutKey


KeyPlacement: TypeAlias = HashBuckets | KeyRange


def key_placement_from_json(data: Mapping[str, Any] | None) -> KeyPlacement | None:
    """Key placement from its ``as_json``."""
    if data is None:
        return None
    if "of" in data:
        return HashBuckets(data["of"], data["first"], tuple(data["rows"]))
    return KeyRange(tuple(data["least"]), tuple(data["greatest"]))


register_form(KeyPlacement | None, lambda value: None if value is None else value.as_json(), key_placement_from_json)
