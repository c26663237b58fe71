"""Which parts of a keyed channel can be merged, each by itself, and which of them a change does not touch. Pure.

A *cell* is a part of the space of keys: a bucket of the hash, or a range. The files of a base that is laid out say
which cell each is of; what lies between them is cells, too. A delta's file says which cells it may have rows of. So
whoever merges opens, cell by cell, only what belongs together, and a cell of which no delta has rows stays as it is.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from nova_assets.model.block import Block, DataFile
from nova_assets.model.block_layout import Hashed, Key, Layout, Place, Ranged
from nova_assets.plan.partition_size import NOTHING, Size


@dataclass(frozen=True, slots=True)
class Bucket:
    """A part of the hashes: the ``number``-th of ``of`` alike."""

    of: int
    number: int


@dataclass(frozen=True, slots=True)
class Span:
    """Keys from ``least`` up to, and without, ``below``; None is without end."""

    least: Key | None
    below: Key | None


Cell: TypeAlias = Bucket | Span


@dataclass(frozen=True, slots=True)
class Work:
    """What is in one cell.

    Args:
        base: files of the base that may have rows of it; and of no other cell, unless this was split.
        deltas: delta for delta, in their order, the files that may have rows of it; those that have none are left out.
            Each with its place among all deltas.
        size: of what has to be read: of a file that is of several cells, its share, about.
    """

    cell: Cell
    base: tuple[tuple[Block, DataFile], ...]
    deltas: tuple[tuple[int, Block, DataFile], ...]
    size: Size = NOTHING

    @property
    def paths(self) -> tuple[str, ...]:
        """Of the files, in their order."""
        return (*(f.path for _, f in self.base), *(f.path for _, _, f in self.deltas))


def cells(
    bases: Sequence[Block], deltas: Sequence[Block], layout: Layout, *, least: int = 1
) -> tuple[Work, ...] | None:
    """The cells of one partition; None where something is laid out otherwise.

    Args:
        bases: at most one.
        deltas: in their order.
        least: cells into which everything is divided where there is no base; a power of two.
    """
    if not _alike([*bases, *deltas], layout):
        return None
    base = [(b, f) for b in bases for f in b.manifest.files]
    found = _spans(base) if layout.clustered else _buckets(base, least)
    if layout.clustered and not base:
        found = [(span, []) for span in _cut([f for d in deltas for f in d.manifest.files], least)]
    if found is None:
        return None
    later = [(n, d, f) for n, d in enumerate(deltas) for f in d.manifest.files]

    def work(cell: Cell, of: Sequence[tuple[Block, DataFile]]) -> Work:
        return Work(cell, tuple(of), tuple(some for some in later if reaches(some[2].place, cell)))

    return _sized([work(cell, of) for cell, of in found])


def split(work: Work, most: int) -> tuple[Work, ...]:
    """A bucket with more bytes than that, in several finer ones; its base's files are then opened for each of them."""
    if not isinstance(work.cell, Bucket) or work.size.bytes <= most:
        return (work,)
    n = 1 << (-(-work.size.bytes // most) - 1).bit_length()
    finer = [Bucket(work.cell.of * n, work.cell.number * n + k) for k in range(n)]
    return _sized([Work(b, work.base, tuple(d for d in work.deltas if _has(d[2].place, b))) for b in finer])


@dataclass(frozen=True, slots=True)
class Side:
    """One of two snapshots of a partition that are compared: at most one base, and deltas in their order."""

    bases: tuple[Block, ...]
    deltas: tuple[Block, ...]

    def within(self, cell: Cell) -> Work:
        base = tuple((b, f) for b in self.bases for f in b.manifest.files if reaches(f.place, cell))
        deltas = ((n, d, f) for n, d in enumerate(self.deltas) for f in d.manifest.files if reaches(f.place, cell))
        return Work(cell, base, tuple(deltas))


def compared(old: Side, new: Side, layout: Layout) -> tuple[tuple[Work, Work], ...] | None:
    """The cells in which two snapshots may differ: those of which they do not list the very same files. None where
    something is laid out otherwise."""
    if not _alike([*old.bases, *old.deltas, *new.bases, *new.deltas], layout):
        return None
    files = [f for side in (old, new) for b in side.bases for f in b.manifest.files]
    grid: list[Cell] = []
    if layout.clustered:
        cuts = sorted({_ranged(f).least for f in files})[1:]
        grid += [Span(a, b) for a, b in zip([None, *cuts], [*cuts, None], strict=True)]
    else:
        wholes = [_whole(f.place) for f in files]
        if None in wholes:
            return None
        of = min((b.of for b in wholes if b is not None), default=1)
        grid += [Bucket(of, n) for n in range(of)]
    sides = (_sized([side.within(cell) for cell in grid]) for side in (old, new))
    return tuple((a, b) for a, b in zip(*sides, strict=True) if a.paths != b.paths)


def touched(bases: Sequence[Block], deltas: Sequence[Block], layout: Layout) -> frozenset[str]:
    """The files of a partition's base that may have rows of keys that deltas change."""
    there = [f for b in bases for f in b.manifest.files]
    later = [f for d in deltas for f in d.manifest.files]
    meets = _meeting_ranges(later) if layout.clustered else _meeting_buckets(later)
    return frozenset(f.path for f in there if meets(f.place))


def _meeting_buckets(files: Sequence[DataFile]) -> Callable[[Place | None], bool]:
    """Whether a place has a bucket of which some of the files have rows."""
    finest = max((f.place.of for f in files if isinstance(f.place, Hashed)), default=1)
    full = bytearray(finest)
    for file in files:
        assert isinstance(file.place, Hashed)
        width = finest // file.place.of
        for n, rows in enumerate(file.place.rows, start=file.place.first):
            if rows:
                full[n * width : (n + 1) * width] = b"\1" * width

    def meets(place: Place | None) -> bool:
        bucket = _whole(place)
        if bucket is None:
            return True
        start, end = bucket.number * finest // bucket.of, -(-(bucket.number + 1) * finest // bucket.of)
        return any(full[start:end])

    return meets


def _meeting_ranges(files: Sequence[DataFile]) -> Callable[[Place | None], bool]:
    """Whether a place may have a key that lies within one of the files."""
    spans = sorted(((p.least, p.greatest) for p in map(_ranged, files)), key=lambda s: s[0])
    starts = [least for least, _ in spans]
    furthest = list(itertools.accumulate((greatest for _, greatest in spans), max))

    def meets(place: Place | None) -> bool:
        assert isinstance(place, Ranged)
        n = bisect_right(starts, place.greatest)
        return n > 0 and bool(furthest[n - 1] >= place.least)

    return meets


def _alike(blocks: Iterable[Block], layout: Layout) -> bool:
    kind = Ranged if layout.clustered else Hashed
    there = [b for b in blocks if b.manifest.files]
    return all(b.manifest.layout == layout and all(isinstance(f.place, kind) for f in b.manifest.files) for b in there)


def _buckets(
    base: Iterable[tuple[Block, DataFile]], least: int
) -> list[tuple[Cell, list[tuple[Block, DataFile]]]] | None:
    """Buckets with the base's files; and what is between them, in pieces as small as any bucket."""
    by_bucket: dict[Bucket, list[tuple[Block, DataFile]]] = {}
    for block, file in base:
        bucket = _whole(file.place)
        if bucket is None:
            return None
        by_bucket.setdefault(bucket, []).append((block, file))
    finest = max((b.of for b in by_bucket), default=least)
    taken = [b.number * (finest // b.of) + n for b in by_bucket for n in range(finest // b.of)]
    covered = set(taken)
    if len(covered) != len(taken):
        return None  # one lies within another
    between = [Bucket(finest, n) for n in range(finest) if n not in covered]
    return [*by_bucket.items(), *((b, []) for b in between)]


def _whole(place: Place | None) -> Bucket | None:
    """The one bucket that all buckets of a file make up together; None where they make up no one."""
    assert isinstance(place, Hashed)
    n = len(place.rows)
    if place.of % n or place.first % n:
        return None
    return Bucket(place.of // n, place.first // n)


def _spans(base: Sequence[tuple[Block, DataFile]]) -> list[tuple[Cell, list[tuple[Block, DataFile]]]] | None:
    """Each file's range, up to the next one's; the first begins with the least key that there can be."""
    ordered = sorted(base, key=lambda of: _ranged(of[1]).least)
    places = [_ranged(f) for _, f in ordered]
    if any(a.greatest >= b.least for a, b in itertools.pairwise(places)):
        return None
    ends = [*(p.least for p in places[1:]), None]
    starts = [None, *(p.least for p in places[1:])]
    if not ordered:
        return [(Span(None, None), [])]
    return [(Span(s, e), [of]) for s, e, of in zip(starts, ends, ordered, strict=True)]


def _cut(files: Sequence[DataFile], pieces: int) -> list[Span]:
    """So many spans, at most, with about as many files in each."""
    starts = sorted({_ranged(f).least for f in files})
    cuts = [starts[n] for n in sorted({len(starts) * k // pieces for k in range(1, pieces)}) if n]
    return [Span(a, b) for a, b in zip([None, *cuts], [*cuts, None], strict=True)]


def _ranged(file: DataFile) -> Ranged:
    assert isinstance(file.place, Ranged)
    return file.place


def reaches(place: Place | None, cell: Cell) -> bool:
    """Whether a file of that place may have rows of a cell."""
    if isinstance(cell, Bucket):
        return _has(place, cell)
    assert isinstance(place, Ranged)
    after = cell.least is not None and place.greatest < cell.least
    before = cell.below is not None and place.least >= cell.below
    return not after and not before


def _has(place: Place | None, bucket: Bucket) -> bool:
    return isinstance(place, Hashed) and rows_in(place, bucket) > 0


def rows_in(place: Hashed, bucket: Bucket) -> int:
    """At most so many rows are of a bucket."""
    start, end = slice_of(place, bucket)
    return sum(place.rows[start:end])


def _sized(works: Sequence[Work]) -> tuple[Work, ...]:
    """With their bytes. How a file's rows are spread over ranges is not known: evenly, it is taken."""
    reached = Counter(path for w in works for path in w.paths)

    def share(file: DataFile, cell: Cell) -> Size:
        if isinstance(cell, Bucket) and isinstance(file.place, Hashed):
            rows = rows_in(file.place, cell)
            rows = -(-rows * min(file.place.of, cell.of) // cell.of)  # a coarser bucket is of several cells, evenly
            return Size(file.bytes * rows // max(1, file.rows), rows)
        return Size(file.bytes // reached[file.path], file.rows // reached[file.path])

    def size(work: Work) -> Size:
        files = (*(f for _, f in work.base), *(f for _, _, f in work.deltas))
        return sum((share(f, work.cell) for f in files), NOTHING)

    return tuple(replace(w, size=size(w)) for w in works)


def slice_of(place: Hashed, bucket: Bucket) -> tuple[int, int]:
    """Which of a file's buckets have all its rows of another bucket: from, and up to. Coarser ones hold others, too."""
    if place.of >= bucket.of:
        n = place.of // bucket.of
        start, end = bucket.number * n, (bucket.number + 1) * n
    else:
        start = bucket.number // (bucket.of // place.of)
        end = start + 1
    last = place.first + len(place.rows)
    return max(start, place.first) - place.first, max(min(end, last), place.first) - place.first
