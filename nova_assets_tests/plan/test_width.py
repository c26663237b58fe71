"""Batches by the width of rows: however wide they are, no batch is larger than a reader can hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nova_assets.model.block import Block, DataFile, Manifest
from nova_assets.model.merge import Append
from nova_assets.model.reads import ChangeUnion, DeltaChain, EmptyRead, Read, Snapshot, SnapshotAsInserts, SnapshotDiff
from nova_assets.model.schema import Schema
from nova_assets.plan.batch_size import (
    ARROW_BATCH_BYTES,
    READER_BATCH_BYTES,
    SPLIT_BYTES,
    RowWidth,
    row_width,
    row_width_of_read,
    rows_per_batch,
    spark_batch_settings,
    widest_row_width,
)

READER = "spark.sql.parquet.columnarReaderBatchSize"
ARROW = "spark.sql.execution.arrow.maxRecordsPerBatch"
SPLIT = "spark.sql.files.maxPartitionBytes"

WIDTHS = st.builds(row_width, st.integers(1, 10**9), st.integers(0, 10**12), st.integers(0, 10**12))


def block(*files: DataFile) -> Block:
    return Block("b", "c", "", "delta", 0, 1, Manifest(files, Schema(())), Append())


def file(rows: int, packed: int, unpacked: int) -> DataFile:
    return DataFile("f", rows, packed, uncompressed_bytes=unpacked)


@given(WIDTHS)
def test_no_batch_is_larger_than_its_limit_unless_it_is_one_row(found: RowWidth) -> None:
    limits = spark_batch_settings(found)
    for name, most, usual in ((READER, READER_BATCH_BYTES, 4096), (ARROW, ARROW_BATCH_BYTES, 10_000)):
        rows = limits.get(name, usual)
        assert 1 <= rows <= usual and (rows == 1 or rows * found.row_bytes <= most * 2)
    if limits:
        assert limits[SPLIT] <= SPLIT_BYTES


@given(st.lists(WIDTHS, max_size=5))
def test_what_suits_the_widest_suits_all(some: list[RowWidth]) -> None:
    together = spark_batch_settings(widest_row_width(some))
    for one in some:
        for name, limit in spark_batch_settings(one).items():
            assert name == SPLIT or together[name] <= limit


def test_narrow_rows_leave_spark_as_it_is() -> None:
    assert spark_batch_settings(row_width(1_000_000, 30_000_000, 100_000_000)) == {}
    assert spark_batch_settings(RowWidth()) == {}


def test_what_a_manifest_does_not_say_is_guessed_from_the_packed_bytes() -> None:
    assert row_width(10, 10_000, 0).row_bytes == 16_000 and row_width(10, 10_000, 50_000).row_bytes == 5_000


def test_the_widest_file_of_any_block_of_a_read_counts() -> None:
    narrow, wide = block(file(1000, 1000, 10_000)), block(file(1000, 1000, 10_000), file(10, 1000, 1_000_000))
    before, after = (
        Snapshot("c", 1, (narrow,), (), Schema(()), Append()),
        Snapshot("c", 2, (narrow,), (wide,), Schema(()), Append()),
    )
    chain = DeltaChain("c", 1, 2, (wide,), Schema(()), Append())
    reads: list[Read] = [
        after,
        SnapshotAsInserts(after),
        chain,
        SnapshotDiff(before, after),
        ChangeUnion("c", (chain, SnapshotDiff(before, before))),
    ]
    assert [row_width_of_read(read).row_bytes for read in reads] == [100_000] * 5
    assert row_width_of_read(before).row_bytes == 10
    assert row_width_of_read(EmptyRead("c", Schema(()), Append(), is_change=True)) == RowWidth()


@pytest.mark.parametrize(("size", "row", "rows"), [(100, 30, 3), (100, 1000, 1), (100, 0, 50)])
def test_one_row_at_least(size: int, row: int, rows: int) -> None:
    assert rows_per_batch(size, row, 50) == rows
