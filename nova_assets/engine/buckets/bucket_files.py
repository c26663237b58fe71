"""Files written from rows, laid out or as they come, each with a report of what is in it. Arrow alone.

Row groups end where buckets do, as far as these are not tiny, so that the rows of one bucket are read without those of
its neighbours.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nova_assets.engine.buckets.key_order import firsts, one_chunk
from nova_assets.engine.buckets.row_layout import Numbers, arranged
from nova_assets.engine.storage import file_io
from nova_assets.engine.storage.parquet_footers import Footer, plain, reported
from nova_assets.engine.storage.parquet_writer import FileWriter
from nova_assets.errors import PartitionError, WarehouseUnavailable
from nova_assets.model.block_layout import Hashed, Layout, Place, Ranged, place_from_json
from nova_assets.model.partition_of_row import partition_of
from nova_assets.model.partitions import Dimension
from nova_assets.model.schema import DELETED
from nova_assets.plan.merge_units import Bucket

GROUP_ROWS = 1 << 17
"""At most so many rows are in a row group, so that a few keys can be looked up without decoding the whole bucket."""

GROUP_BYTES = 16 * 2**20
"""Nor so many bytes, before they are compressed."""

_SAMPLED, _FEW = 4000, 100

FEW_ROWS = 1 << 14
"""Buckets of fewer rows share a row group."""

FEW_BYTES = 2 * 2**20
"""Unless they have more bytes in memory."""

FILE_BYTES = 128 * 2**20
"""Bytes of a file that is neither small nor unwieldy."""

PLAIN_GROUP_BYTES = 64 * 2**20
"""Bytes in memory of a row group whose rows lie as they come: several cores can share a file."""

_PLAIN_GROUP_ROWS = 2**20


@dataclass(frozen=True, slots=True)
class Target:
    """Where rows are written, and how.

    Args:
        folder: of the block.
        id: of the block; part of the files' names.
        schema: of the rows, with ``_deleted`` where they are changes.
        layout: None where rows lie as they come.
        both: a key may have a deletion and a live row.
        spread: partition columns; no file has rows of two partitions.
        dimensions: of the channel: files report the partitions of their rows.
        where: names the block in errors.
        ranges_of, nulls_of: columns whose bounds and whose nulls files report.
    """

    folder: str
    id: str
    schema: pa.Schema
    layout: Layout | None
    both: bool
    spread: tuple[str, ...] = ()
    dimensions: tuple[Dimension, ...] = ()
    where: str = ""
    ranges_of: tuple[str, ...] = ()
    nulls_of: tuple[str, ...] = ()

    @property
    def laid(self) -> Layout:
        """The layout, where there is one."""
        assert self.layout is not None
        return self.layout

    def new_path(self, prefix: str, suffix: str = "") -> str:
        """Address of a new file, of a name that no other file has."""
        return file_io.join(self.folder, f"{prefix}-{uuid.uuid4().hex[:12]}{suffix}-{self.id}.zstd.parquet")


@dataclass(frozen=True, slots=True)
class Written:
    """A file as it was written.

    Args:
        place: None where rows lie as they come, and where a key is too long to be kept in the catalog.
        repeated: some key occurs oftener in it than a block may hold it.
        partitions: of its rows.
        refusal: why some row is in no partition, as the parts of the error; None where all are.
    """

    footer: Footer
    place: Place | None
    deletes: int
    repeated: bool
    partitions: tuple[str, ...] = ()
    refusal: Mapping[str, Any] | None = None

    @property
    def path(self) -> str:
        return self.footer.path

    @property
    def rows(self) -> int:
        return self.footer.rows

    @property
    def bytes(self) -> int:
        return self.footer.bytes

    def as_json(self) -> dict[str, Any]:
        return {
            "footer": self.footer.as_json(),
            "place": None if self.place is None else self.place.as_json(),
            "deletes": self.deletes,
            "repeated": self.repeated,
            "partitions": self.partitions,
            "refusal": self.refusal,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Written:
        return Written(
            Footer.from_json(data["footer"]),
            place_from_json(data["place"]),
            data["deletes"],
            data["repeated"],
            tuple(data["partitions"]),
            data["refusal"],
        )


def write(table: pa.Table, path: str, target: Target, *, buckets: int = 1, cell: Bucket | None = None) -> Written:
    """Rows as one file that is laid out.

    Args:
        table: not empty; without nulls in the key.
        buckets: into which the rows are laid out.
        cell: the one bucket that all rows are of, where they are; then they are sorted in that alone.
    """
    layout = target.laid
    table, counts = arranged(one_chunk(table), layout, buckets)
    file = _OpenFile(path, table.schema, target, **_options(table), **file_io.page_options(table))
    with file.closing():
        few = max(1, min(FEW_ROWS, _rows_within(FEW_BYTES, table)))
        for start, end in _groups(counts, few, max(1, min(GROUP_ROWS, _rows_within(GROUP_BYTES, table)))):
            file.append(table.slice(start, end - start), end - start)
    written = file.finish()
    return replace(written, place=_place(table, layout, counts, cell), repeated=_repeats(table, layout, target.both))


def write_plain(tables: Iterable[pa.Table], target: Target, most_bytes: int, suffix: str = "") -> Iterator[Written]:
    """Rows as they come, in files of about so many bytes; of no rows, no file.

    Args:
        tables: each as much as is in memory at once.
        suffix: part of the files' names.
    """
    file: _OpenFile | None = None
    for table in tables:
        if not table.num_rows:
            continue
        if file is None:
            file = _OpenFile(target.new_path("part", suffix), table.schema, target, **file_io.page_options(table))
        with file.closing():
            file.append(table, plain_group_rows(table))
        if file.bytes >= most_bytes:
            yield file.finish()
            file = None
    if file is not None:
        yield file.finish()


def check_count(written: Iterable[Written], rows: int, where: str) -> None:
    """Compare what files hold with the rows that were handed to their writers.

    Raises:
        WarehouseUnavailable: rows are missing, or there are more.
    """
    count = sum(w.rows for w in written)
    if count != rows:
        raise WarehouseUnavailable(
            f"{where}: the files that were written do not hold the rows that were handed over",
            found=f"{count} rows in files",
            expected=f"{rows} rows",
            next="do it again: nothing of it was kept",
        )


def plain_group_rows(table: pa.Table) -> int:
    """Rows of a row group of rows that lie as they come."""
    return max(1, min(_PLAIN_GROUP_ROWS, PLAIN_GROUP_BYTES * int(table.num_rows) // max(1, int(table.nbytes))))


class _OpenFile:
    """A file that is being written, and what is to be reported of its rows."""

    def __init__(self, path: str, schema: pa.Schema, target: Target, **options: Any) -> None:
        self.target = target
        self.deletes = 0
        self._rows: list[pa.Table] = []
        self._columns = [d.column for d in target.dimensions]
        self._writer = FileWriter(path, schema, **options)

    @property
    def bytes(self) -> int:
        return self._writer.bytes

    def append(self, table: pa.Table, group_rows: int) -> None:
        self._writer.write(table, group_rows)
        if DELETED in table.column_names:
            self.deletes += int(pc.sum(table[DELETED]).as_py() or 0)
        if self._columns:
            self._rows.append(table.select(self._columns).group_by(self._columns).aggregate([]))

    @contextmanager
    def closing(self) -> Iterator[None]:
        """A block in which rows are written. If that fails, the file is let go of."""
        try:
            yield
        except BaseException:
            self._writer.discard()
            raise

    def finish(self) -> Written:
        with self.closing():
            report = self._writer.close()
        footer = reported(report, self.target.ranges_of, self.target.nulls_of)
        return Written(footer, None, self.deletes, False, *self._partitions())

    def _partitions(self) -> tuple[tuple[str, ...], Mapping[str, Any] | None]:
        """The partitions of all rows; or why some row is in none, for the driver: an error of a task is Spark's."""
        rows = (row for table in self._rows for row in table.to_pylist())
        try:
            found = dict.fromkeys(partition_of(self.target.dimensions, row, self.target.where) for row in rows)
        except PartitionError as error:
            parts = {"what": error.what, "found": error.found, "expected": error.expected, "next": error.next}
            return (), {**parts, "column": error.fields.get("column")}
        return (tuple(found) if self._columns else ()), None


def _options(table: pa.Table) -> dict[str, object]:
    """How a file is written: with dictionaries where values come again and again, by a sample. To begin one that is
    given up costs as much as the rest of a column's writing."""
    step = max(1, table.num_rows // _SAMPLED)
    sample = table.take(pa.array(np.arange(0, table.num_rows, step)))
    repeated = [name for name in table.column_names if _repeats_itself(sample[name])]
    return {"dictionaries": repeated, "write_page_index": True}


def _repeats_itself(sample: pa.ChunkedArray) -> bool:
    nested = pa.types.is_nested(sample.type)
    return nested or len(sample) < _FEW or pc.count_distinct(sample).as_py() <= len(sample) // 2


def _rows_within(bytes: int, table: pa.Table) -> int:
    """How many rows of a table have so many bytes in memory, on average."""
    return bytes * int(table.num_rows) // max(1, int(table.nbytes))


def _groups(counts: Numbers, few: int, most: int) -> Iterator[tuple[int, int]]:
    """Where row groups start and end. Buckets of few rows share one, and those of more than ``most`` have several."""
    start = end = 0
    for n, count in enumerate(counts.tolist()):
        end += count
        if end - start >= few or (n == len(counts) - 1 and end > start):
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
