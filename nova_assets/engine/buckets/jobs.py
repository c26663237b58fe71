"""The same as jobs of Spark: what its Python workers wrote, for the driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from nova_assets.engine.buckets.files import Written
from nova_assets.engine.buckets.worker import Cellwork, Target, heard, merging, running
from nova_assets.model.merge import MergeModel
from nova_assets.model.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SENDING: Mapping[str, str] = {
    # Rows travel to Python in pieces of so many; each piece costs a little.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
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
