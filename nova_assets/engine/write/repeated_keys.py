"""Keys that occur too often in a block, reduced to what it may hold, or refused (R11)."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from nova_assets.engine.buckets.bucket_files import Written
from nova_assets.engine.session.session import Session
from nova_assets.engine.session.shared_settings import using
from nova_assets.engine.session.spark_config import WRITING
from nova_assets.engine.storage import file_io
from nova_assets.engine.storage.parquet_footers import Footer, table_of
from nova_assets.engine.write import key_checks
from nova_assets.engine.write.files_of_rows import Output
from nova_assets.engine.write.target import Target
from nova_assets.errors import SchemaMismatch
from nova_assets.model.schema import DELETED
from nova_assets.model.sum_bounds import fits, limited_sums, overflow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ARROW_ROWS = 5_000_000
"""Keys of blocks up to so many rows are looked through with Arrow; of larger ones, with Spark."""

ARROW_BYTES = 256 * 2**20
"""Blocks up to this size are rewritten in memory, where that is necessary."""

PYTHON_ROWS = 200_000
"""Up to so many rows are resolved one by one."""


class Resolver:
    """Looks through the keys of what was written."""

    def __init__(self, session: Session, output: Output) -> None:
        self.session = session
        self.output = output

    def resolve(self, footers: Sequence[Footer], target: Target) -> list[Written] | None:
        """Reduce keys that occur too often to what a block may hold.

        Gives the files that the rows are in now; None where no key occurs too often.

        Raises:
            BadKey: nothing decides between several live rows of a key.
        """
        assert target.model is not None
        model, rows, size = target.model, sum(f.rows for f in footers), sum(f.bytes for f in footers)
        if not rows:
            return None
        columns = [*model.key, *([DELETED] if target.marked else [])]
        if rows <= ARROW_ROWS:
            found = key_checks.repeats(table_of([f.path for f in footers], columns), model)
        else:
            found = self._repeats_by_spark(footers, target)
        if not found:
            return None
        if found.live_keys and not model.order_by:
            raise key_checks.undecided(target.where, model, found.live_keys, found.live_rows, found.examples)
        in_memory = found.rows is not None and found.count <= PYTHON_ROWS and size <= ARROW_BYTES
        if in_memory and key_checks.resolves_in_python(model):
            written = self._resolve_in_memory(footers, found, target)
        else:
            written = self._resolve_by_spark(footers, target)
        for f in footers:
            file_io.remove(f.path)
        return written

    def _resolve_in_memory(self, footers: Sequence[Footer], found: key_checks.Repeats, target: Target) -> list[Written]:
        assert target.model is not None and found.rows is not None
        table = table_of([f.path for f in footers], None)
        kept = key_checks.resolved(table.take(found.rows).to_pylist(), target.model, target.where)
        clean = table.filter(pc.invert(_mask(table.num_rows, found.rows)))
        try:
            decided = pa.Table.from_pylist(kept, schema=table.schema)
        except (pa.ArrowException, OverflowError) as error:
            types = limited_sums(target.model, target.schema)
            for row in kept:  # to say which one it is
                for column, type_ in types.items():
                    if row[column] is not None and not fits(Fraction(row[column]), type_):
                        key = {k: row[k] for k in target.model.key}
                        raise overflow(target.where, column, type_, key, Fraction(row[column])) from error
            raise SchemaMismatch(
                f"{target.where}: a combined value is too great for its column", found=str(error)
            ) from error
        return self.output.table(pa.concat_tables([clean, decided]), target)

    def _written(self, footers: Sequence[Footer], target: Target) -> DataFrame:
        from pyspark.sql import functions as F

        from nova_assets.engine.read.spark_read import load
        from nova_assets.engine.rows.spark_types import to_struct

        spark = self.session.get()
        reader = spark.read.format("parquet").schema(to_struct(target.physical.relaxed()))
        rows = load(reader, spark, [f.path for f in footers])
        return rows if target.marked else rows.withColumn(DELETED, F.lit(False))

    def _repeats_by_spark(self, footers: Sequence[Footer], target: Target) -> key_checks.Repeats:
        from pyspark.sql import functions as F

        from nova_assets.engine.rows.columns import col

        assert target.model is not None
        model = target.model
        with using(self.session.get(), WRITING):
            mark = col(DELETED).cast("int")
            counted = self._written(footers, target).groupBy(*map(col, model.key))
            each = counted.agg(F.sum(1 - mark).alias("live"), F.sum(mark).alias("gone"))
            wrong = (F.col("live") > 1) | (F.col("gone") > 1)
            if model.kind == "upsert" and not model.order_by:
                wrong = wrong | ((F.col("live") > 0) & (F.col("gone") > 0))
            several = each.filter("live > 1")
            twice = F.col("live") > 1
            total = each.agg(
                F.sum(F.when(wrong, F.col("live") + F.col("gone"))),
                F.count_if(twice),
                F.sum(F.when(twice, F.col("live"))),
            ).first()
            assert total is not None
            examples = several.select(*map(col, model.key)).limit(key_checks.EXAMPLES).collect() if total[1] else []
        shown = tuple(r.asDict(recursive=True) for r in examples)
        return key_checks.Repeats(None, total[0] or 0, total[1], total[2] or 0, shown)

    def _resolve_by_spark(self, footers: Sequence[Footer], target: Target) -> list[Written]:
        from pyspark.sql import functions as F

        from nova_assets.engine.read.spark_merge import ROWS, resolve, undecided
        from nova_assets.engine.rows.columns import col

        assert target.model is not None
        with using(self.session.get(), WRITING):
            rows = self._written(footers, target)
            if target.model.order_by:
                open_ = undecided(rows, target.model)
                found = open_.agg(F.count(F.lit(1)), F.sum(ROWS)).first()
                if found is not None and found[0]:
                    shown = open_.select(*map(col, target.model.key)).limit(key_checks.EXAMPLES).collect()
                    examples = [r.asDict(recursive=True) for r in shown]
                    raise key_checks.undecided(target.where, target.model, found[0], found[1], examples)
            return self.output.frame(resolve(rows, target.model).select(*map(col, target.physical.names)), target)


def _mask(length: int, places: pa.Array) -> pa.Array:
    marked = bytearray(length)
    for place in places.to_pylist():
        marked[place] = 1
    return pa.array(marked, pa.uint8()).cast(pa.bool_())
