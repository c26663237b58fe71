"""Which way leads to a read's rows at the least cost. Pure: by what the catalog knows, before anything is opened.

Costs are seconds of CPU, by rates that were measured on one machine (``benchmarks/ways``). What matters is which way is
the cheaper, and by how much.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from nova_assets.model.block import Block
from nova_assets.model.block_layout import HASHED_TYPES
from nova_assets.model.merge import Append, Custom
from nova_assets.model.read_strategy import WAYS, Estimate, Way
from nova_assets.model.reads import Chain, Diff, Empty, Inserts, Port, Read, Snapshot, Together, sources
from nova_assets.plan.block_layout import folds, laid
from nova_assets.plan.merge_units import cells
from nova_assets.plan.partition_size import NOTHING

Purpose: TypeAlias = Literal["frame", "here", "block"]
"""What the rows are for: a frame of Spark's, a table in this process, or a block that is written."""

MEMORY_ROWS = 1_000_000
MEMORY_BYTES = 256 * 2**20
"""Reads of no more rows, and of files no larger uncompressed, may be computed in memory."""

ROLLED = 16
"""So many times as much may be rolled in memory, file by file: of a channel that is only added to nothing is merged, so
no more is there at once than one row group."""

_PACKED = 4
"""Bytes in memory for one in a file, about."""

_ROW, _BYTE = 80e-9, 5e-9
"""To decode."""

_START = {"memory": 0.02, "cells": 0.15, "frame": 0.30}
_COMPARED = 1.2
"""What Spark's own comparison of two snapshots takes however small they are, beside its start."""

_PROBED, _WINDOWED, _JOINED, _FOLDED = 100e-9, 2.5e-6, 0.75e-6, 30e-9
_HANDED = {"cells": 200e-9, "frame": 0.0}
"""To hand a row to Spark's own operators."""

_COLLECTED = {"memory": 0.0, "cells": 400e-9, "frame": 200e-9}
_WRITTEN = {"memory": 120e-9, "cells": 60e-9, "frame": 1e-6}


def ways(read: Read, purpose: Purpose = "frame") -> tuple[Estimate, ...]:
    """The ways that lead to a read's rows, the cheapest first.

    A snapshot that is not computed in memory is a scan of Spark's, which reads no column and no row group that the
    query has no use for; and no frame is computed before it is known that somebody wants it. Of changes of several
    kinds side by side (``Together``), each part goes its own way; what is given is the sum.
    """
    if isinstance(read, Inserts):
        return ways(read.snapshot, purpose)
    if isinstance(read, Together):
        return _together([ways(p, purpose) for p in read.parts])
    if isinstance(read, Empty | Port) or any(not isinstance(s, Block) for s in sources(read)):
        return ()
    found = [_estimate(read, way, purpose) for way in WAYS if _leads(read, way, purpose)]
    return tuple(sorted(found, key=lambda e: e.seconds))


def chosen(read: Read, purpose: Purpose = "frame", forced: Way | None = None) -> Way:
    """The way to take: the forced one where it leads there, otherwise the cheapest."""
    found = best(ways(read, purpose), forced)
    return "frame" if found is None else found.way


def best(estimates: Sequence[Estimate], forced: Way | None = None) -> Estimate | None:
    """Of several ways the forced one, otherwise the cheapest; None where nothing has to be read."""
    of_forced = [e for e in estimates if e.way == forced]
    return next(iter([*of_forced, *estimates]), None)


def _together(parts: Sequence[tuple[Estimate, ...]]) -> tuple[Estimate, ...]:
    best = [p[0] for p in parts if p]
    if not best:
        return ()
    way = best[0].way if len({e.way for e in best}) == 1 else "frame"
    return (Estimate(way, sum(e.rows for e in best), sum(e.bytes for e in best), sum(e.seconds for e in best)),)


def _leads(read: Snapshot | Chain | Diff, way: Way, purpose: Purpose) -> bool:
    if way == "frame":
        return True
    if (way == "memory" and purpose == "frame") or (
        way == "cells" and purpose != "block" and isinstance(read, Snapshot)
    ):
        return False
    return laid(read) is not None if way == "cells" else _fits(read, purpose)


def _fits(read: Snapshot | Chain | Diff, purpose: Purpose) -> bool:
    """Whether a read may be computed in memory."""
    blocks = _blocks(read)
    schema = read.new.schema if isinstance(read, Diff) else read.schema
    model = read.new.merge if isinstance(read, Diff) else read.merge
    if schema is None or isinstance(model, Custom) or (isinstance(read, Diff) and laid(read) is None):
        return False
    known = [k for k in model.key if k in schema and schema.field(k).type.name in HASHED_TYPES]
    plain = isinstance(model, Append) or (len(known) == len(model.key) and folds(model, schema))
    plain = plain and all(b.manifest.outside is None for b in blocks)  # whose folders say values of columns
    alike = all(b.manifest.format == "parquet" and b.merge.as_json() == model.as_json() for b in blocks)
    times = ROLLED if purpose == "block" and isinstance(model, Append) else 1
    few = sum(b.rows for b in blocks) <= MEMORY_ROWS * times
    return plain and alike and few and sum(b.bytes for b in blocks) * _PACKED <= MEMORY_BYTES * times


def _estimate(read: Snapshot | Chain | Diff, way: Way, purpose: Purpose) -> Estimate:
    if isinstance(read, Diff):
        return _diff(read, way, purpose)
    if purpose == "block" and way == "cells" and isinstance(read, Snapshot):
        return _rewritten(read)
    base = [b for b in (read.bases if isinstance(read, Snapshot) else ()) if isinstance(b, Block)]
    deltas = [d for d in read.deltas if isinstance(d, Block)]
    in_base, in_deltas = sum(b.rows for b in base), sum(d.rows for d in deltas)
    size = sum(b.bytes for b in (*base, *deltas))
    cost = _START[way] + _ROW * (in_base + in_deltas) + _BYTE * size
    if read.merge.keyed and deltas:
        windowed = len(deltas) > 1 and (isinstance(read, Chain) or read.merge.combines)
        cost += _put_together(way, in_base, in_deltas, windowed)
    return Estimate(way, in_base + in_deltas, size, cost + _handed(way, purpose, in_base + in_deltas))


def _rewritten(read: Snapshot) -> Estimate:
    """Of cells without a change the files stay as they are."""
    how, changed = laid(read), NOTHING
    assert how is not None
    blocks = _blocks(read)
    for partition in {b.partition for b in blocks}:
        base, deltas = (
            [b for b in some if isinstance(b, Block) and b.partition == partition] for some in (read.bases, read.deltas)
        )
        for work in cells(base, deltas, how.layout) or ():
            changed += work.size if work.deltas else NOTHING
    seconds = _START["cells"] + (_ROW + _FOLDED + _WRITTEN["cells"]) * changed.rows + _BYTE * changed.bytes
    return Estimate("cells", changed.rows, changed.bytes, seconds)


def _put_together(way: Way, base: int, deltas: int, windowed: bool) -> float:
    if way != "frame":
        return _FOLDED * (base + deltas)
    folded = _START["frame"] + _WINDOWED * deltas if windowed else 0.0
    return folded + (_START["frame"] + _PROBED * (base + 2 * deltas) if base else 0.0)


def _diff(read: Diff, way: Way, purpose: Purpose) -> Estimate:
    shared = set() if way == "frame" else _files(read.old).keys() & _files(read.new).keys()
    files = {p: f for side in (read.old, read.new) for p, f in _files(side).items() if p not in shared}
    rows, size = sum(r for r, _ in files.values()), sum(s for _, s in files.values())
    cost = _START[way] + _ROW * rows + _BYTE * size
    cost += _COMPARED + _JOINED * rows if way == "frame" else _FOLDED * rows
    return Estimate(way, rows, size, cost + _handed(way, purpose, rows // 10))


def _files(read: Snapshot) -> dict[str, tuple[int, int]]:
    return {f.path: (f.rows, f.bytes) for b in _blocks(read) for f in b.manifest.files}


def _handed(way: Way, purpose: Purpose, rows: int) -> float:
    return {"frame": _HANDED, "here": _COLLECTED, "block": _WRITTEN}[purpose][way] * rows


def _blocks(read: Read) -> list[Block]:
    return [s for s in sources(read) if isinstance(s, Block)]
