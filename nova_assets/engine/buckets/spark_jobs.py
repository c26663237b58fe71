"""Spark jobs that run the tasks of ``spark_worker`` and return their results to the driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from nova_assets.engine.buckets.file_writer import FileTarget, WrittenFile
from nova_assets.engine.buckets.merge_unit import MergeUnitRead, MergeUnitTask
from nova_assets.engine.buckets.spark_worker import (
    decode_written_files,
    merge_units_job,
    read_units_job,
    worker_probe_job,
    write_sorted_runs_job,
)
from nova_assets.model.key_layout import KeyLayout
from nova_assets.model.merge import MergeModel
from nova_assets.model.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

ARROW_BATCH_SETTINGS: Mapping[str, int] = {
    # Maximum number of rows per batch sent to Python, unless rows are wide. Each batch has a small overhead.
    "spark.sql.execution.arrow.maxRecordsPerBatch": 65536,
}
"""Settings for sending rows to Python."""

_RESULT_SCHEMA = "written string"


def write_sorted_runs_by_spark(frame: DataFrame, target: FileTarget) -> list[WrittenFile]:
    """Write a frame as runs. Each task writes its own rows, without a shuffle."""
    rows = frame.mapInArrow(write_sorted_runs_job(target), _RESULT_SCHEMA).collect()
    return [w for _, files in decode_written_files(r[0] for r in rows) for w in files or ()]


def rewrite_changed_units_by_spark(
    spark: SparkSession, tasks: Sequence[MergeUnitTask], schema: Schema, model: MergeModel, target: FileTarget
) -> list[list[WrittenFile] | None]:
    """Merge units, one Spark task for each. Returns the written files of each unit; None for a unit whose base files
    stay."""
    job = merge_units_job(tasks, schema, model, target)
    rows = spark.range(0, len(tasks), 1, max(1, len(tasks))).mapInArrow(job, _RESULT_SCHEMA).collect()
    files_by_task = dict(decode_written_files(r[0] for r in rows))
    return [files_by_task[n] for n in range(len(tasks))]


def read_units_by_spark(
    spark: SparkSession,
    unit_reads: Sequence[MergeUnitRead],
    schema: Schema,
    model: MergeModel,
    layout: KeyLayout,
    row_schema: Schema,
    spark_schema: StructType,
) -> DataFrame:
    """Rows of some merge units as a frame, one Spark task for each unit.

    Args:
        row_schema: schema of the rows.
        spark_schema: the same schema as a Spark type.
    """
    job = read_units_job(unit_reads, schema, model, layout, row_schema)
    return spark.range(0, len(unit_reads), 1, max(1, len(unit_reads))).mapInArrow(job, spark_schema)


def can_workers_run_nova(spark: SparkSession) -> bool:
    """Whether Python workers can import and run the code of this package."""
    rows = spark.range(0, 1, 1, 1).mapInArrow(worker_probe_job, "known boolean").collect()
    return bool(rows[0][0])
