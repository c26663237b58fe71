"""What is in a cell: the rows of its files, put together. Arrow alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from nova_assets.engine.buckets import merge
from nova_assets.engine.buckets.diff import diff
from nova_assets.engine.buckets.key_order import one_chunk
from nova_assets.engine.buckets.reader import rows_of
from nova_assets.engine.buckets.row_layout import arranged
from nova_assets.formats import schema_fit
from nova_assets.model.arrow_types import to_arrow
from nova_assets.model.block_layout import Layout, Place
from nova_assets.model.merge import MergeModel
from nova_assets.model.schema import Schema
from nova_assets.plan.merge_units import Cell


@dataclass(frozen=True, slots=True)
class Source:
    """A file of which a cell's rows are read.

    Args:
        names: what the file calls each column of the schema; None for those that it lacks.
    """

    path: str
    place: Place
    names: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Cellwork:
    """One cell: what is there, and what comes on top.

    Args:
        into: where it is written: the buckets that the outcome is cut into, or the most rows of a file of a range.
        anew: it is written, also where no change is in it.
        wanted: the keys of the cell that matter, sorted and each once; None for all.
    """

    cell: Cell
    base: tuple[Source, ...]
    deltas: tuple[tuple[Source, ...], ...]
    into: int = 1
    anew: bool = False
    wanted: pa.Table | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """What a read wants of one cell.

    Args:
        work: what is there.
        changes: not the rows themselves, but what the deltas change; or, where there is a ``before``, what turns that
            into this.
    """

    work: Cellwork
    changes: bool = False
    before: Cellwork | None = None


def content(piece: Piece, schema: Schema, model: MergeModel, layout: Layout) -> pa.Table:
    """The rows that a read wants of one cell."""
    if piece.before is not None:
        old, new = (snapshot_in(w, schema, model, layout) for w in (piece.before, piece.work))
        return diff(old, new, model, layout)
    if piece.changes:
        return changes_in(piece.work, schema, model, layout)
    return snapshot_in(piece.work, schema, model, layout)


def snapshot_in(work: Cellwork, schema: Schema, model: MergeModel, layout: Layout) -> pa.Table:
    """The rows of a snapshot in a cell, sorted."""
    return merged(work, changes_in(work, schema, model, layout), schema, model, layout)


def merged(work: Cellwork, changes: pa.Table, schema: Schema, model: MergeModel, layout: Layout) -> pa.Table:
    """The base of a cell with changes on top."""
    if not work.base:
        return merge.live(changes).cast(to_arrow(schema.relaxed()))
    base = _together(work.base, work, schema, layout)
    return merge.merge(base, changes, model, layout.order) if changes.num_rows else base


def changes_in(work: Cellwork, schema: Schema, model: MergeModel, layout: Layout) -> pa.Table:
    """What all deltas together change in a cell."""
    marked = schema.with_deleted()
    each = [_together(delta, work, marked, layout) for delta in work.deltas]
    return merge.fold(each, model, layout.order) if each else schema_fit.fit(pa.table({}), marked.relaxed())


def _together(sources: Sequence[Source], work: Cellwork, schema: Schema, layout: Layout) -> pa.Table:
    """The rows of one block in a cell, sorted."""
    names, relaxed = schema.names, schema.relaxed()  # a file may be older than a column that may not be null
    tables = []
    for source in sources:
        found = {own: name for name, own in zip(names, source.names, strict=True) if own is not None}
        rows = rows_of(source.path, source.place, work.cell, layout, list(found), work.wanted)
        tables.append(schema_fit.fit(rows.rename_columns([found[c] for c in rows.column_names]), relaxed))
    rows = one_chunk(pa.concat_tables(tables))
    return arranged(rows, layout)[0]
