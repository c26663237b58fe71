"""Small files of an append-only channel combined into larger files. Rows are only copied, not merged.

Several partitions are processed concurrently. Each one needs memory for one row group only, so the total size is
unlimited.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import pyarrow as pa

from nova_assets.engine.buckets.file_writer import (
    TARGET_FILE_BYTES,
    UNSORTED_ROW_GROUP_BYTES,
    FileTarget,
    WrittenFile,
    check_row_count,
    write_unsorted_files,
)
from nova_assets.engine.read.in_memory import read_fitted_rows
from nova_assets.engine.storage.integrity import open_block_file
from nova_assets.engine.storage.warehouse import Warehouse
from nova_assets.model.block import Block
from nova_assets.model.reads import DeltaChain, Snapshot, source_blocks
from nova_assets.model.schema import Schema
from nova_assets.plan.read_strategy import MEMORY_BYTES

_ROW_GROUP = UNSORTED_ROW_GROUP_BYTES

_AT_ONCE = min(4, os.cpu_count() or 1)


def combine_small_files(
    read: Snapshot | DeltaChain, warehouse: Warehouse, schema: Schema, target: FileTarget
) -> list[WrittenFile]:
    """Rewrite the rows of each partition into few files.

    Args:
        read: rows to rewrite.
        schema: schema of the new block.
        target: where to write the files.

    Raises:
        FileMissing: a file is missing or was changed.
        WarehouseUnavailable: the row count of the new files differs from that of the blocks.
    """
    blocks_by_partition: dict[str, list[Block]] = {}
    for block in source_blocks(read):
        assert isinstance(block, Block)
        blocks_by_partition.setdefault(block.partition, []).append(block)
    rewrite_partition = partial(
        _combine_partition_files, warehouse, schema.with_all_nullable(), replace(target, dimensions=())
    )  # the partition of each file is known already
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        try:
            files_by_partition = list(
                pool.map(
                    rewrite_partition,
                    range(len(blocks_by_partition)),
                    blocks_by_partition,
                    blocks_by_partition.values(),
                )
            )
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return [written for files in files_by_partition for written in files]


def _combine_partition_files(
    warehouse: Warehouse, schema: Schema, target: FileTarget, partition_index: int, partition: str, blocks: list[Block]
) -> list[WrittenFile]:
    groups = _combine_into_row_groups(warehouse, blocks, schema)
    written = list(write_unsorted_files(groups, target, TARGET_FILE_BYTES, f"-{partition_index:05d}"))
    check_row_count(written, sum(b.rows for b in blocks), target.error_label)
    return [replace(w, partitions=(partition,)) for w in written]


def _combine_into_row_groups(warehouse: Warehouse, blocks: list[Block], schema: Schema) -> Iterator[pa.Table]:
    """Rows of the given blocks, combined into tables of the size of a row group."""
    pending: list[pa.Table] = []
    pending_bytes = 0
    for rows in _read_row_groups(warehouse, blocks, schema):
        pending.append(rows)
        pending_bytes += rows.nbytes
        if pending_bytes >= _ROW_GROUP:
            yield pa.concat_tables(pending).combine_chunks()
            pending, pending_bytes = [], 0
    if pending:
        yield pa.concat_tables(pending).combine_chunks()


def _read_row_groups(warehouse: Warehouse, blocks: list[Block], schema: Schema) -> Iterator[pa.Table]:
    """Rows of the given blocks, one row group of the source files at a time."""
    warehouse.verified_addresses([f for b in blocks for f in b.manifest.files], prefetch=True)  # concurrently
    for block in blocks:
        for path in map(warehouse.file_address, block.manifest.files):
            with open_block_file(path) as file:
                for n in range(file.num_row_groups):
                    if file.metadata.row_group(n).total_byte_size > MEMORY_BYTES:
                        raise OverflowError(f"row group {n} of {path} is larger than it looks")
                    rows = read_fitted_rows(block, file, partial(file.read_row_group, n), schema)
                    if rows.num_rows:
                        yield rows
