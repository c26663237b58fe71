"""Repeated keys of a block: resolved to the rows that a block may hold, or rejected (R11)."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from nova_assets.engine.buckets.file_writer import WrittenFile
from nova_assets.engine.session.lazy_session import LazySparkSession
from nova_assets.engine.session.shared_settings import temporary_settings
from nova_assets.engine.session.spark_config import WRITE_SETTINGS
from nova_assets.engine.storage import file_io
from nova_assets.engine.storage.parquet_footers import FileSummary, read_block_files
from nova_assets.engine.write import key_checks
from nova_assets.engine.write.block_file_writer import write_frame, write_table
from nova_assets.engine.write.block_target import BlockTarget
from nova_assets.errors import SchemaMismatch
from nova_assets.formats.python_values import to_python_rows
from nova_assets.model.schema import DELETED
from nova_assets.model.sum_bounds import is_in_type_range, overflowable_sums, sum_overflow_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MAX_ARROW_CHECK_ROWS = 5_000_000
"""Maximum number of rows for a check of keys with Arrow. Spark checks the keys of larger blocks."""

MAX_ARROW_REWRITE_BYTES = 256 * 2**20
"""Maximum size of a block that is rewritten in memory to resolve repeated keys."""

MAX_PYTHON_ROWS = 200_000
"""Maximum number of rows that are resolved one by one in Python."""


class RepeatedKeyResolver:
    """Checks the keys of written files and resolves repeated keys."""

    def __init__(self, session: LazySparkSession) -> None:
        self.session = session

    def resolve(self, footers: Sequence[FileSummary], target: BlockTarget) -> list[WrittenFile] | None:
        """Resolve repeated keys to the rows that a block may hold: at most one deletion and one live row per key (R11).

        Returns:
            The new files of the block, which replace the given files; None if no key is repeated.

        Raises:
            BadKey: no rule decides between several live rows of a key.
            SchemaMismatch, SumOverflow: a combined value exceeds the type of its column.
        """
        assert target.model is not None
        model, rows, size = target.model, sum(f.rows for f in footers), sum(f.bytes for f in footers)
        if not rows:
            return None
        columns = [*model.key, *([DELETED] if target.has_deleted_column else [])]
        if rows <= MAX_ARROW_CHECK_ROWS:
            repeated_keys = key_checks.find_repeated_keys(read_block_files([f.path for f in footers], columns), model)
        else:
            repeated_keys = self._find_repeats_by_spark(footers, target)
        if not repeated_keys:
            return None
        if repeated_keys.keys_with_several_live_rows and not model.order_by:
            raise key_checks.undecided_keys_error(
                target.error_label,
                model,
                repeated_keys.keys_with_several_live_rows,
                repeated_keys.live_rows,
                repeated_keys.examples,
            )
        in_memory = (
            repeated_keys.row_indices is not None
            and repeated_keys.row_count <= MAX_PYTHON_ROWS
            and size <= MAX_ARROW_REWRITE_BYTES
        )
        if in_memory and key_checks.can_resolve_in_python(model):
            written = self._resolve_in_memory(footers, repeated_keys, target)
        else:
            written = self._resolve_by_spark(footers, target)
        for f in footers:
            file_io.delete_file(f.path)
        return written

    def _resolve_in_memory(
        self, footers: Sequence[FileSummary], repeated_keys: key_checks.RepeatedKeys, target: BlockTarget
    ) -> list[WrittenFile]:
        assert target.model is not None and repeated_keys.row_indices is not None
        table = read_block_files([f.path for f in footers], None)
        resolved_rows = key_checks.resolve_repeated_keys(
            to_python_rows(table.take(repeated_keys.row_indices)), target.model, target.error_label
        )
        unrepeated_rows = table.filter(pc.invert(_row_mask(table.num_rows, repeated_keys.row_indices)))
        try:
            resolved_table = pa.Table.from_pylist(resolved_rows, schema=table.schema)
        except (pa.ArrowException, OverflowError) as error:
            types = overflowable_sums(target.model, target.schema)
            for row in resolved_rows:  # to name the key in the error
                for column, type_ in types.items():
                    if row[column] is not None and not is_in_type_range(Fraction(row[column]), type_):
                        key = {k: row[k] for k in target.model.key}
                        raise sum_overflow_error(
                            target.error_label, column, type_, key, Fraction(row[column])
                        ) from error
            raise SchemaMismatch(
                f"{target.error_label}: a combined value is too large for its column", found=str(error)
            ) from error
        return write_table(pa.concat_tables([unrepeated_rows, resolved_table]), target)

    def _read_written_rows(self, footers: Sequence[FileSummary], target: BlockTarget) -> DataFrame:
        from pyspark.sql import functions as F

        from nova_assets.engine.rows.spark_types import to_struct
        from nova_assets.engine.session.literal_paths import load_paths

        spark = self.session.get()
        reader = spark.read.format("parquet").schema(to_struct(target.file_schema.with_all_nullable()))
        rows = load_paths(reader, spark, [f.path for f in footers])
        return rows if target.has_deleted_column else rows.withColumn(DELETED, F.lit(False))

    def _find_repeats_by_spark(self, footers: Sequence[FileSummary], target: BlockTarget) -> key_checks.RepeatedKeys:
        from pyspark.sql import functions as F

        from nova_assets.engine.rows.spark_columns import col

        assert target.model is not None
        model = target.model
        with temporary_settings(self.session.get(), WRITE_SETTINGS):
            is_deletion = col(DELETED).cast("int")
            rows_by_key = self._read_written_rows(footers, target).groupBy(*map(col, model.key))
            counts_by_key = rows_by_key.agg(F.sum(1 - is_deletion).alias("live"), F.sum(is_deletion).alias("gone"))
            is_repeated = (F.col("live") > 1) | (F.col("gone") > 1)
            if model.kind == "upsert" and not model.order_by:
                is_repeated = is_repeated | ((F.col("live") > 0) & (F.col("gone") > 0))
            ambiguous_keys = counts_by_key.filter("live > 1")
            is_ambiguous = F.col("live") > 1
            totals = counts_by_key.agg(
                F.sum(F.when(is_repeated, F.col("live") + F.col("gone"))),
                F.count_if(is_ambiguous),
                F.sum(F.when(is_ambiguous, F.col("live"))),
            ).first()
            assert totals is not None
            examples = (
                ambiguous_keys.select(*map(col, model.key)).limit(key_checks.MAX_EXAMPLES).collect()
                if totals[1]
                else []
            )
        example_keys = tuple(r.asDict(recursive=True) for r in examples)
        return key_checks.RepeatedKeys(None, totals[0] or 0, totals[1], totals[2] or 0, example_keys)

    def _resolve_by_spark(self, footers: Sequence[FileSummary], target: BlockTarget) -> list[WrittenFile]:
        from pyspark.sql import functions as F

        from nova_assets.engine.read.spark_merge import ROW_COUNT, find_undecided_keys, resolve_repeated_keys
        from nova_assets.engine.rows.spark_columns import col

        assert target.model is not None
        with temporary_settings(self.session.get(), WRITE_SETTINGS):
            rows = self._read_written_rows(footers, target)
            if target.model.order_by:
                undecided_keys = find_undecided_keys(rows, target.model)
                counts = undecided_keys.agg(F.count(F.lit(1)), F.sum(ROW_COUNT)).first()
                if counts is not None and counts[0]:
                    example_rows = (
                        undecided_keys.select(*map(col, target.model.key)).limit(key_checks.MAX_EXAMPLES).collect()
                    )
                    examples = [r.asDict(recursive=True) for r in example_rows]
                    raise key_checks.undecided_keys_error(
                        target.error_label, target.model, counts[0], counts[1], examples
                    )
            resolved = resolve_repeated_keys(rows, target.model).select(*map(col, target.file_schema.names))
            return write_frame(self.session, resolved, target)


def _row_mask(row_count: int, row_indices: pa.Array) -> pa.Array:
    mask = bytearray(row_count)
    for row_index in row_indices.to_pylist():
        mask[row_index] = 1
    return pa.array(mask, pa.uint8()).cast(pa.bool_())
