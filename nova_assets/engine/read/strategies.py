"""Reads carried out by the way that costs least (``plan/way``): in memory, cell by cell, or by Spark's joins.

All lead to the same rows; the last is the reference for the other two, and what they fall back to.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from nova_assets.engine.read.by_merge_unit import Cellwise, Pieces
from nova_assets.engine.read.in_memory import compute
from nova_assets.engine.session import shared_settings
from nova_assets.engine.session.session import Session
from nova_assets.engine.storage.warehouse import Warehouse
from nova_assets.masking import get_logger
from nova_assets.model.arrow_types import to_arrow
from nova_assets.model.block import Block
from nova_assets.model.read_strategy import Way
from nova_assets.model.reads import Chain, Diff, Inserts, Read, Snapshot, Together, is_empty, sources
from nova_assets.model.schema import DELETED
from nova_assets.plan.batch_size import width_of_read
from nova_assets.plan.block_layout import laid
from nova_assets.plan.partial_reads import columns_of
from nova_assets.plan.read_strategy import chosen

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = get_logger("nova_assets.engine")

SCANNED_BYTES = 32 * 2**20
"""Snapshots of fewer bytes are joined with the keys that are looked for: to evaluate those first costs more."""

KEYS = 1_000_000
"""At most so many keys are looked up; for more, everything is looked through."""

HERE_BYTES = 64 * 2**20
"""What is looked up in so many bytes of files is looked up in this process."""


class Ways:
    """Carries out reads.

    Args:
        forced: the way to take wherever it leads there; None for the cheapest.
    """

    def __init__(self, session: Session, warehouse: Warehouse, forced: Way | None = None) -> None:
        self.session = session
        self.warehouse = warehouse
        self.forced = forced
        self.cellwise = Cellwise(session, warehouse)
        self.handed_out = shared_settings.Scope()

    def frame(self, read: Read) -> DataFrame:
        """The rows as Spark's frame."""
        from nova_assets.engine.read.spark_read import Reader

        if isinstance(read, Together):
            parts = [self.frame(p) for p in read.parts]
            return reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), parts)
        shared_settings.current(self.handed_out).fit(self.session.get, width_of_read(read))
        if isinstance(read, Snapshot | Chain | Diff):
            cells = chosen(read, "frame", self.forced) == "cells" and self.session.has_workers
            if cells and (pieces := self.cellwise.of(read)) is not None:
                return self.cellwise.frame(pieces)
        return Reader(self.session, self.warehouse).read(read)

    def here(self, read: Read) -> pa.Table | None:
        """The rows as a table, where that takes no Spark."""
        if is_empty(read) and (columns := columns_of(read)) is not None:
            return to_arrow(columns.relaxed()).empty_table()
        if isinstance(read, Inserts):
            rows = self.here(read.snapshot)
            return rows if rows is None or not read.snapshot.merge.keyed else as_inserts(rows)
        if isinstance(read, Together):
            parts = [self.here(p) for p in read.parts]
            known = [p for p in parts if p is not None]
            return pa.concat_tables(known, promote_options="default") if len(known) == len(parts) else None
        if not isinstance(read, Snapshot | Chain | Diff) or chosen(read, "here", self.forced) != "memory":
            return None
        return self._computed(read)

    def found(self, read: Read, keys: Any, *, here: bool) -> Any | None:
        """The rows of a snapshot that have certain keys, of whose buckets and row groups alone files are opened.

        None where everything has to be looked through.

        Args:
            keys: a table or frame with the columns of the key.
            here: a table is wanted, not a frame.
        """
        if not isinstance(read, Snapshot) or self.forced == "frame" or (how := laid(read)) is None:
            return None
        order = list(how.layout.order)
        if set(order) != set(read.merge.key):  # of another model (R18)
            return None
        if not isinstance(keys, pa.Table):
            size = sum(b.bytes for b in sources(read) if isinstance(b, Block))
            keys = self._collected(keys, order) if size >= SCANNED_BYTES else None
        if keys is None or keys.num_rows > KEYS:
            return None
        try:
            pieces = self.cellwise.of(read, keys)
        except pa.ArrowException:  # keys of another type: Spark knows what it makes of them
            return None
        try:
            return None if pieces is None else self._looked_up(pieces, here=here)
        except OverflowError:  # of a combined value: Spark says it as it does elsewhere
            return None

    def _looked_up(self, pieces: Pieces, *, here: bool) -> Any:
        if not here and pieces.bytes > HERE_BYTES and self.session.has_workers:
            return self.cellwise.frame(pieces)
        table = self.cellwise.table(pieces)
        return table if here else self.session.frame_of(table)

    def _collected(self, keys: DataFrame, order: list[str]) -> pa.Table | None:
        from nova_assets.engine.rows.columns import col

        wanted = keys.select(*map(col, order)).distinct().limit(KEYS + 1)
        return self.session.table_of(wanted)

    def _computed(self, read: Snapshot | Chain | Diff) -> pa.Table | None:
        try:
            rows = compute(read, self.warehouse)
        except OverflowError as error:  # of a combined value: Spark says it as it does elsewhere
            log.info("computed by Spark: %s", error)
            return None
        return None if rows is None else rows.cast(pa.schema([f.with_nullable(True) for f in rows.schema]))


def as_inserts(rows: pa.Table) -> pa.Table:
    """Rows as a change that brings all of them."""
    return rows.append_column(DELETED, pa.repeat(pa.scalar(False), rows.num_rows))
