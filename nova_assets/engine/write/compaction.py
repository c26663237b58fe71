"""Blocks made out of blocks: what compaction writes holds what the channel holds already, so no key is looked through
again, and what no change touches is listed as it is.

Three ways lead to the same rows: in memory where it is little; cell by cell in Spark's Python workers, where blocks are
laid out; and as a frame, by Spark's own joins, which is what the other two are measured against.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from nova_assets.engine.buckets.bucket_files import FILE_BYTES, Written
from nova_assets.engine.buckets.merge_unit import Cellwork
from nova_assets.engine.buckets.split_points import cuts, spans
from nova_assets.engine.read.by_merge_unit import Cellwise
from nova_assets.engine.read.in_memory import compute
from nova_assets.engine.session.session import Session
from nova_assets.engine.storage.warehouse import Warehouse
from nova_assets.engine.write.small_files import roll
from nova_assets.engine.write.write import Writer
from nova_assets.model.block import Block, Manifest, StagedBlock
from nova_assets.model.channel import Channel
from nova_assets.model.merge import Append
from nova_assets.model.read_strategy import Way
from nova_assets.model.reads import Chain, Read, Snapshot, sources
from nova_assets.model.schema import Schema
from nova_assets.plan.block_layout import laid, layout_of
from nova_assets.plan.compaction import pieces
from nova_assets.plan.merge_units import Bucket, Span, Work, cells, reaches, split
from nova_assets.plan.partition_size import NOTHING, Size, bucket_bytes, buckets_for, size_of
from nova_assets.plan.read_strategy import chosen

_MANY = 4
"""A cell with so many times as much as a bucket should have is taken apart before it is read."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A cell of one partition."""

    partition: str
    work: Work


class Rewriter:
    """Writes what reads give.

    Args:
        frame: gives a read as Spark's frame.
        way: the one to take, where it leads there; None for the first that does.
    """

    def __init__(
        self,
        session: Session,
        warehouse: Warehouse,
        writer: Writer,
        frame: Callable[[Read], Any],
        way: Way | None = None,
    ) -> None:
        self.session = session
        self.warehouse = warehouse
        self.cellwise = Cellwise(session, warehouse)
        self.writer = writer
        self.frame = frame
        self.way = way

    def rewrite(
        self, read: Snapshot | Chain, staged: StagedBlock, channel: Channel, schema: Schema
    ) -> tuple[Manifest, Way]:
        """Write a snapshot as a base, or a chain as one delta; and say by which way.

        Raises:
            FileMissing, WarehouseUnavailable.
        """
        way = chosen(read, "block", self.way)
        if way == "memory" and isinstance(read.merge, Append):
            with suppress(OverflowError):  # Spark says it as it does elsewhere
                return self.writer.write_by(
                    partial(roll, read, self.warehouse, schema), staged, channel, schema
                ), "memory"
        if way == "memory" and (rows := self._computed(read)) is not None:
            return self.writer.write(rows, staged, channel, schema, known=True), "memory"
        if way != "frame" and self.session.has_workers:
            parts = _parts(read, channel, schema)
            if parts is not None:
                return self._by_cells(parts, staged, channel, schema), "cells"
        size = sum(s.bytes for s in sources(read) if isinstance(s, Block))
        frame = self.frame(read).coalesce(pieces(size, FILE_BYTES))
        return self.writer.write(frame, staged, channel, schema, known=True), "frame"

    def _computed(self, read: Snapshot | Chain) -> pa.Table | None:
        try:
            return compute(read, self.warehouse)
        except OverflowError:  # likewise
            return None

    def _by_cells(self, parts: Sequence[_Part], staged: StagedBlock, channel: Channel, schema: Schema) -> Manifest:
        from nova_assets.engine.buckets.spark_jobs import merge_cells

        touched = [p for p in parts if p.work.deltas or _is_older(p.work, schema)]
        total = sum((p.work.size for p in parts), NOTHING)
        self.cellwise.check(p.work for p in touched)
        pieces = [(p, works) for p in touched if (works := self._cellworks(p.work, channel, schema, total))]
        works = [w for _, some in pieces for w in some]
        outcome: list[list[Written] | None] = []

        def job(target: Any) -> Iterable[Written]:
            outcome.extend(merge_cells(self.session.get(), works, schema, channel.merge, target) if works else [])
            return [w for files in outcome for w in files or ()]

        manifest = self.writer.write_by(job, staged, channel, schema, tasks=True)
        kept = [p for p in parts if p not in touched]
        whose = [p for p, some in pieces for _ in some]
        kept += [p for p, files in zip(whose, outcome, strict=True) if files is None]
        files = [replace(f, partition=p.partition) for p in kept for _, f in p.work.base]
        return replace(manifest, files=(*manifest.files, *files))

    def _cellworks(self, work: Work, channel: Channel, schema: Schema, total: Size) -> list[Cellwork]:
        """A cell; in several where it has more than fits into memory: a base that is small beside what comes on top."""
        wanted = bucket_bytes(total)
        some = split(work, _MANY * wanted)
        if isinstance(work.cell, Span) and work.size.bytes > _MANY * wanted:
            some = self._cut(work, channel, schema, -(-work.size.bytes // wanted))
        found = [self._cellwork(w, schema, total) for w in some]
        return found if len(some) == 1 else [replace(w, anew=True) for w in found]

    def _cut(self, work: Work, channel: Channel, schema: Schema, pieces: int) -> tuple[Work, ...]:
        layout = layout_of(channel, schema)
        assert layout is not None and isinstance(work.cell, Span)
        paths = self.warehouse.paths([*(f for _, f in work.base), *(f for _, _, f in work.deltas)])
        keys = cuts(paths, layout.order, pieces)

        def within(span: Span) -> Work:
            base = tuple(b for b in work.base if reaches(b[1].place, span))
            return Work(span, base, tuple(d for d in work.deltas if reaches(d[2].place, span)))

        return tuple(within(s) for s in spans(work.cell, keys))

    def _cellwork(self, work: Work, schema: Schema, total: Size) -> Cellwork:
        size, wanted = work.size.bytes, bucket_bytes(total)
        if isinstance(work.cell, Bucket):
            into = 1 << max(0, (size // wanted).bit_length() - 1)
        else:
            rows = sum(f.rows for _, f in work.base) + sum(f.rows for _, _, f in work.deltas)
            into = rows if size < 2 * wanted else max(1, rows * wanted // size)
        return replace(self.cellwise.work(work, schema), into=max(1, into), anew=_is_older(work, schema))


def _is_older(work: Work, schema: Schema) -> bool:
    """Whether files of the base lack something of the schema, or call it otherwise: a block has one for all."""
    return any(b.manifest.schema != schema for b, _ in work.base)


def _parts(read: Snapshot | Chain, channel: Channel, schema: Schema) -> list[_Part] | None:
    """The cells of all partitions; None where some block is not laid out as blocks of the channel are now."""
    how = laid(read)
    if how is None or how.layout != layout_of(channel, schema) or how.model.as_json() != channel.merge.as_json():
        return None
    blocks = [s for s in sources(read) if isinstance(s, Block)]
    found: list[_Part] = []
    for partition in sorted({b.partition for b in blocks}):
        there = read.bases if isinstance(read, Snapshot) else ()
        bases = [b for b in there if isinstance(b, Block) and b.partition == partition]
        deltas = [b for b in read.deltas if isinstance(b, Block) and b.partition == partition]
        least = buckets_for(size_of(deltas))
        works = cells(bases, deltas, how.layout, least=least)
        if works is None:
            return None
        found += [_Part(partition, w) for w in works if w.base or w.deltas]
    return found
