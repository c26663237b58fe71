"""Reads as streams, for tables that are larger than memory: by row groups, by cells, or partition by partition.

While it waits for whoever reads it, a stream has no file open, so it can be left at any time. Spark takes part only
where nothing else knows how rows are put together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

import pyarrow as pa
import pyarrow.parquet as pq

from nova_assets.engine.buckets.merge_unit import content
from nova_assets.engine.read.by_merge_unit import Pieces
from nova_assets.engine.read.in_memory import fitted
from nova_assets.engine.read.strategies import Ways, as_inserts
from nova_assets.engine.storage import external_files
from nova_assets.engine.storage.external_rows import foreign
from nova_assets.engine.storage.integrity import footer_of_block_file, open_block_file
from nova_assets.errors import FileMissing
from nova_assets.formats import record_batches
from nova_assets.model.arrow_types import to_arrow
from nova_assets.model.block import Block, DataFile
from nova_assets.model.engine import Engine
from nova_assets.model.reads import (
    Chain,
    Diff,
    Empty,
    Inserts,
    Port,
    Read,
    Snapshot,
    Together,
    is_empty,
    model_of,
    sources,
)
from nova_assets.model.schema import DELETED, Schema
from nova_assets.plan.block_layout import apart
from nova_assets.plan.partial_reads import PORTION_BYTES, columns_of, merges_nothing, narrowed, portions

Tables = Iterator[pa.Table]


class Streaming:
    """Carries out reads a piece at a time.

    Args:
        engine: carries out what can only be had at once.
    """

    def __init__(self, engine: Engine, ways: Ways) -> None:
        self.engine = engine
        self.ways = ways
        self.warehouse = ways.warehouse

    def reader(self, read: Read, columns: Sequence[str] | None) -> pa.RecordBatchReader:
        """The rows of a read, in some of its columns.

        Raises:
            FileMissing: a file is gone, or was changed; by the reader, too, where one goes while it is used.
            SchemaMismatch: there is no such column.
        """
        known = columns_of(read)
        if known is None:
            return self._unknown(read, columns)
        schema = to_arrow(known.relaxed())
        wanted = schema if columns is None else self.engine.select(schema.empty_table(), columns).schema
        tables = self._tables(read, known.select(n for n in known.names if n in wanted.names))
        return record_batches.reader(wanted, _while_there(tables))

    def _unknown(self, read: Read, columns: Sequence[str] | None) -> pa.RecordBatchReader:
        """Of a read whose columns only its frame tells."""
        frame = self.engine.fetch(read)
        frame = frame if columns is None else self.engine.select(frame, columns)
        schema = frame.schema if isinstance(frame, pa.Table) else to_arrow(self.engine.schema_of(frame))
        return record_batches.reader(schema, map(self.engine.to_arrow, iter([frame])))

    def _tables(self, read: Read, columns: Schema) -> Tables:
        """The rows of a read, with the columns that are asked for and maybe others. Files are seen to be there now,
        before the first row is given; Spark sees to its own."""
        if isinstance(read, Empty | Port):
            return iter(())
        if isinstance(read, Inserts):
            rows = self._tables(read.snapshot, columns.without(DELETED))
            return map(as_inserts, rows) if DELETED in columns else rows
        if isinstance(read, Together):
            return chain.from_iterable([self._tables(p, columns) for p in read.parts])
        if self.ways.forced == "frame":
            return self._at_once([read])
        if merges_nothing(read):
            assert not isinstance(read, Diff)
            return self._as_it_is(read, columns)
        return self._put_together(narrowed(read, columns.names), columns)

    def _put_together(self, read: Snapshot | Chain | Diff, columns: Schema) -> Tables:
        """Cell by cell; files of a base that nothing changes are read as they are."""
        bare, rest = apart(read) if isinstance(read, Snapshot) else (None, read)
        found = iter(()) if bare is None else self._as_it_is(bare, columns)
        if is_empty(rest):
            return found
        pieces = self.ways.cellwise.of(rest)
        return chain(found, self._at_once(portions(rest)) if pieces is None else _in_cells(pieces))

    def _as_it_is(self, read: Snapshot | Chain, columns: Schema) -> Tables:
        """File by file: nothing is put together."""
        ours, theirs, others = list[Block](), list[Block](), list[Block]()
        for block in sources(read):
            assert isinstance(block, Block), "a read is resolved before it is carried out"
            of = others if block.manifest.format != "parquet" else ours if block.manifest.outside is None else theirs
            of.append(block)
        listed = [(b, f) for b in ours for f in b.manifest.files]
        paths = self.warehouse.paths([f for _, f in listed], here=True)
        there = [(b, f, p) for b in theirs for f, p in _outside(b)]
        return chain(
            _groups([(b, p) for (b, _), p in zip(listed, paths, strict=True)], columns.relaxed()),
            self._foreign(there, read, columns),
            self._at_once(portions(_rows(others, read, columns))) if others else (),
        )

    def _foreign(self, files: Sequence[tuple[Block, DataFile, str]], read: Snapshot | Chain, columns: Schema) -> Tables:
        """Files that other systems keep. Those of which only Spark knows what it reads there are left to it, many
        together."""
        strange: list[Block] = []
        for block, file, path in files:
            found = foreign(block, path, columns)
            if found is not None:
                yield from found.groups()
                continue
            strange.append(replace(block, manifest=replace(block.manifest, files=(file,))))
            if sum(b.bytes for b in strange) >= PORTION_BYTES:
                yield from self._at_once([_rows(strange, read, columns)])
                strange = []
        if strange:
            yield from self._at_once([_rows(strange, read, columns)])

    def _at_once(self, reads: Sequence[Read]) -> Tables:
        """By whichever way the engine takes, one after the other."""
        return (self.engine.to_arrow(self.engine.fetch(r)) for r in reads)


def _while_there(tables: Tables) -> Tables:
    try:
        yield from tables
    except FileNotFoundError as error:
        raise FileMissing(
            "a file is gone since its rows were asked for",
            found=str(error),
            expected="what is read to stay until all of it is read",
            next="read it in a block of store.pin(...)",
        ) from error


def _in_cells(pieces: Pieces) -> Tables:
    return (content(p, pieces.schema, pieces.model, pieces.layout) for p in pieces.pieces)


def _groups(files: Sequence[tuple[Block, str]], schema: Schema) -> Tables:
    """The rows of some files, a row group at a time."""
    for block, path in files:
        footer = footer_of_block_file(path)
        for n in range(footer.num_row_groups):
            yield _group(block, path, footer, n, schema)


def _group(block: Block, path: str, footer: pq.FileMetaData, n: int, schema: Schema) -> pa.Table:
    with open_block_file(path, footer) as file:
        return fitted(block, file, partial(file.read_row_group, n), schema)


def _outside(block: Block) -> Iterator[tuple[DataFile, str]]:
    return zip(block.manifest.files, external_files.paths_of(block.manifest, block.channel), strict=True)


def _rows(blocks: Sequence[Block], read: Snapshot | Chain, columns: Schema) -> Snapshot:
    """Some blocks of a read that merges nothing."""
    at = read.at if isinstance(read, Snapshot) else read.hi
    return Snapshot(read.channel, at, tuple(blocks), (), columns, model_of(read))
