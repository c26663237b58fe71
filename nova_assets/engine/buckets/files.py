"""Files that are laid out, written from rows that are arranged. Arrow alone.

Row groups end where buckets do, as far as these are not tiny, so that the rows of one bucket are read without those of
its neighbours.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nova_assets.engine import disk
from nova_assets.engine.buckets.arrange import Numbers, arranged
from nova_assets.engine.buckets.order import firsts, one_chunk
from nova_assets.engine.footers import plain
from nova_assets.model.layout import Hashed, Layout, Place, Ranged, place_from_json
from nova_assets.model.schema import DELETED
from nova_assets.plan.cells import Bucket

GROUP_ROWS = 1 << 17
"""At most so many rows are in a row group, so that a few keys can be looked up without decoding the whole bucket."""

GROUP_BYTES = 16 * 2**20
"""Nor so many bytes, before they are compressed."""

_SAMPLED, _FEW = 4000, 100

FEW_ROWS = 1 << 14
"""Buckets of fewer rows share a row group."""


@dataclass(frozen=True, slots=True)
class Written:
    """A file as it was written.

    Args:
        place: None where a key is too long to be kept in the catalog.
        repeated: some key occurs oftener in it than a block may hold it.
    """

    path: str
    place: Place | None
    rows: int
    deletes: int
    repeated: bool

    def as_json(self) -> dict[str, Any]:
        place = None if self.place is None else self.place.as_json()
        return {
            "path": self.path,
            "place": place,
            "rows": self.rows,
            "deletes": self.deletes,
            "repeated": self.repeated,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Written:
        place = place_from_json(data["place"])
        return Written(data["path"], place, data["rows"], data["deletes"], data["repeated"])


def write(
    table: pa.Table, path: str, layout: Layout, *, buckets: int = 1, cell: Bucket | None = None, both: bool = False
) -> Written:
    """Rows as one file.

    Args:
        table: not empty; without nulls in the key.
        buckets: into which the rows are laid out.
        cell: the one bucket that all rows are of, where they are; then they are sorted in that alone.
        both: a key may have a deletion and a live row.
    """
    table, counts = arranged(one_chunk(table), layout, buckets)
    with disk.writing(path, table.schema, **_options(table)) as writer:
        for start, end in _groups(counts, _group_rows(table)):
            writer.write_table(table.slice(start, end - start), row_group_size=end - start)
    deletes = int(np.sum(table[DELETED].to_numpy())) if DELETED in table.column_names else 0
    return Written(path, _place(table, layout, counts, cell), table.num_rows, deletes, _repeats(table, layout, both))


def unordered(table: pa.Table, path: str) -> Written:
    """Rows that cannot be laid out, as one file, for whoever tells what is wrong with them."""
    disk.save(table, path)
    return Written(path, None, table.num_rows, 0, False)


def _options(table: pa.Table) -> dict[str, object]:
    """How a file is written: with dictionaries where values come again and again, by a sample. To begin one that is
    given up costs as much as the rest of a column's writing."""
    step = max(1, table.num_rows // _SAMPLED)
    sample = table.take(pa.array(np.arange(0, table.num_rows, step)))
    repeated = [name for name in table.column_names if _repeats_itself(sample[name])]
    return {"use_dictionary": repeated or False, "write_page_index": True}


def _repeats_itself(sample: pa.ChunkedArray) -> bool:
    nested = pa.types.is_nested(sample.type)
    return nested or len(sample) < _FEW or pc.count_distinct(sample).as_py() <= len(sample) // 2


def _group_rows(table: pa.Table) -> int:
    return max(1, min(GROUP_ROWS, GROUP_BYTES * int(table.num_rows) // max(1, int(table.nbytes))))


def _groups(counts: Numbers, most: int) -> Iterator[tuple[int, int]]:
    start = end = 0
    for n, count in enumerate(counts.tolist()):
        end += count
        if end - start >= FEW_ROWS or (n == len(counts) - 1 and end > start):
            pieces = -(-(end - start) // most)
            bounds = [start + (end - start) * k // pieces for k in range(pieces + 1)]
            yield from itertools.pairwise(bounds)
            start = end


def _place(table: pa.Table, layout: Layout, counts: Numbers, cell: Bucket | None) -> Place | None:
    if layout.clustered:
        ends = table.select(list(layout.order)).take([0, table.num_rows - 1])
        try:
            least, greatest = (tuple(plain(v) for v in row.values()) for row in ends.to_pylist())
        except (ValueError, OverflowError):  # a date that Python does not have
            return None
        return None if None in (*least, *greatest) else Ranged(least, greatest)
    if cell is not None:
        return Hashed(cell.of, cell.number, (table.num_rows,))
    return Hashed(len(counts), 0, tuple(counts.tolist()))


def _repeats(table: pa.Table, layout: Layout, both: bool) -> bool:
    """Whether a key occurs oftener than a block may hold it (R11); rows of one key are side by side."""
    again = np.flatnonzero(~firsts(table, layout.order))
    if not len(again) or not both or DELETED not in table.column_names:
        return bool(len(again))
    deleted = table[DELETED].to_numpy()
    return bool((deleted[again] == deleted[again - 1]).any())
