"""Runs of wide rows: few rows, in many buckets, so that a merge reads no more than a cell's share of each run."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from nova_assets.engine.buckets import spark_jobs
from nova_assets.engine.buckets.file_writer import MIN_ROW_GROUP_BYTES, FileTarget
from nova_assets.model.key_layout import HashBuckets, KeyLayout

LAYOUT = KeyLayout(("id",), ("bigint",))


def test_a_run_of_wide_rows_has_many_buckets_and_row_groups(tmp_path: Path) -> None:
    rows = pa.table({"id": range(200), "page": [os.urandom(100_000) for _ in range(200)]})
    target = FileTarget(str(tmp_path), "b", rows.schema, LAYOUT, allows_delete_and_live=False)
    [run] = spark_jobs.write_sorted_runs(rows, target)
    assert isinstance(run.key_placement, HashBuckets) and run.key_placement.bucket_count == 8, (
        "of 20 MB, at least 2 MiB each"
    )
    metadata = pq.ParquetFile(run.path).metadata
    groups = [metadata.row_group(n).num_rows * 100_000 for n in range(metadata.num_row_groups)]
    assert len(groups) >= 4 and max(groups) < 4 * MIN_ROW_GROUP_BYTES


def test_narrow_rows_are_many_in_a_bucket() -> None:
    assert [spark_jobs.bucket_count_of_sorted_run(rows, rows * 24) for rows in (1, 16_000, 33_000, 70_000)] == [
        1,
        1,
        2,
        4,
    ]


def test_a_bucket_has_at_least_a_row() -> None:
    assert (
        spark_jobs.bucket_count_of_sorted_run(3, 100 * 2**20) == 2
        and spark_jobs.bucket_count_of_sorted_run(1, 2**30) == 1
    )
