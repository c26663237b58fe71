"""Rows become files of a block: tables here, frames by Spark; laid out where the block is."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from nova_assets.engine import disk
from nova_assets.engine.buckets.files import Written
from nova_assets.engine.buckets.lay import Layer
from nova_assets.engine.partition import split
from nova_assets.engine.session import Session
from nova_assets.engine.target import Target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Places: TypeAlias = Mapping[str, Written] | None
"""Names of files -> what is known of them; None where rows lie as they came."""

_PARTITION = "__nova_partition"

_ROW_GROUP = 64 * 2**20


class Output:
    """Writes rows into a block's folder."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def table(self, table: pa.Table, target: Target) -> Places:
        """Write rows that are here, in the block's own columns and types."""
        if target.layout is None:
            _write_table(table, target)
            return None
        return by_name(self._layer(target).table(table))

    def frame(self, frame: DataFrame, target: Target) -> Places:
        """Write rows that Spark computes."""
        if target.layout is None or not self.session.has_workers:
            _save(frame, target)
            return None
        return by_name(self._layer(target).frame(frame))

    def _layer(self, target: Target) -> Layer:
        return Layer(self.session, target.laid, target.kind == "base")


def by_name(written: Iterable[Written]) -> Mapping[str, Written]:
    return {disk.name_of(w.path): w for w in written}


def are_alone(places: Places, target: Target) -> bool:
    """Whether it is known that no key occurs too often: no file has one, and no two files have the same."""
    if places is None or any(w.repeated or w.place is None for w in places.values()):
        return False
    return target.kind == "base" or len(places) < 2


def _save(rows: DataFrame, target: Target) -> None:
    """Spark's files; on a partitioned channel, each with the rows of one partition.

    Spark would leave the partition columns out of its files and put their values into folders' names, so it is given
    one that stands for them.
    """
    if not target.spread:
        rows.write.mode("append").parquet(disk.for_spark(target.folder))
        return
    from pyspark.sql import functions as F

    from nova_assets.engine.columns import struct
    from nova_assets.engine.versions import rebalanced

    mark = F.sha2(F.to_json(struct(target.spread)), 256)
    marked = rebalanced(rows.withColumn(_PARTITION, mark), _PARTITION)  # few files, and none for several
    marked.write.mode("append").partitionBy(_PARTITION).parquet(disk.for_spark(target.folder))
    disk.flatten(target.folder, _PARTITION)


def _write_table(table: pa.Table, target: Target) -> None:
    """One file (for each partition), in row groups that several cores can share."""
    if not table.num_rows:
        return
    size = max(1, min(2**20, _ROW_GROUP * table.num_rows // max(1, table.nbytes)))
    for n, rows in enumerate(split(table, target.spread) if target.spread else [table]):
        name = f"part-{uuid.uuid4().hex[:12]}-{n:05d}-{target.id}.zstd.parquet"
        disk.save(rows, disk.join(target.folder, name), row_group_size=size)
