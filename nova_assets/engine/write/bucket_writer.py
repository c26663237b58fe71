"""Rows put into files: tables here, frames by Spark's tasks. Each file is reported by whoever wrote it.

What a task has is written where it is computed, as a *run*: sorted where the block is laid out, with no shuffle. A
delta is left so. A base that is laid out is then merged out of its runs, bucket by bucket; what is small is put
together here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from nova_assets.engine.buckets.bucket_files import Target, Written, check_count, write
from nova_assets.engine.buckets.key_order import one_chunk, pieces
from nova_assets.engine.buckets.merge_unit import Cellwork, Source
from nova_assets.engine.buckets.partitioning import split
from nova_assets.engine.buckets.row_layout import arranged
from nova_assets.engine.buckets.spark_worker import lay_out
from nova_assets.engine.buckets.split_points import cuts, spans
from nova_assets.engine.session.session import Session
from nova_assets.engine.session.shared_settings import using
from nova_assets.engine.storage import file_io
from nova_assets.engine.storage.integrity import open_block_file
from nova_assets.model.arrow_types import from_arrow
from nova_assets.model.merge import Upsert
from nova_assets.plan.merge_units import Bucket, Cell, Span, reaches
from nova_assets.plan.partition_size import Size, bucket_bytes, buckets_for, pieces_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TOGETHER_BYTES = 64 * 2**20
"""Files of a block that together are no larger are put together here."""

PACKED = 0.4
"""About what is left of rows in memory when they are written."""

_PARTITION = "__nova_partition"


class Layer:
    """Writes rows, laid out where the target has a layout.

    Args:
        base: of a base, or of a delta.
    """

    def __init__(self, session: Session, target: Target, base: bool) -> None:
        self.session = session
        self.target = target
        self.base = base

    def table(self, table: pa.Table) -> list[Written]:
        """Write rows that are here."""
        layout = self.target.layout
        if layout is None or not self.base or any(table[k].null_count for k in layout.order):
            return list(lay_out(table, self.target))
        spread = self.target.spread
        parts = split(table, spread) if spread and table.num_rows else [table]
        return [w for part in parts if part.num_rows for w in self._base(part)]

    def frame(self, frame: DataFrame) -> list[Written]:
        """Write rows that Spark computes."""
        from nova_assets.engine.buckets.spark_jobs import SENDING, write_runs

        with using(self.session.get(), SENDING):
            runs = write_runs(self._together(frame), self.target)
        if self.target.layout is None or any(w.place is None for w in runs):
            return runs
        if (self.base or len(runs) > 1) and sum(w.bytes for w in runs) <= TOGETHER_BYTES:
            rows = [open_block_file(w.path).read() for w in runs]
            return self._instead(runs, self.table(pa.concat_tables(rows)) if rows else [])
        return self._instead(runs, self._merged(runs)) if self.base and runs else runs

    def _together(self, frame: DataFrame) -> DataFrame:
        """On a partitioned channel, rows of one partition: otherwise every task would write a file for each."""
        if not self.target.spread:
            return frame
        from pyspark.sql import functions as F

        from nova_assets.engine.rows.columns import struct
        from nova_assets.engine.rows.spark_versions import rebalanced

        mark = F.xxhash64(struct(self.target.spread))
        return rebalanced(frame.withColumn(_PARTITION, mark), _PARTITION).drop(_PARTITION)

    def _base(self, rows: pa.Table) -> Iterator[Written]:
        """The rows of one partition, a file for each bucket."""
        target, layout, size = self.target, self.target.laid, Size(int(rows.nbytes * PACKED), rows.num_rows)
        if layout.clustered:
            rows, _ = arranged(one_chunk(rows), layout)
            for n, piece in enumerate(pieces(rows, layout.order, pieces_for(size))):
                yield write(piece, target.new_path("part", f"-{n:05d}"), target)
            return
        of = buckets_for(size)
        rows, counts = arranged(one_chunk(rows), layout, of)
        start = 0
        for number, count in enumerate(counts.tolist()):
            if count:
                path = target.new_path("part", f"-{number:05d}")
                yield write(rows.slice(start, count), path, target, cell=Bucket(of, number))
            start += count

    def _merged(self, runs: Sequence[Written]) -> list[Written]:
        """A base out of its runs: each bucket by a task."""
        from nova_assets.engine.buckets.spark_jobs import merge_cells

        schema, layout = from_arrow(self.target.schema), self.target.laid
        works = []
        for some in self._by_partition(runs).values():
            size = Size(sum(w.bytes for w in some), sum(w.rows for w in some))
            sources = [(w, Source(w.path, w.place, (*schema.names, None))) for w in some if w.place is not None]
            into = max(1, size.rows * bucket_bytes(size) // max(1, size.bytes))
            for cell in self._cells(some, size):
                mine = tuple(s for w, s in sources if reaches(s.place, cell))
                works.append(Cellwork(cell, (), (mine,), into if isinstance(cell, Span) else 1))
        # Every row is of one base, so nothing is folded: any model will do.
        merged = merge_cells(self.session.get(), works, schema, Upsert(list(layout.order)), self.target)
        return [w for files in merged for w in files or ()]

    def _cells(self, runs: Sequence[Written], size: Size) -> list[Cell]:
        layout = self.target.laid
        if not layout.clustered:
            of = buckets_for(size)
            return [Bucket(of, n) for n in range(of)]
        found = cuts([r.path for r in runs], layout.order, pieces_for(size))
        return list(spans(Span(None, None), found))

    def _by_partition(self, runs: Sequence[Written]) -> Mapping[tuple[str, ...], list[Written]]:
        found: dict[tuple[str, ...], list[Written]] = {}
        for run in runs:
            found.setdefault(run.partitions, []).append(run)
        return found

    def _instead(self, runs: Sequence[Written], written: list[Written]) -> list[Written]:
        """Files that hold the rows of some runs, which are removed.

        Raises:
            WarehouseUnavailable: they hold other rows.
        """
        check_count(written, sum(run.rows for run in runs), self.target.where)
        for run in runs:
            file_io.remove(run.path)
        return written
