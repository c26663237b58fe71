"""Batches by the width of rows: however wide they are, no batch is larger than a reader can hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nova_assets.model.block import Block, DataFile, Manifest
from nova_assets.model.merge import Append
from nova_assets.model.reads import Chain, Diff, Empty, Inserts, Read, Snapshot, Together
from nova_assets.model.schema import Schema
from nova_assets.plan.batch_size import (
    ARROW_BYTES,
    READER_BYTES,
    SPLIT_BYTES,
    Width,
    rows_within,
    spark_limits,
    widest,
    width,
    width_of_read,
)

READER = "spark.sql.parquet.columnarReaderBatchSize"
ARROW = "spark.sql.execution.arrow.maxRecordsPerBatch"
SPLIT = "spark.sql.files.maxPartitionBytes"

WIDTHS = st.builds(width, st.integers(1, 10**9), st.integers(0, 10**12), st.integers(0, 10**12))


def block(*files: DataFile) -> Block:
    return Block("b", "c", "", "delta", 0, 1, Manifest(files, Schema(())), Append())


def file(rows: int, packed: int, unpacked: int) -> DataFile:
    return DataFile("f", rows, packed, unpacked=unpacked)


@given(WIDTHS)
def test_no_batch_is_larger_than_its_limit_unless_it_is_one_row(found: Width) -> None:
    limits = spark_limits(found)
    for name, most, usual in ((READER, READER_BYTES, 4096), (ARROW, ARROW_BYTES, 10_000)):
        rows = limits.get(name, usual)
        assert 1 <= rows <= usual and (rows == 1 or rows * found.row <= most * 2)
    if limits:
        assert limits[SPLIT] <= SPLIT_BYTES


@given(st.lists(WIDTHS, max_size=5))
def test_what_suits_the_widest_suits_all(some: list[Width]) -> None:
    together = spark_limits(widest(some))
    for one in some:
        for name, limit in spark_limits(one).items():
            assert name == SPLIT or together[name] <= limit


def test_narrow_rows_leave_spark_as_it_is() -> None:
    assert spark_limits(width(1_000_000, 30_000_000, 100_000_000)) == {}
    assert spark_limits(Width()) == {}


def test_what_a_manifest_does_not_say_is_guessed_from_the_packed_bytes() -> None:
    assert width(10, 10_000, 0).row == 16_000 and width(10, 10_000, 50_000).row == 5_000


def test_the_widest_file_of_any_block_of_a_read_counts() -> None:
    narrow, wide = block(file(1000, 1000, 10_000)), block(file(1000, 1000, 10_000), file(10, 1000, 1_000_000))
    before, after = (
        Snapshot("c", 1, (narrow,), (), Schema(()), Append()),
        Snapshot("c", 2, (narrow,), (wide,), Schema(()), Append()),
    )
    chain = Chain("c", 1, 2, (wide,), Schema(()), Append())
    reads: list[Read] = [
        after,
        Inserts(after),
        chain,
        Diff(before, after),
        Together("c", (chain, Diff(before, before))),
    ]
    assert [width_of_read(read).row for read in reads] == [100_000] * 5
    assert width_of_read(before).row == 10
    assert width_of_read(Empty("c", Schema(()), Append(), change=True)) == Width()


@pytest.mark.parametrize(("size", "row", "rows"), [(100, 30, 3), (100, 1000, 1), (100, 0, 50)])
def test_one_row_at_least(size: int, row: int, rows: int) -> None:
    assert rows_within(size, row, 50) == rows
