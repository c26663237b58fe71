"""The same as jobs of Spark: what its Python workers wrote, for the driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from nova_assets.engine.buckets.bucket_files import Target, Written
from nova_assets.engine.buckets.merge_unit import Cellwork, Piece
from nova_assets.engine.buckets.spark_worker import answering, giving, heard, merging, running
from nova_assets.model.block_layout import Layout
from nova_assets.model.merge import MergeModel
from nova_assets.model.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

SENDING: Mapping[str, int] = {
    # Rows travel to Python in pieces of so many, unless they are wide; each piece costs a little.
    "spark.sql.execution.arrow.maxRecordsPerBatch": 65536,
}
"""Settings under which rows are sent to Python."""

_ROWS = "written string"


def write_runs(frame: DataFrame, target: Target) -> list[Written]:
    """Write a frame where its rows are computed, with no shuffle: each task lays out its own."""
    rows = frame.mapInArrow(running(target), _ROWS).collect()
    return [w for _, files in heard(r[0] for r in rows) for w in files or ()]


def merge_cells(
    spark: SparkSession, works: Sequence[Cellwork], schema: Schema, model: MergeModel, target: Target
) -> list[list[Written] | None]:
    """Merge cells, each in a task of its own. Gives what was written of each; None where its files stay."""
    job = merging(works, schema, model, target)
    rows = spark.range(0, len(works), 1, max(1, len(works))).mapInArrow(job, _ROWS).collect()
    found = dict(heard(r[0] for r in rows))
    return [found[n] for n in range(len(works))]


def content_of(
    spark: SparkSession,
    pieces: Sequence[Piece],
    schema: Schema,
    model: MergeModel,
    layout: Layout,
    columns: Schema,
    kind: StructType,
) -> DataFrame:
    """The rows of some cells as a frame, each cell by a task of its own.

    Args:
        columns: of the rows.
        kind: the same as Spark has it.
    """
    job = giving(pieces, schema, model, layout, columns)
    return spark.range(0, len(pieces), 1, max(1, len(pieces))).mapInArrow(job, kind)


def workers_answer(spark: SparkSession) -> bool:
    """Whether Python workers can load what they would have to run."""
    rows = spark.range(0, 1, 1, 1).mapInArrow(answering, "known boolean").collect()
    return bool(rows[0][0])
