"""Keys between which about equally many rows lie, by a sample of the files that have them. Arrow alone."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import pyarrow as pa

from nova_assets.engine.storage.integrity import open_block_file
from nova_assets.engine.storage.parquet_footers import plain
from nova_assets.model.block_layout import Key
from nova_assets.plan.merge_units import Span

_SAMPLED = 64
"""Of all files together, so many keys for each range that is wanted."""


def cuts(files: Sequence[str], order: Sequence[str], pieces: int) -> list[Key]:
    """At most ``pieces - 1`` keys, in order.

    Args:
        files: their paths.
        order: the columns of the key.
    """
    opened, names = [open_block_file(path) for path in files], list(order)
    step = max(1, sum(f.metadata.num_rows for f in opened) // (_SAMPLED * pieces))
    found: set[Key] = set()
    for file in opened:
        keys = file.read(names).select(names)
        some = keys.take(pa.array(range(step // 2, keys.num_rows, step), pa.int64()))
        with suppress(ValueError, OverflowError):  # dates that Python does not have
            found |= {tuple(plain(row[name]) for name in names) for row in some.to_pylist()}
    known = sorted(k for k in found if None not in k)
    places = sorted({len(known) * n // pieces for n in range(1, pieces)})
    return [known[n] for n in places if 0 < n < len(known)]


def spans(within: Span, keys: Sequence[Key]) -> list[Span]:
    """A span, cut at those of the keys that lie within it."""
    inside = [
        k for k in keys if (within.least is None or k > within.least) and (within.below is None or k < within.below)
    ]
    return [Span(a, b) for a, b in zip([within.least, *inside], [*inside, within.below], strict=True)]
