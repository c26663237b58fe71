"""The same as jobs of Spark: what its Python workers wrote, for the driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from nova_assets.engine.buckets.bucket_files import FileTarget, WrittenFile
from nova_assets.engine.buckets.merge_unit import MergeUnitRead, MergeUnitTask
from nova_assets.engine.buckets.spark_worker import (
    decode_written_files,
    merge_units_job,
    read_units_job,
    worker_probe_job,
    write_runs_job,
)
from nova_assets.model.block_layout import KeyLayout
from nova_assets.model.merge import MergeModel
from nova_assets.model.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

ARROW_BATCH_SETTINGS: Mapping[str, int] = {
    # Rows travel to Python in pieces of so many, unless they are wide; each piece costs a little.
    "spark.sql.execution.arrow.maxRecordsPerBatch": 65536,
}
"""Settings under which rows are sent to Python."""

_RESULT_SCHEMA = "written string"


def write_runs_by_spark(frame: DataFrame, target: FileTarget) -> list[WrittenFile]:
    """Write a frame where its rows are computed, with no shuffle: each task lays out its own."""
    rows = frame.mapInArrow(write_runs_job(target), _RESULT_SCHEMA).collect()
    return [w for _, files in decode_written_files(r[0] for r in rows) for w in files or ()]


def merge_units_by_spark(
    spark: SparkSession, tasks: Sequence[MergeUnitTask], schema: Schema, model: MergeModel, target: FileTarget
) -> list[list[WrittenFile] | None]:
    """Merge cells, each in a task of its own. Gives what was written of each; None where its files stay."""
    job = merge_units_job(tasks, schema, model, target)
    rows = spark.range(0, len(tasks), 1, max(1, len(tasks))).mapInArrow(job, _RESULT_SCHEMA).collect()
    found = dict(decode_written_files(r[0] for r in rows))
    return [found[n] for n in range(len(tasks))]


def read_units_by_spark(
    spark: SparkSession,
    unit_reads: Sequence[MergeUnitRead],
    schema: Schema,
    model: MergeModel,
    layout: KeyLayout,
    row_schema: Schema,
    spark_schema: StructType,
) -> DataFrame:
    """The rows of some cells as a frame, each cell by a task of its own.

    Args:
        row_schema: of the rows.
        spark_schema: the same as Spark has it.
    """
    job = read_units_job(unit_reads, schema, model, layout, row_schema)
    return spark.range(0, len(unit_reads), 1, max(1, len(unit_reads))).mapInArrow(job, spark_schema)


def can_workers_run_nova(spark: SparkSession) -> bool:
    """Whether Python workers can load what they would have to run."""
    rows = spark.range(0, 1, 1, 1).mapInArrow(worker_probe_job, "known boolean").collect()
    return bool(rows[0][0])
