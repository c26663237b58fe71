"""How many rows are handled at once, by how wide they are. Pure.

Spark batches by counting rows: 4,096 that a reader decodes, 10,000 that go to Python. With rows of 100 kB, these are
400 MB and 1 GB, in arrays that have to be contiguous. Manifests know rows and bytes, so batches are chosen by width.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nova_assets.model.block import Block, DataFile
from nova_assets.model.reads import Read, source_blocks

NARROW_BYTES = 2048
"""Rows up to this width fit Spark's own batches: 4,096 of them are 8 MiB."""

READER_BATCH_BYTES = 8 * 2**20
"""Of a batch that Spark's reader decodes. It keeps several for each core, and doubles them as they grow."""

ARROW_BATCH_BYTES = 16 * 2**20
"""Of a batch that goes to Python, or comes from there."""

SPLIT_BYTES = 64 * 2**20
"""Of the rows, unpacked, that one task of Spark reads."""

PAGE_BYTES = 2**20
"""Of a page of a Parquet file: what a reader has to unpack at once."""

ASSUMED_COMPRESSION_RATIO = 16
"""So many times as large as its file are rows whose unpacked size nobody has recorded."""

READER_BATCH_ROWS = 4096
ARROW_BATCH_ROWS = 10_000
_MIN_SPLIT_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class RowWidth:
    """How wide rows are.

    Args:
        row_bytes: bytes of a row, unpacked: the average of the file with the widest rows.
        compressed_share: bytes on disk for each byte of rows.
    """

    row_bytes: int = 0
    compressed_share: float = 1.0

    def __or__(self, other: RowWidth) -> RowWidth:
        """Both together: what suits the wider rows suits all."""
        return max(self, other, key=lambda w: w.row_bytes)

    @property
    def is_narrow(self) -> bool:
        return self.row_bytes <= NARROW_BYTES


def row_width_of_read(read: Read) -> RowWidth:
    """Of the widest rows among the files of a read."""
    return widest_row_width(
        row_width_of_file(f) for s in source_blocks(read) if isinstance(s, Block) for f in s.manifest.files
    )


def row_width_of_file(file: DataFile) -> RowWidth:
    """Of the rows of one file."""
    return row_width(file.rows, file.bytes, file.uncompressed_bytes)


def row_width(rows: int, file_bytes: int, uncompressed_bytes: int) -> RowWidth:
    """Of so many rows.

    Args:
        file_bytes: bytes on disk.
        uncompressed_bytes: bytes of the rows themselves; 0 where that is not known.
    """
    if rows <= 0:
        return RowWidth()
    uncompressed_bytes = uncompressed_bytes or file_bytes * ASSUMED_COMPRESSION_RATIO
    return RowWidth(uncompressed_bytes // rows, min(1.0, file_bytes / max(1, uncompressed_bytes)))


def widest_row_width(widths: Iterable[RowWidth]) -> RowWidth:
    """The widest of some; of none, a width of nothing."""
    result = RowWidth()
    for width in widths:
        result |= width
    return result


def rows_per_batch(batch_bytes: int, row_bytes: int, max_rows: int) -> int:
    """How many rows of a width are so many bytes: one at least."""
    return max(1, min(max_rows, batch_bytes // max(1, row_bytes)))


def spark_batch_settings(width: RowWidth) -> Mapping[str, int]:
    """Settings of Spark under which rows of this width are handled; none for narrow rows, which suit its own.

    Each is an upper limit: of several that hold at once, the least counts.
    """
    if width.is_narrow:
        return {}
    reader = rows_per_batch(READER_BATCH_BYTES, width.row_bytes, READER_BATCH_ROWS)
    return {
        "spark.sql.parquet.columnarReaderBatchSize": reader,
        "spark.sql.orc.columnarReaderBatchSize": reader,
        "spark.sql.files.maxPartitionBytes": max(_MIN_SPLIT_BYTES, int(SPLIT_BYTES * width.compressed_share)),
        "spark.sql.execution.arrow.maxRecordsPerBatch": rows_per_batch(
            ARROW_BATCH_BYTES, width.row_bytes, ARROW_BATCH_ROWS
        ),
        "spark.sql.execution.arrow.maxBytesPerBatch": ARROW_BATCH_BYTES,  # where Spark has it
        "spark.sql.execution.arrow.maxBytesPerOutputBatch": ARROW_BATCH_BYTES,
        "spark.sql.execution.python.udf.maxBytesPerBatch": ARROW_BATCH_BYTES,
    }
