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
from nova_assets.model.block_layout import HashBuckets, KeyLayout, KeyPlacement, KeyRange, LayoutKey
from nova_assets.plan.partition_size import EMPTY_SIZE, DataSize


@dataclass(frozen=True, slots=True)
class HashBucket:
    """A part of the hashes: the ``number``-th of ``bucket_count`` alike."""

    bucket_count: int
    number: int


@dataclass(frozen=True, slots=True)
class KeySpan:
    """Keys from ``least`` up to, and without, ``below``; None is without end."""

    least: LayoutKey | None
    below: LayoutKey | None


MergeUnit: TypeAlias = HashBucket | KeySpan


@dataclass(frozen=True, slots=True)
class MergeTask:
    """What is in one cell.

    Args:
        base: files of the base that may have rows of it; and of no other cell, unless this was split.
        deltas: delta for delta, in their order, the files that may have rows of it; those that have none are left out.
            Each with its place among all deltas.
        size: of what has to be read: of a file that is of several cells, its share, about.
    """

    unit: MergeUnit
    base: tuple[tuple[Block, DataFile], ...]
    deltas: tuple[tuple[int, Block, DataFile], ...]
    size: DataSize = EMPTY_SIZE

    @property
    def paths(self) -> tuple[str, ...]:
        """Of the files, in their order."""
        return (*(f.path for _, f in self.base), *(f.path for _, _, f in self.deltas))


def merge_tasks(
    bases: Sequence[Block], deltas: Sequence[Block], layout: KeyLayout, *, min_units: int = 1
) -> tuple[MergeTask, ...] | None:
    """The cells of one partition; None where something is laid out otherwise.

    Args:
        bases: at most one.
        deltas: in their order.
        min_units: cells into which everything is divided where there is no base; a power of two.
    """
    if not _have_layout([*bases, *deltas], layout):
        return None
    base = [(b, f) for b in bases for f in b.manifest.files]
    units_with_base_files = _span_units(base) if layout.clustered else _bucket_units(base, min_units)
    if layout.clustered and not base:
        units_with_base_files = [
            (span, []) for span in _split_into_spans([f for d in deltas for f in d.manifest.files], min_units)
        ]
    if units_with_base_files is None:
        return None
    delta_files = [(n, d, f) for n, d in enumerate(deltas) for f in d.manifest.files]

    def make_task(unit: MergeUnit, base_files: Sequence[tuple[Block, DataFile]]) -> MergeTask:
        return MergeTask(
            unit,
            tuple(base_files),
            tuple(some for some in delta_files if may_have_rows_in(some[2].key_placement, unit)),
        )

    return _with_sizes([make_task(cell, of) for cell, of in units_with_base_files])


def split_merge_task(task: MergeTask, max_bytes: int) -> tuple[MergeTask, ...]:
    """A bucket with more bytes than that, in several finer ones; its base's files are then opened for each of them."""
    if not isinstance(task.unit, HashBucket) or task.size.bytes <= max_bytes:
        return (task,)
    n = 1 << (-(-task.size.bytes // max_bytes) - 1).bit_length()
    finer_buckets = [HashBucket(task.unit.bucket_count * n, task.unit.number * n + k) for k in range(n)]
    return _with_sizes(
        [
            MergeTask(b, task.base, tuple(d for d in task.deltas if _has_rows_in_bucket(d[2].key_placement, b)))
            for b in finer_buckets
        ]
    )


@dataclass(frozen=True, slots=True)
class SnapshotBlocks:
    """One of two snapshots of a partition that are compared: at most one base, and deltas in their order."""

    bases: tuple[Block, ...]
    deltas: tuple[Block, ...]

    def task_for_unit(self, unit: MergeUnit) -> MergeTask:
        base = tuple((b, f) for b in self.bases for f in b.manifest.files if may_have_rows_in(f.key_placement, unit))
        deltas = (
            (n, d, f)
            for n, d in enumerate(self.deltas)
            for f in d.manifest.files
            if may_have_rows_in(f.key_placement, unit)
        )
        return MergeTask(unit, base, tuple(deltas))


def differing_merge_tasks(
    old: SnapshotBlocks, new: SnapshotBlocks, layout: KeyLayout
) -> tuple[tuple[MergeTask, MergeTask], ...] | None:
    """The cells in which two snapshots may differ: those of which they do not list the very same files. None where
    something is laid out otherwise."""
    if not _have_layout([*old.bases, *old.deltas, *new.bases, *new.deltas], layout):
        return None
    files = [f for side in (old, new) for b in side.bases for f in b.manifest.files]
    units: list[MergeUnit] = []
    if layout.clustered:
        split_points = sorted({_key_range(f).least for f in files})[1:]
        units += [KeySpan(a, b) for a, b in zip([None, *split_points], [*split_points, None], strict=True)]
    else:
        buckets = [_single_bucket(f.key_placement) for f in files]
        if None in buckets:
            return None
        bucket_count = min((b.bucket_count for b in buckets if b is not None), default=1)
        units += [HashBucket(bucket_count, n) for n in range(bucket_count)]
    tasks_by_snapshot = (_with_sizes([side.task_for_unit(cell) for cell in units]) for side in (old, new))
    return tuple((a, b) for a, b in zip(*tasks_by_snapshot, strict=True) if a.paths != b.paths)


def base_files_overlapping(bases: Sequence[Block], deltas: Sequence[Block], layout: KeyLayout) -> frozenset[str]:
    """The files of a partition's base that may have rows of keys that deltas change."""
    base_files = [f for b in bases for f in b.manifest.files]
    delta_files = [f for d in deltas for f in d.manifest.files]
    may_overlap = _range_overlap_test(delta_files) if layout.clustered else _bucket_overlap_test(delta_files)
    return frozenset(f.path for f in base_files if may_overlap(f.key_placement))


def _bucket_overlap_test(files: Sequence[DataFile]) -> Callable[[KeyPlacement | None], bool]:
    """Whether a place has a bucket of which some of the files have rows."""
    bucket_count = max(
        (f.key_placement.bucket_count for f in files if isinstance(f.key_placement, HashBuckets)), default=1
    )
    occupied = bytearray(bucket_count)
    for file in files:
        assert isinstance(file.key_placement, HashBuckets)
        width = bucket_count // file.key_placement.bucket_count
        for n, rows in enumerate(file.key_placement.rows_per_bucket, start=file.key_placement.first_bucket):
            if rows:
                occupied[n * width : (n + 1) * width] = b"\1" * width

    def may_overlap(placement: KeyPlacement | None) -> bool:
        bucket = _single_bucket(placement)
        if bucket is None:
            return True
        start, end = (
            bucket.number * bucket_count // bucket.bucket_count,
            -(-(bucket.number + 1) * bucket_count // bucket.bucket_count),
        )
        return any(occupied[start:end])

    return may_overlap


def _range_overlap_test(files: Sequence[DataFile]) -> Callable[[KeyPlacement | None], bool]:
    """Whether a place may have a key that lies within one of the files."""
    spans = sorted(((p.least, p.greatest) for p in map(_key_range, files)), key=lambda s: s[0])
    starts = [least for least, _ in spans]
    greatest_so_far = list(itertools.accumulate((greatest for _, greatest in spans), max))

    def may_overlap(placement: KeyPlacement | None) -> bool:
        assert isinstance(placement, KeyRange)
        n = bisect_right(starts, placement.greatest)
        return n > 0 and bool(greatest_so_far[n - 1] >= placement.least)

    return may_overlap


def _have_layout(blocks: Iterable[Block], layout: KeyLayout) -> bool:
    kind = KeyRange if layout.clustered else HashBuckets
    nonempty_blocks = [b for b in blocks if b.manifest.files]
    return all(
        b.manifest.layout == layout and all(isinstance(f.key_placement, kind) for f in b.manifest.files)
        for b in nonempty_blocks
    )


def _bucket_units(
    base_files: Iterable[tuple[Block, DataFile]], min_buckets: int
) -> list[tuple[MergeUnit, list[tuple[Block, DataFile]]]] | None:
    """Buckets with the base's files; and what is between them, in pieces as small as any bucket."""
    by_bucket: dict[HashBucket, list[tuple[Block, DataFile]]] = {}
    for block, file in base_files:
        bucket = _single_bucket(file.key_placement)
        if bucket is None:
            return None
        by_bucket.setdefault(bucket, []).append((block, file))
    bucket_count = max((b.bucket_count for b in by_bucket), default=min_buckets)
    covered_numbers = [
        b.number * (bucket_count // b.bucket_count) + n
        for b in by_bucket
        for n in range(bucket_count // b.bucket_count)
    ]
    covered = set(covered_numbers)
    if len(covered) != len(covered_numbers):
        return None  # one lies within another
    between = [HashBucket(bucket_count, n) for n in range(bucket_count) if n not in covered]
    return [*by_bucket.items(), *((b, []) for b in between)]


def _single_bucket(placement: KeyPlacement | None) -> HashBucket | None:
    """The one bucket that all buckets of a file make up together; None where they make up no one."""
    assert isinstance(placement, HashBuckets)
    n = len(placement.rows_per_bucket)
    if placement.bucket_count % n or placement.first_bucket % n:
        return None
    return HashBucket(placement.bucket_count // n, placement.first_bucket // n)


def _span_units(
    base_files: Sequence[tuple[Block, DataFile]],
) -> list[tuple[MergeUnit, list[tuple[Block, DataFile]]]] | None:
    """Each file's range, up to the next one's; the first begins with the least key that there can be."""
    ordered = sorted(base_files, key=lambda of: _key_range(of[1]).least)
    places = [_key_range(f) for _, f in ordered]
    if any(a.greatest >= b.least for a, b in itertools.pairwise(places)):
        return None
    ends = [*(p.least for p in places[1:]), None]
    starts = [None, *(p.least for p in places[1:])]
    if not ordered:
        return [(KeySpan(None, None), [])]
    return [(KeySpan(s, e), [of]) for s, e, of in zip(starts, ends, ordered, strict=True)]


def _split_into_spans(files: Sequence[DataFile], max_spans: int) -> list[KeySpan]:
    """So many spans, at most, with about as many files in each."""
    starts = sorted({_key_range(f).least for f in files})
    split_points = [starts[n] for n in sorted({len(starts) * k // max_spans for k in range(1, max_spans)}) if n]
    return [KeySpan(a, b) for a, b in zip([None, *split_points], [*split_points, None], strict=True)]


def _key_range(file: DataFile) -> KeyRange:
    assert isinstance(file.key_placement, KeyRange)
    return file.key_placement


def may_have_rows_in(placement: KeyPlacement | None, unit: MergeUnit) -> bool:
    """Whether a file of that place may have rows of a cell."""
    if isinstance(unit, HashBucket):
        return _has_rows_in_bucket(placement, unit)
    assert isinstance(placement, KeyRange)
    after = unit.least is not None and placement.greatest < unit.least
    before = unit.below is not None and placement.least >= unit.below
    return not after and not before


def _has_rows_in_bucket(placement: KeyPlacement | None, bucket: HashBucket) -> bool:
    return isinstance(placement, HashBuckets) and max_rows_in_bucket(placement, bucket) > 0


def max_rows_in_bucket(placement: HashBuckets, bucket: HashBucket) -> int:
    """At most so many rows are of a bucket."""
    start, end = bucket_slice(placement, bucket)
    return sum(placement.rows_per_bucket[start:end])


def _with_sizes(tasks: Sequence[MergeTask]) -> tuple[MergeTask, ...]:
    """With their bytes. How a file's rows are spread over ranges is not known: evenly, it is taken."""
    units_per_path = Counter(path for w in tasks for path in w.paths)

    def share(file: DataFile, unit: MergeUnit) -> DataSize:
        if isinstance(unit, HashBucket) and isinstance(file.key_placement, HashBuckets):
            rows = max_rows_in_bucket(file.key_placement, unit)
            rows = -(
                -rows * min(file.key_placement.bucket_count, unit.bucket_count) // unit.bucket_count
            )  # a coarser bucket is of several cells, evenly
            return DataSize(file.bytes * rows // max(1, file.rows), rows)
        return DataSize(file.bytes // units_per_path[file.path], file.rows // units_per_path[file.path])

    def size(task: MergeTask) -> DataSize:
        files = (*(f for _, f in task.base), *(f for _, _, f in task.deltas))
        return sum((share(f, task.unit) for f in files), EMPTY_SIZE)

    return tuple(replace(w, size=size(w)) for w in tasks)


def bucket_slice(placement: HashBuckets, bucket: HashBucket) -> tuple[int, int]:
    """Which of a file's buckets have all its rows of another bucket: from, and up to. Coarser ones hold others, too."""
    if placement.bucket_count >= bucket.bucket_count:
        n = placement.bucket_count // bucket.bucket_count
        start, end = bucket.number * n, (bucket.number + 1) * n
    else:
        start = bucket.number // (bucket.bucket_count // placement.bucket_count)
        end = start + 1
    last = placement.first_bucket + len(placement.rows_per_bucket)
    return max(start, placement.first_bucket) - placement.first_bucket, max(
        min(end, last), placement.first_bucket
    ) - placement.first_bucket
