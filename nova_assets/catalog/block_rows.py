"""Rows of blocks and files, as what the model knows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from sqlalchemy import Connection, RowMapping, Select, select

from nova_assets.catalog.database import batched
from nova_assets.catalog.tables import blocks, files
from nova_assets.model.block import Block, DataFile, Manifest
from nova_assets.model.block_layout import Layout, place_from_json
from nova_assets.model.external_files import Outside
from nova_assets.model.merge import MergeModel, model_from_json
from nova_assets.model.schema import Schema

T = TypeVar("T")

_AT_ONCE = 500
"""Blocks whose files are asked for in one statement."""


def read_blocks(c: Connection, query: Select[Any]) -> list[Block]:
    """Blocks with their files, by (hi, kind)."""
    return with_files(c, c.execute(query.order_by(blocks.c.hi, blocks.c.kind, blocks.c.id)).mappings().all())


def with_files(c: Connection, rows: Sequence[RowMapping]) -> list[Block]:
    """The blocks that these rows are of, with their files."""
    by_block: dict[str, list[DataFile]] = {}
    ids = [r["id"] for r in rows]
    for some in batched(ids, _AT_ONCE):
        query = select(files).where(files.c.block_id.in_(some)).order_by(files.c.block_id, files.c.ordinal)
        for f in c.execute(query).mappings():
            by_block.setdefault(f["block_id"], []).append(_file(f))
    schema, merge = _Repeated(Schema.from_json), _Repeated(model_from_json)
    return [_block(r, by_block.get(r["id"], ()), schema(r["schema"]), merge(r["merge"])) for r in rows]


class _Repeated(Generic[T]):
    """Makes what is described as it was last time only once: most blocks of a channel have the same schema."""

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self._last: tuple[Any, T] | None = None

    def __call__(self, given: Any) -> T:
        if self._last is None or self._last[0] != given:
            self._last = (given, self._make(given))
        return self._last[1]


def _file(row: RowMapping) -> DataFile:
    ranges = {k: (v[0], v[1]) for k, v in row["ranges"].items()}
    return DataFile(
        row["path"],
        row["rows"],
        row["bytes"],
        ranges,
        place_from_json(row["place"]),
        digest=row["digest"] or "",
        footer_digest=row["footer_digest"] or "",
        unpacked=row["unpacked"] or 0,
    )


def _block(row: RowMapping, found: Iterable[DataFile], schema: Schema, merge: MergeModel) -> Block:
    layout = None if row["layout"] is None else Layout.from_json(row["layout"])
    outside = None if row["outside"] is None else Outside.from_json(row["outside"])
    of = (row["deletes"], row["format"], row["keeps_all"], layout, outside)
    manifest = Manifest(tuple(found), schema, *of)
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
    )
