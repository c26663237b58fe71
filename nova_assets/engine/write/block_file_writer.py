"""Writing of rows into files of a block: tables in this process, frames by Spark. Each writer reports its files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from nova_assets.engine.buckets.file_writer import WrittenFile, check_row_count
from nova_assets.engine.session.lazy_session import LazySparkSession
from nova_assets.engine.write.block_target import BlockTarget
from nova_assets.engine.write.bucket_writer import BucketWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class BlockFileWriter:
    """Writes rows into the folder of a block."""

    def __init__(self, session: LazySparkSession) -> None:
        self.session = session

    def write_table(self, table: pa.Table, target: BlockTarget) -> list[WrittenFile]:
        """Write a local table that has the columns and types of the block.

        Raises:
            WarehouseUnavailable: the row count of the files differs from that of the table.
        """
        written = self._create_bucket_writer(target).write_table(table)
        check_row_count(written, table.num_rows, target.error_label)
        return written

    def write_frame(self, frame: DataFrame, target: BlockTarget) -> list[WrittenFile]:
        """Write a Spark frame.

        Raises:
            WarehouseUnavailable: the row count of the files differs from that of the frame.
        """
        if self.session.can_use_workers:
            return self._create_bucket_writer(target).write_frame(frame)
        from nova_assets.engine.write.spark_writer import write_frame_by_spark

        return write_frame_by_spark(frame, target)

    def _create_bucket_writer(self, target: BlockTarget) -> BucketWriter:
        return BucketWriter(self.session, target.file_target, target.kind == "base")


def are_keys_proven_unique(written_files: Sequence[WrittenFile], target: BlockTarget) -> bool:
    """Whether the reports of the files exclude repeated keys: no file has a repeated key, and no two files can share a
    key."""
    if any(w.has_repeated_keys or w.key_placement is None for w in written_files):
        return False
    return target.kind == "base" or len(written_files) < 2
