"""Rows become files of a block: tables here, frames by Spark. Whoever writes a file reports it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from nova_assets.engine.buckets.bucket_files import WrittenFile, check_row_count
from nova_assets.engine.session.session import LazySparkSession
from nova_assets.engine.write.bucket_writer import BucketWriter
from nova_assets.engine.write.target import BlockTarget

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class BlockFileWriter:
    """Writes rows into a block's folder."""

    def __init__(self, session: LazySparkSession) -> None:
        self.session = session

    def write_table(self, table: pa.Table, target: BlockTarget) -> list[WrittenFile]:
        """Write rows that are here, in the block's own columns and types.

        Raises:
            WarehouseUnavailable: the files hold other rows.
        """
        written = self._create_bucket_writer(target).write_table(table)
        check_row_count(written, table.num_rows, target.error_label)
        return written

    def write_frame(self, frame: DataFrame, target: BlockTarget) -> list[WrittenFile]:
        """Write rows that Spark computes.

        Raises:
            WarehouseUnavailable: the files hold other rows.
        """
        if self.session.can_use_workers:
            return self._create_bucket_writer(target).write_frame(frame)
        from nova_assets.engine.write.spark_writer import write_frame_by_spark

        return write_frame_by_spark(frame, target)

    def _create_bucket_writer(self, target: BlockTarget) -> BucketWriter:
        return BucketWriter(self.session, target.file_target, target.kind == "base")


def are_keys_known_unique(written_files: Sequence[WrittenFile], target: BlockTarget) -> bool:
    """Whether it is known that no key occurs too often: no file has one, and no two files have the same."""
    if any(w.has_repeated_keys or w.place is None for w in written_files):
        return False
    return target.kind == "base" or len(written_files) < 2
