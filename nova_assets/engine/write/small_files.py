"""Small files rolled into larger ones: of a channel that is only added to, nothing is merged, and rows are only copied.

Partition by partition, several at once, and of each no more than a row group in memory: so it may be much in all.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import pyarrow as pa

from nova_assets.engine.buckets.bucket_files import (
    FILE_BYTES,
    PLAIN_GROUP_BYTES,
    Target,
    Written,
    check_count,
    write_plain,
)
from nova_assets.engine.read.in_memory import fitted
from nova_assets.engine.storage.integrity import open_block_file
from nova_assets.engine.storage.warehouse import Warehouse
from nova_assets.model.block import Block
from nova_assets.model.reads import Chain, Snapshot, sources
from nova_assets.model.schema import Schema
from nova_assets.plan.read_strategy import MEMORY_BYTES

_ROW_GROUP = PLAIN_GROUP_BYTES

_AT_ONCE = min(4, os.cpu_count() or 1)


def roll(read: Snapshot | Chain, warehouse: Warehouse, schema: Schema, target: Target) -> list[Written]:
    """Write the rows of each partition into few files.

    Args:
        schema: of the block that is written.

    Raises:
        FileMissing: a file is gone, or was changed.
        WarehouseUnavailable: the files do not hold the rows of the blocks.
    """
    parts: dict[str, list[Block]] = {}
    for block in sources(read):
        assert isinstance(block, Block)
        parts.setdefault(block.partition, []).append(block)
    one = partial(_roll, warehouse, schema.relaxed(), replace(target, dimensions=()))  # partitions are known
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        try:
            found = list(pool.map(one, range(len(parts)), parts, parts.values()))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return [written for some in found for written in some]


def _roll(
    warehouse: Warehouse, schema: Schema, target: Target, n: int, partition: str, blocks: list[Block]
) -> list[Written]:
    """The files of one partition."""
    groups = _groups(warehouse, blocks, schema)
    written = list(write_plain(groups, target, FILE_BYTES, f"-{n:05d}"))
    check_count(written, sum(b.rows for b in blocks), target.where)
    return [replace(w, partitions=(partition,)) for w in written]


def _groups(warehouse: Warehouse, blocks: list[Block], schema: Schema) -> Iterator[pa.Table]:
    """The rows of some blocks, as many together as make a row group."""
    waiting: list[pa.Table] = []
    held = 0
    for rows in _pieces(warehouse, blocks, schema):
        waiting.append(rows)
        held += rows.nbytes
        if held >= _ROW_GROUP:
            yield pa.concat_tables(waiting).combine_chunks()
            waiting, held = [], 0
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()


def _pieces(warehouse: Warehouse, blocks: list[Block], schema: Schema) -> Iterator[pa.Table]:
    """The rows of some blocks, a row group of theirs at a time."""
    warehouse.paths([f for b in blocks for f in b.manifest.files], here=True)  # side by side
    for block in blocks:
        for path in map(warehouse.path, block.manifest.files):
            with open_block_file(path) as file:
                for n in range(file.num_row_groups):
                    if file.metadata.row_group(n).total_byte_size > MEMORY_BYTES:
                        raise OverflowError(f"row group {n} of {path} is larger than it looks")
                    rows = fitted(block, file, partial(file.read_row_group, n), schema)
                    if rows.num_rows:
                        yield rows
