"""Small files rolled into larger ones: of a channel that is only added to, nothing is merged, and rows are only copied.

Partition by partition, several at once, and of each no more than a row group in memory: so it may be much in all.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from nova_assets.engine import disk
from nova_assets.engine.files import Warehouse
from nova_assets.engine.memory import fitted
from nova_assets.engine.target import Target
from nova_assets.model.arrow_types import to_arrow
from nova_assets.model.block import Block
from nova_assets.model.reads import Chain, Snapshot, sources
from nova_assets.model.schema import Schema
from nova_assets.plan.way import MEMORY_BYTES

FILE_BYTES = 128 * 1024 * 1024
"""Of a file that is neither small nor unwieldy."""

_ROW_GROUP = 64 * 2**20
"""Bytes in memory."""

_AT_ONCE = min(4, os.cpu_count() or 1)


def roll(read: Snapshot | Chain, warehouse: Warehouse, target: Target) -> Mapping[str, str]:
    """Write the rows of each partition into few files. Gives name of a file -> its partition.

    Raises:
        FileMissing: a file is gone, or was changed.
    """
    parts: dict[str, list[Block]] = {}
    for block in sources(read):
        assert isinstance(block, Block)
        parts.setdefault(block.partition, []).append(block)
    one = partial(_roll, warehouse, target, target.schema.relaxed())
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        try:
            found = list(pool.map(one, range(len(parts)), parts.values()))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return {name: partition for partition, names in zip(parts, found, strict=True) for name in names}


def _roll(warehouse: Warehouse, target: Target, schema: Schema, n: int, blocks: list[Block]) -> list[str]:
    """The files of one partition."""
    columns, names = to_arrow(schema), list[str]()
    writer: pq.ParquetWriter | None = None
    size = 0
    try:
        for rows, packed in _groups(warehouse, blocks, schema):
            if writer is None:
                names.append(f"part-{uuid.uuid4().hex[:12]}-{n:05d}-{target.id}.zstd.parquet")
                writer, size = disk.writing(disk.join(target.folder, names[-1]), columns), 0
            writer.write_table(rows)
            size += packed
            if size >= FILE_BYTES:
                writer.close()
                writer = None
    finally:  # what is open still would be finished whenever it is collected, after the folder was cleaned up
        if writer is not None:
            writer.close()
    return names


def _groups(warehouse: Warehouse, blocks: list[Block], schema: Schema) -> Iterator[tuple[pa.Table, int]]:
    """The rows of some blocks, as many together as make a row group; and what they take in their files."""
    waiting: list[pa.Table] = []
    size = held = 0
    for rows, packed in _pieces(warehouse, blocks, schema):
        waiting.append(rows)
        size, held = size + packed, held + rows.nbytes
        if held >= _ROW_GROUP:
            yield pa.concat_tables(waiting).combine_chunks(), size
            waiting, size, held = [], 0, 0
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks(), size


def _pieces(warehouse: Warehouse, blocks: list[Block], schema: Schema) -> Iterator[tuple[pa.Table, int]]:
    """The rows of some blocks, a row group of theirs at a time."""
    for block in blocks:
        for path in warehouse.paths(block.manifest.files):
            with disk.opened(path) as file:
                for n in range(file.num_row_groups):
                    if file.metadata.row_group(n).total_byte_size > MEMORY_BYTES:
                        raise OverflowError(f"row group {n} of {path} is larger than it looks")
                    rows = fitted(block, file, partial(file.read_row_group, n), schema)
                    if rows.num_rows:
                        yield rows, _packed(file.metadata.row_group(n))


def _packed(group: pq.RowGroupMetaData) -> int:
    return sum(group.column(n).total_compressed_size for n in range(group.num_columns))
