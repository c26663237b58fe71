"""Decodes rows of blocks and files into model objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from sqlalchemy import Connection, RowMapping, Select, select

from nova_assets.catalog.database.transactions import batched
from nova_assets.catalog.tables import blocks, files
from nova_assets.model.block import Block, DataFile, Manifest
from nova_assets.model.file_source import ExternalFolder
from nova_assets.model.key_layout import KeyLayout, key_placement_from_json
from nova_assets.model.merge import MergeModel
from nova_assets.model.schema import Schema

T = TypeVar("T")

_BLOCKS_PER_QUERY = 500
"""Maximum number of blocks whose files one statement loads."""


def read_blocks(c: Connection, query: Select[Any]) -> list[Block]:
    """Blocks with their files, sorted by (hi, kind, id)."""
    return load_blocks_with_files(
        c, c.execute(query.order_by(blocks.c.hi, blocks.c.kind, blocks.c.id)).mappings().all()
    )


def load_blocks_with_files(c: Connection, rows: Sequence[RowMapping]) -> list[Block]:
    """Blocks of the given rows, with their files."""
    by_block: dict[str, list[DataFile]] = {}
    ids = [r["id"] for r in rows]
    for batch in batched(ids, _BLOCKS_PER_QUERY):
        query = select(files).where(files.c.block_id.in_(batch)).order_by(files.c.block_id, files.c.ordinal)
        for f in c.execute(query).mappings():
            by_block.setdefault(f["block_id"], []).append(_data_file_from_row(f))
    schema, merge = _LastValueCache(Schema.from_json), _LastValueCache(MergeModel.from_json)
    return [_block_from_row(r, by_block.get(r["id"], ()), schema(r["schema"]), merge(r["merge"])) for r in rows]


class _LastValueCache(Generic[T]):
    """Decoder that reuses its last result for an equal input. Most blocks of a channel have the same schema."""

    def __init__(self, decode: Callable[[Any], T]) -> None:
        self._decode = decode
        self._last: tuple[Any, T] | None = None

    def __call__(self, encoded: Any) -> T:
        if self._last is None or self._last[0] != encoded:
            self._last = (encoded, self._decode(encoded))
        return self._last[1]


def _data_file_from_row(row: RowMapping) -> DataFile:
    ranges = {k: (v[0], v[1]) for k, v in row["ranges"].items()}
    return DataFile(
        row["path"],
        row["rows"],
        row["bytes"],
        ranges,
        key_placement_from_json(row["place"]),
        digest=row["digest"] or "",
        footer_digest=row["footer_digest"] or "",
        uncompressed_bytes=row["unpacked"] or 0,
    )


def _block_from_row(row: RowMapping, data_files: Iterable[DataFile], schema: Schema, merge: MergeModel) -> Block:
    layout = None if row["layout"] is None else KeyLayout.from_json(row["layout"])
    outside = None if row["outside"] is None else ExternalFolder.from_json(row["outside"])
    manifest_fields = (row["deletes"], row["format"], row["keeps_all"], layout, outside)
    manifest = Manifest(tuple(data_files), schema, *manifest_fields)
    return Block(
        row["id"],
        row["channel"],
        row["partition"],
        row["kind"],
        row["lo"],
        row["hi"],
        manifest,
        merge,
        row["origin"],
        row["commit_id"],
        None if row["channel_merge"] is None else MergeModel.from_json(row["channel_merge"]),
    )
