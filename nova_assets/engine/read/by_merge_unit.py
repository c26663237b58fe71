"""Reads of blocks that are laid out, cell by cell: here, or in Spark's Python workers, with no shuffle.

Of a cell only what the read needs is opened: the row groups that may have the wanted keys, and of two snapshots only
what they do not share.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from nova_assets.engine.buckets.key_order import firsts, one_chunk, sorted_by
from nova_assets.engine.buckets.merge_unit import Cellwork, Piece, Source, content
from nova_assets.engine.buckets.reader import inside
from nova_assets.engine.buckets.row_layout import numbers
from nova_assets.engine.read.renamed_columns import names_in
from nova_assets.engine.session.session import Session
from nova_assets.engine.storage.warehouse import Warehouse
from nova_assets.model.arrow_types import arrow_type, to_arrow
from nova_assets.model.block import Block, DataFile
from nova_assets.model.block_layout import Layout
from nova_assets.model.conversion import convert
from nova_assets.model.merge import MergeModel
from nova_assets.model.reads import Chain, Diff, Snapshot
from nova_assets.model.schema import Schema
from nova_assets.plan.block_layout import Laid, laid
from nova_assets.plan.merge_units import Bucket, Side, Work, cells, compared, split
from nova_assets.plan.partition_size import buckets_for, size_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_THREADS = 4

MOST_BYTES = 512 * 2**20
"""What is put together at once has no more bytes of files, or about: it has to fit into memory several times."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """A read, taken apart.

    Args:
        schema: of the channel's rows.
        marked: whether the rows are changes, with ``_deleted``.
        bytes: of the files, or of their parts, that are opened.
    """

    pieces: tuple[Piece, ...]
    schema: Schema
    model: MergeModel
    layout: Layout
    marked: bool
    bytes: int

    @property
    def columns(self) -> Schema:
        return self.schema.with_deleted() if self.marked else self.schema


class Cellwise:
    """Takes reads apart, and puts together what is in their cells."""

    def __init__(self, session: Session, warehouse: Warehouse) -> None:
        self.session = session
        self.warehouse = warehouse

    def table(self, pieces: Pieces) -> pa.Table:
        """The rows, computed here."""
        with ThreadPoolExecutor(_THREADS) as pool:
            found = list(pool.map(lambda p: content(p, pieces.schema, pieces.model, pieces.layout), pieces.pieces))
        kind = to_arrow(pieces.columns.relaxed())
        return pa.concat_tables(t.cast(kind) for t in found) if found else kind.empty_table()

    def frame(self, pieces: Pieces) -> DataFrame:
        """The rows as a frame; each cell is computed by a task of Spark's when the frame is."""
        from nova_assets.engine.buckets.spark_jobs import content_of
        from nova_assets.engine.rows.spark_types import to_struct

        kind = to_struct(pieces.columns.relaxed())
        return content_of(
            self.session.get(), pieces.pieces, pieces.schema, pieces.model, pieces.layout, pieces.columns, kind
        )

    def of(self, read: Snapshot | Chain | Diff, wanted: pa.Table | None = None) -> Pieces | None:
        """A read in cells; None where some block is laid out otherwise, or a model folds elsewhere.

        Args:
            wanted: a table with the key's columns: their rows alone.
        """
        found = laid(read)
        if found is None:
            return None
        if isinstance(read, Diff):
            return self._compared(read, found)
        return self._put_together(read, found, wanted)

    def _put_together(self, read: Snapshot | Chain, how: Laid, wanted: pa.Table | None) -> Pieces | None:
        layout, schema = how.layout, how.schema
        bases = _blocks(read.bases) if isinstance(read, Snapshot) else ()
        deltas, keys = _blocks(read.deltas), _Wanted(wanted, layout, schema)
        works: list[Work] = []
        for partition in sorted({b.partition for b in (*bases, *deltas)}):
            base, then = ([b for b in some if b.partition == partition] for some in (bases, deltas))
            least = buckets_for(size_of(then))
            there = cells(base, then, layout, least=least)
            if there is None:
                return None
            here = [w for w in there if w.base or w.deltas]
            works += here if wanted is not None else [s for w in here for s in split(w, MOST_BYTES)]
        if wanted is None and any(w.size.bytes > 2 * MOST_BYTES for w in works):
            return None
        marked = isinstance(read, Chain)
        some = [(w, asked) for w in works if (asked := keys.of(w)) is None or asked.num_rows]
        self.check(w for w, _ in some)
        pieces = tuple(Piece(replace(self.work(w, schema), wanted=asked), marked) for w, asked in some)
        return Pieces(pieces, schema, how.model, layout, marked, sum(w.size.bytes for w, _ in some))

    def _compared(self, read: Diff, how: Laid) -> Pieces | None:
        layout, schema = how.layout, how.schema
        sides = [(_blocks(s.bases), _blocks(s.deltas)) for s in (read.old, read.new)]
        pieces: list[Piece] = []
        size = 0
        for partition in sorted({b.partition for side in sides for some in side for b in some}):
            old, new = (Side(*(tuple(b for b in some if b.partition == partition) for some in side)) for side in sides)
            found = compared(old, new, layout)
            if found is None:
                return None
            if any(a.size.bytes + b.size.bytes > 2 * MOST_BYTES for a, b in found):
                return None
            self.check(w for pair in found for w in pair)
            pieces += [Piece(self.work(b, schema), True, self.work(a, schema)) for a, b in found]
            size += sum(a.size.bytes + b.size.bytes for a, b in found)
        return Pieces(tuple(pieces), schema, how.model, layout, True, size)

    def check(self, works: Iterable[Work]) -> None:
        """See that the files of some cells are there as they were written, all side by side.

        Raises:
            FileMissing, FileAltered.
        """
        files = {f.path: f for w in works for f in (*(f for _, f in w.base), *(f for _, _, f in w.deltas))}
        self.warehouse.paths(files.values())

    def work(self, work: Work, schema: Schema) -> Cellwork:
        """A cell with the files that are opened for it, which ``check`` looks at."""
        deltas: dict[int, list[Source]] = {}
        for n, block, file in work.deltas:
            deltas.setdefault(n, []).append(self._source(block, file, schema.with_deleted()))
        base = tuple(self._source(b, f, schema) for b, f in work.base)
        return Cellwork(work.cell, base, tuple(tuple(d) for _, d in sorted(deltas.items())))

    def _source(self, block: Block, file: DataFile, schema: Schema) -> Source:
        assert file.place is not None
        return Source(self.warehouse.path(file), file.place, names_in(block, schema))


class _Wanted:
    """Keys that are looked for.

    Args:
        keys: a table with their columns; None for all keys that there are.
    """

    def __init__(self, keys: pa.Table | None, layout: Layout, schema: Schema) -> None:
        self.layout = layout
        self.types = {name: schema.field(name).type for name in layout.order}
        self.keys: pa.Table | None = None
        self._by_bucket: dict[int, list[pa.Table]] = {}
        if keys is not None:
            kind = pa.schema([(name, arrow_type(self.types[name])) for name in layout.order])
            if strange := [f.name for f in kind if not _means_same(keys.schema.field(f.name).type, f.type)]:
                raise pa.ArrowInvalid(f"keys of other types: {', '.join(strange)}")
            ordered = one_chunk(sorted_by(one_chunk(keys.select(layout.order).cast(kind).drop_null()), layout.order))
            self.keys = ordered.filter(pa.array(firsts(ordered, layout.order)))

    def of(self, work: Work) -> pa.Table | None:
        """Those that may be in a cell; None where no key is looked for but all are."""
        if self.keys is None:
            return None
        cell = work.cell
        found = self._bucket(cell) if isinstance(cell, Bucket) else inside(self.keys, cell, self.layout)
        if not found.num_rows:
            return found
        return found.filter(self._any(found, [*(f for _, f in work.base), *(f for _, _, f in work.deltas)]))

    def _bucket(self, bucket: Bucket) -> pa.Table:
        assert self.keys is not None
        if bucket.of not in self._by_bucket:
            number = numbers(self.keys, self.layout.order, bucket.of)
            places = number.argsort(kind="stable")
            ends = number[places].searchsorted(range(bucket.of), side="right").tolist()
            apart = self.keys.take(pa.array(places))
            starts = [0, *ends[:-1]]
            self._by_bucket[bucket.of] = [apart.slice(a, b - a) for a, b in zip(starts, ends, strict=True)]
        return self._by_bucket[bucket.of][bucket.number]

    def _any(self, keys: pa.Table, files: Iterable[DataFile]) -> pa.Array:
        found = pa.repeat(pa.scalar(False), keys.num_rows)
        for file in files:
            found = pc.or_(found, self._within(keys, file))
        return found

    def _within(self, keys: pa.Table, file: DataFile) -> pa.Array:
        """Which keys lie between the bounds that are known of a file."""
        found = pa.repeat(pa.scalar(True), keys.num_rows)
        for name, type_ in self.types.items():
            if name in file.ranges:
                low, high = (pa.scalar(convert(v, type_), arrow_type(type_)) for v in file.ranges[name])
                column = one_chunk(keys.select([name])).column(0).chunk(0)
                found = pc.and_(found, pc.and_(pc.greater_equal(column, low), pc.less_equal(column, high)))
        return found


def _means_same(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a cast that fails where a value does not fit keeps every value as it is."""
    same = (pa.types.is_integer, pa.types.is_timestamp, _is_text, _is_bytes)
    alike = any(of(given) and of(wanted) for of in same)
    zones = pa.types.is_timestamp(given) and pa.types.is_timestamp(wanted) and (given.tz is None) != (wanted.tz is None)
    return given == wanted or (alike and not zones)


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def _is_bytes(type_: pa.DataType) -> bool:
    return bool(pa.types.is_binary(type_) or pa.types.is_large_binary(type_))


def _blocks(sources: Sequence[object]) -> tuple[Block, ...]:
    return tuple(s for s in sources if isinstance(s, Block))
