"""Rows become files of a block: tables here, frames by Spark. Whoever writes a file reports it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from nova_assets.engine.buckets.bucket_files import Written, check_count
from nova_assets.engine.session.session import Session
from nova_assets.engine.write.bucket_writer import Layer
from nova_assets.engine.write.target import Target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Output:
    """Writes rows into a block's folder."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def table(self, table: pa.Table, target: Target) -> list[Written]:
        """Write rows that are here, in the block's own columns and types.

        Raises:
            WarehouseUnavailable: the files hold other rows.
        """
        written = self._layer(target).table(table)
        check_count(written, table.num_rows, target.where)
        return written

    def frame(self, frame: DataFrame, target: Target) -> list[Written]:
        """Write rows that Spark computes.

        Raises:
            WarehouseUnavailable: the files hold other rows.
        """
        if self.session.has_workers:
            return self._layer(target).frame(frame)
        from nova_assets.engine.write.spark_writer import save

        return save(frame, target)

    def _layer(self, target: Target) -> Layer:
        return Layer(self.session, target.written, target.kind == "base")


def are_alone(written: Sequence[Written], target: Target) -> bool:
    """Whether it is known that no key occurs too often: no file has one, and no two files have the same."""
    if any(w.repeated or w.place is None for w in written):
        return False
    return target.kind == "base" or len(written) < 2
