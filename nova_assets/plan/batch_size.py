"""Batch sizes for Spark, by the width of rows. Pure.

Spark sizes batches by row count: 4,096 rows per decoded batch, 10,000 rows per batch sent to Python. For rows of 100 kB
these are 400 MB and 1 GB, in contiguous arrays. Manifests record rows and bytes, so batches are sized by row width.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nova_assets.model.block import DataFile
from nova_assets.model.reads import Read
from nova_assets.plan.partial_reads import stored_blocks

NARROW_BYTES = 2048
"""Rows up to this width suit Spark's default batches: 4,096 of them are 8 MiB."""

READER_BATCH_BYTES = 8 * 2**20
"""Bytes of a batch that Spark's reader decodes. The reader keeps several per core, and doubles them as they grow."""

ARROW_BATCH_BYTES = 16 * 2**20
"""Bytes of a batch that is sent to or from Python."""

SPLIT_BYTES = 64 * 2**20
"""Uncompressed bytes of rows that one Spark task reads."""

PAGE_BYTES = 2**20
"""Bytes of a page of a Parquet file, the smallest unit that a reader decompresses."""

ASSUMED_COMPRESSION_RATIO = 16
"""Ratio of uncompressed rows to file size, if the uncompressed size is not recorded."""

READER_BATCH_ROWS = 4096
ARROW_BATCH_ROWS = 10_000
_MIN_SPLIT_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class RowWidth:
    """Width of rows.

    Args:
        row_bytes: average uncompressed bytes per row, in the file with the widest rows.
        compressed_share: bytes on disk per uncompressed byte.
    """

    row_bytes: int = 0
    compressed_share: float = 1.0

    @property
    def is_narrow(self) -> bool:
        return self.row_bytes <= NARROW_BYTES


def row_width_of_read(read: Read) -> RowWidth:
    """Width of the widest rows among the files of a read."""
    return widest_row_width(row_width_of_file(f) for b in stored_blocks(read) for f in b.manifest.files)


def row_width_of_file(file: DataFile) -> RowWidth:
    """Width of the rows of one file."""
    return row_width(file.rows, file.bytes, file.uncompressed_bytes)


def row_width(rows: int, file_bytes: int, uncompressed_bytes: int) -> RowWidth:
    """Width of rows, from their number and size.

    Args:
        rows: number of rows.
        file_bytes: bytes on disk.
        uncompressed_bytes: bytes of the rows themselves; 0 if unknown.
    """
    if rows <= 0:
        return RowWidth()
    # Bytes on disk say little: text may take a tenth of its size, and repetitive text a thousandth.
    uncompressed_bytes = uncompressed_bytes or file_bytes * ASSUMED_COMPRESSION_RATIO
    return RowWidth(uncompressed_bytes // rows, min(1.0, file_bytes / max(1, uncompressed_bytes)))


def widest_row_width(widths: Iterable[RowWidth]) -> RowWidth:
    """Largest of some widths: a batch size for the widest rows suits all rows. A width of 0 without any."""
    return max(widths, key=lambda width: width.row_bytes, default=RowWidth())


def rows_per_batch(batch_bytes: int, row_bytes: int, max_rows: int) -> int:
    """Number of rows of a width that fit into a batch, at least one."""
    return max(1, min(max_rows, batch_bytes // max(1, row_bytes)))


def spark_batch_settings(width: RowWidth) -> Mapping[str, int]:
    """Spark settings for rows of this width; empty for narrow rows, which suit Spark's defaults.

    Each setting is an upper limit. If several apply at once, the smallest counts.
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
        "spark.sql.execution.arrow.maxBytesPerBatch": ARROW_BATCH_BYTES,  # only in newer versions of Spark
        "spark.sql.execution.arrow.maxBytesPerOutputBatch": ARROW_BATCH_BYTES,
        "spark.sql.execution.python.udf.maxBytesPerBatch": ARROW_BATCH_BYTES,
    }
