"""How many rows are handled at once, by how wide they are. Pure.

Spark batches by counting rows: 4,096 that a reader decodes, 10,000 that go to Python. With rows of 100 kB, these are
400 MB and 1 GB, in arrays that have to be contiguous. Manifests know rows and bytes, so batches are chosen by width.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nova_assets.model.block import Block, DataFile
from nova_assets.model.reads import Read, sources

NARROW_BYTES = 2048
"""Rows up to this width fit Spark's own batches: 4,096 of them are 8 MiB."""

READER_BYTES = 8 * 2**20
"""Of a batch that Spark's reader decodes. It keeps several for each core, and doubles them as they grow."""

ARROW_BYTES = 16 * 2**20
"""Of a batch that goes to Python, or comes from there."""

SPLIT_BYTES = 64 * 2**20
"""Of the rows, unpacked, that one task of Spark reads."""

PAGE_BYTES = 2**20
"""Of a page of a Parquet file: what a reader has to unpack at once."""

UNPACKED = 16
"""So many times as large as its file are rows whose unpacked size nobody has recorded."""

READER_ROWS = 4096
ARROW_ROWS = 10_000
_LEAST_SPLIT = 2**20


@dataclass(frozen=True, slots=True)
class Width:
    """How wide rows are.

    Args:
        row: bytes of a row, unpacked: the average of the file with the widest rows.
        packed: bytes on disk for each byte of rows.
    """

    row: int = 0
    packed: float = 1.0

    def __or__(self, other: Width) -> Width:
        """Both together: what suits the wider rows suits all."""
        return max(self, other, key=lambda w: w.row)

    @property
    def is_narrow(self) -> bool:
        return self.row <= NARROW_BYTES


def width_of_read(read: Read) -> Width:
    """Of the widest rows among the files of a read."""
    return widest(width_of_file(f) for s in sources(read) if isinstance(s, Block) for f in s.manifest.files)


def width_of_file(file: DataFile) -> Width:
    """Of the rows of one file."""
    return width(file.rows, file.bytes, file.unpacked)


def width(rows: int, packed: int, unpacked: int) -> Width:
    """Of so many rows.

    Args:
        packed: bytes on disk.
        unpacked: bytes of the rows themselves; 0 where that is not known.
    """
    if rows <= 0:
        return Width()
    unpacked = unpacked or packed * UNPACKED
    return Width(unpacked // rows, min(1.0, packed / max(1, unpacked)))


def widest(widths: Iterable[Width]) -> Width:
    """The widest of some; of none, a width of nothing."""
    found = Width()
    for one in widths:
        found |= one
    return found


def rows_within(size: int, row: int, most: int) -> int:
    """How many rows of a width are so many bytes: one at least."""
    return max(1, min(most, size // max(1, row)))


def spark_limits(width: Width) -> Mapping[str, int]:
    """Settings of Spark under which rows of this width are handled; none for narrow rows, which suit its own.

    Each is an upper limit: of several that hold at once, the least counts.
    """
    if width.is_narrow:
        return {}
    reader = rows_within(READER_BYTES, width.row, READER_ROWS)
    return {
        "spark.sql.parquet.columnarReaderBatchSize": reader,
        "spark.sql.orc.columnarReaderBatchSize": reader,
        "spark.sql.files.maxPartitionBytes": max(_LEAST_SPLIT, int(SPLIT_BYTES * width.packed)),
        "spark.sql.execution.arrow.maxRecordsPerBatch": rows_within(ARROW_BYTES, width.row, ARROW_ROWS),
        "spark.sql.execution.arrow.maxBytesPerBatch": ARROW_BYTES,  # where Spark has it
        "spark.sql.execution.arrow.maxBytesPerOutputBatch": ARROW_BYTES,
        "spark.sql.execution.python.udf.maxBytesPerBatch": ARROW_BYTES,
    }
