"""Small reads computed in memory: what costs Spark a second and a started JVM takes some hundredths of it here.

Only where nothing has to be decided: rows that are put together (``Append``), and keys of which the last row is the one
that counts (``Upsert`` without ``order_by``). Everything else, and everything large, is Spark's.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from nova_assets.engine import arrow
from nova_assets.engine.files import Warehouse
from nova_assets.model.block import Block
from nova_assets.model.merge import Append, MergeModel, Upsert
from nova_assets.model.reads import Chain, Snapshot, sources
from nova_assets.model.schema import DELETED, Schema

MOST_ROWS = 1_000_000
MOST_BYTES = 256 * 2**20
"""Of files uncompressed."""

_KEYS = frozenset({"string", "tinyint", "smallint", "int", "bigint", "date", "boolean", "timestamp", "binary"})
"""Types of which Arrow and Spark call the same values equal."""

_PLACE = "__nova_place"


def compute(read: Snapshot | Chain, warehouse: Warehouse) -> pa.Table | None:
    """The rows of a snapshot, or of a chain as one delta; None where they are not for here.

    Raises:
        FileMissing: a file is gone, or was changed.
    """
    blocks = [b for b in sources(read) if isinstance(b, Block)]
    model, schema = read.merge, read.schema
    if schema is None or not _is_for_here(blocks, model, schema):
        return None
    files = [[pq.ParquetFile(path) for path in warehouse.paths(b.manifest.files)] for b in blocks]
    if sum(_uncompressed(f) for some in files for f in some) > MOST_BYTES:
        return None
    changes = isinstance(read, Chain)
    physical = schema.with_deleted() if model.keyed else schema
    tables = [_rows(some, physical) for some in files]
    if not model.keyed:
        return pa.concat_tables(tables) if tables else arrow.fit(pa.table({}), physical)
    if len(tables) == 1 and changes:
        return tables[0]
    last = _last_of_each_key(tables, model.key) if tables else arrow.fit(pa.table({}), physical)
    return last if changes else last.filter(pc.invert(last[DELETED])).drop_columns([DELETED])


def _is_for_here(blocks: Sequence[Block], model: MergeModel, schema: Schema) -> bool:
    plain = isinstance(model, Append) or (
        isinstance(model, Upsert) and not model.order_by and all(schema.field(k).type.name in _KEYS for k in model.key)
    )
    alike = all(
        b.manifest.format == "parquet" and b.manifest.schema == schema and b.merge.as_json() == model.as_json()
        for b in blocks
    )
    return plain and alike and sum(b.rows for b in blocks) <= MOST_ROWS


def _uncompressed(file: pq.ParquetFile) -> int:
    return sum(file.metadata.row_group(n).total_byte_size for n in range(file.num_row_groups))


def _rows(files: Sequence[pq.ParquetFile], schema: Schema) -> pa.Table:
    fitted = [arrow.fit(f.read(), schema) for f in files]
    return pa.concat_tables(fitted) if fitted else arrow.fit(pa.table({}), schema)


def _last_of_each_key(tables: Sequence[pa.Table], key: Sequence[str]) -> pa.Table:
    """The newest row of each key; of a delta that has both, the live row comes after the deletion (R11)."""
    place = pa.concat_arrays(
        [pc.add(pc.if_else(t[DELETED], 0, 1), 2 * n).combine_chunks().cast(pa.int64()) for n, t in enumerate(tables)]
    )
    rows = pa.concat_tables(tables)
    rows = rows.take(pc.sort_indices(place))
    rows = rows.append_column(_PLACE, pa.array(range(rows.num_rows), pa.int64()))
    newest = rows.select([*key, _PLACE]).group_by(list(key), use_threads=False).aggregate([(_PLACE, "max")])
    return rows.drop_columns([_PLACE]).take(newest[f"{_PLACE}_max"])
