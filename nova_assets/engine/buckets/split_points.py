"""Split points: sampled keys that divide files into key ranges with about equal numbers of rows. Uses Arrow alone."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import pyarrow as pa

from nova_assets.engine.storage.integrity import open_block_file
from nova_assets.engine.storage.parquet_footers import to_json_value
from nova_assets.model.key_layout import LayoutKey
from nova_assets.plan.merge_units import KeySpan

_SAMPLES_PER_PIECE = 64
"""Number of sampled keys, over all files, per requested range."""


def sample_split_points(paths: Sequence[str], key_columns: Sequence[str], piece_count: int) -> list[LayoutKey]:
    """At most ``piece_count - 1`` keys, in ascending order.

    Args:
        paths: paths of the files to sample.
        key_columns: columns of the key.
        piece_count: number of requested ranges.
    """
    files, names = [open_block_file(path) for path in paths], list(key_columns)
    step = max(1, sum(f.metadata.num_rows for f in files) // (_SAMPLES_PER_PIECE * piece_count))
    samples: set[LayoutKey] = set()
    for file in files:
        keys = file.read(names).select(names)
        sampled_rows = keys.take(pa.array(range(step // 2, keys.num_rows, step), pa.int64()))
        with suppress(ValueError, OverflowError):  # dates outside Python's range
            samples |= {tuple(to_json_value(row[name]) for name in names) for row in sampled_rows.to_pylist()}
    sampled_keys = sorted(k for k in samples if None not in k)
    indexes = sorted({len(sampled_keys) * n // piece_count for n in range(1, piece_count)})
    return [sampled_keys[n] for n in indexes if 0 < n < len(sampled_keys)]


def split_key_range(key_range: KeySpan, split_points: Sequence[LayoutKey]) -> list[KeySpan]:
    """Key range, split at the points that lie inside it."""
    inner_points = [
        k
        for k in split_points
        if (key_range.least is None or k > key_range.least) and (key_range.below is None or k < key_range.below)
    ]
    return [
        KeySpan(a, b) for a, b in zip([key_range.least, *inner_points], [*inner_points, key_range.below], strict=True)
    ]
