"""Merge units: parts of a keyed channel that are merged independently, and the units that a change touches. Pure.

A *merge unit* is a part of the key space: a hash bucket or a key range. Each file of a base with a key layout belongs
to one unit. The gaps between the files are units, too. The file of a delta records the units that may contain its rows.
A merge therefore opens only the files of one unit at a time, and a unit without delta rows stays unchanged.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from nova_assets.model.block import Block, DataFile
from nova_assets.model.key_layout import HashBuckets, KeyLayout, KeyPlacement, KeyRange, LayoutKey

BUCKET_BYTES = 32 * 2**20
"""Target bytes of a bucket on disk: small enough that each core has several, and that several fit into memory."""

MAX_BUCKET_BYTES = 256 * 2**20
"""Maximum target bytes of a bucket, for a table that would otherwise have too many buckets."""

BUCKET_ROWS = 2**20
"""Approximate maximum number of rows of a bucket.

Narrow rows that compress well are many in few bytes, and the cost of merging depends on the number of rows.
"""

MAX_BUCKETS = 1024


@dataclass(frozen=True, slots=True)
class DataSize:
    """Size of stored data.

    Args:
        bytes: on disk.
    """

    bytes: int = 0
    rows: int = 0

    def __add__(self, other: DataSize) -> DataSize:
        return DataSize(self.bytes + other.bytes, self.rows + other.rows)


EMPTY_SIZE = DataSize()


def sum_sizes(blocks_or_files: Iterable[Block | DataFile]) -> DataSize:
    """Total size of blocks or files."""
    return sum((DataSize(s.bytes, s.rows) for s in blocks_or_files), EMPTY_SIZE)


def target_bucket_bytes(partition_size: DataSize) -> int:
    """Target bytes on disk of a bucket, for a partition of this size."""
    min_bytes = partition_size.bytes // MAX_BUCKETS
    by_rows = partition_size.bytes * BUCKET_ROWS // max(1, partition_size.rows)
    return max(1, min(max(BUCKET_BYTES, min(MAX_BUCKET_BYTES, min_bytes)), max(by_rows, min_bytes)))


def key_range_count_for(partition_size: DataSize) -> int:
    """Number of key ranges for a partition of this size."""
    return max(1, -(-partition_size.bytes // target_bucket_bytes(partition_size)))


def bucket_count_for(partition_size: DataSize) -> int:
    """Number of hash buckets for a partition of this size: a power of two."""
    return 1 << (key_range_count_for(partition_size) - 1).bit_length()


@dataclass(frozen=True, slots=True)
class HashBucket:
    """A part of the hash space: bucket ``number`` of ``bucket_count`` equal buckets."""

    bucket_count: int
    number: int


@dataclass(frozen=True, slots=True)
class KeySpan:
    """Keys from ``least`` (inclusive) to ``below`` (exclusive); None means unbounded."""

    least: LayoutKey | None
    below: LayoutKey | None


MergeUnit: TypeAlias = HashBucket | KeySpan


@dataclass(frozen=True, slots=True)
class MergeTask:
    """Files of one merge unit.

    Args:
        unit: the merge unit.
        base: base files that may have rows of this unit. They have rows of no other unit, unless the unit was split.
        deltas: delta files that may have rows of this unit, in delta order; each with the position of its delta among
            all deltas.
        size: estimated size to read. A file that belongs to several units counts with its share.
    """

    unit: MergeUnit
    base: tuple[tuple[Block, DataFile], ...]
    deltas: tuple[tuple[int, Block, DataFile], ...]
    size: DataSize = EMPTY_SIZE

    @property
    def paths(self) -> tuple[str, ...]:
        """Paths of all files, in order."""
        return (*(f.path for _, f in self.base), *(f.path for _, _, f in self.deltas))


def merge_tasks(
    bases: Sequence[Block], deltas: Sequence[Block], layout: KeyLayout, *, min_units: int = 1
) -> tuple[MergeTask, ...] | None:
    """Merge tasks of one partition; None if a block has another layout.

    Args:
        bases: at most one.
        deltas: in order.
        layout: the key layout.
        min_units: number of units if there is no base; a power of two.
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

    return _with_sizes([make_task(unit, base_files) for unit, base_files in units_with_base_files])


def split_merge_task(task: MergeTask, max_bytes: int) -> tuple[MergeTask, ...]:
    """Split the task of a hash bucket that exceeds ``max_bytes`` into finer buckets. Each of them opens the base
    files again.
    """
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
    """One of two snapshots of a partition to compare: at most one base, and deltas in order."""

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
    """Merge tasks of the units in which two snapshots may differ, because they do not list the same files.

    None if a block has another layout.
    """
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
    tasks_by_snapshot = (_with_sizes([side.task_for_unit(unit) for unit in units]) for side in (old, new))
    return tuple((a, b) for a, b in zip(*tasks_by_snapshot, strict=True) if a.paths != b.paths)


def base_files_overlapping(bases: Sequence[Block], deltas: Sequence[Block], layout: KeyLayout) -> frozenset[str]:
    """Paths of base files of a partition that may contain keys that deltas change."""
    base_files = [f for b in bases for f in b.manifest.files]
    delta_files = [f for d in deltas for f in d.manifest.files]
    may_overlap = _range_overlap_test(delta_files) if layout.clustered else _bucket_overlap_test(delta_files)
    return frozenset(f.path for f in base_files if may_overlap(f.key_placement))


def _bucket_overlap_test(files: Sequence[DataFile]) -> Callable[[KeyPlacement | None], bool]:
    """Test whether a placement shares a hash bucket with rows of the files."""
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
    """Test whether the key range of a placement overlaps that of a file."""
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
    """Buckets with base files, and the gaps between them in buckets of the finest size."""
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
        return None  # nested buckets
    gaps = [HashBucket(bucket_count, n) for n in range(bucket_count) if n not in covered]
    return [*by_bucket.items(), *((b, []) for b in gaps)]


def _single_bucket(placement: KeyPlacement | None) -> HashBucket | None:
    """The coarse bucket that exactly contains all buckets of a file; None if there is none."""
    assert isinstance(placement, HashBuckets)
    n = len(placement.rows_per_bucket)
    if placement.bucket_count % n or placement.first_bucket % n:
        return None
    return HashBucket(placement.bucket_count // n, placement.first_bucket // n)


def _span_units(
    base_files: Sequence[tuple[Block, DataFile]],
) -> list[tuple[MergeUnit, list[tuple[Block, DataFile]]]] | None:
    """One key span per base file, up to the start of the next file; the first span is unbounded below."""
    ordered = sorted(base_files, key=lambda of: _key_range(of[1]).least)
    key_ranges = [_key_range(f) for _, f in ordered]
    if any(a.greatest >= b.least for a, b in itertools.pairwise(key_ranges)):
        return None
    ends = [*(p.least for p in key_ranges[1:]), None]
    starts = [None, *(p.least for p in key_ranges[1:])]
    if not ordered:
        return [(KeySpan(None, None), [])]
    return [(KeySpan(s, e), [of]) for s, e, of in zip(starts, ends, ordered, strict=True)]


def _split_into_spans(files: Sequence[DataFile], max_spans: int) -> list[KeySpan]:
    """At most ``max_spans`` spans, with about equally many files each."""
    starts = sorted({_key_range(f).least for f in files})
    split_points = [starts[n] for n in sorted({len(starts) * k // max_spans for k in range(1, max_spans)}) if n]
    return [KeySpan(a, b) for a, b in zip([None, *split_points], [*split_points, None], strict=True)]


def _key_range(file: DataFile) -> KeyRange:
    assert isinstance(file.key_placement, KeyRange)
    return file.key_placement


def may_have_rows_in(placement: KeyPlacement | None, unit: MergeUnit) -> bool:
    """Whether a file with this placement may have rows of a merge unit."""
    if isinstance(unit, HashBucket):
        return _has_rows_in_bucket(placement, unit)
    assert isinstance(placement, KeyRange)
    is_below_unit = unit.least is not None and placement.greatest < unit.least
    is_above_unit = unit.below is not None and placement.least >= unit.below
    return not is_below_unit and not is_above_unit


def _has_rows_in_bucket(placement: KeyPlacement | None, bucket: HashBucket) -> bool:
    return isinstance(placement, HashBuckets) and max_rows_in_bucket(placement, bucket) > 0


def max_rows_in_bucket(placement: HashBuckets, bucket: HashBucket) -> int:
    """Upper bound on the rows of a file in a bucket."""
    return sum(placement.rows_per_bucket[overlapping_buckets(placement, bucket)])


def _with_sizes(tasks: Sequence[MergeTask]) -> tuple[MergeTask, ...]:
    """Tasks with estimated sizes. Rows of a file are assumed to be spread evenly over key ranges."""
    units_per_path = Counter(path for task in tasks for path in task.paths)

    def share(file: DataFile, unit: MergeUnit) -> DataSize:
        if isinstance(unit, HashBucket) and isinstance(file.key_placement, HashBuckets):
            rows = max_rows_in_bucket(file.key_placement, unit)
            rows = -(
                -rows * min(file.key_placement.bucket_count, unit.bucket_count) // unit.bucket_count
            )  # rows of a coarser bucket are spread evenly over its units
            return DataSize(file.bytes * rows // max(1, file.rows), rows)
        return DataSize(file.bytes // units_per_path[file.path], file.rows // units_per_path[file.path])

    def size(task: MergeTask) -> DataSize:
        files = (*(f for _, f in task.base), *(f for _, _, f in task.deltas))
        return sum((share(f, task.unit) for f in files), EMPTY_SIZE)

    return tuple(replace(task, size=size(task)) for task in tasks)


def overlapping_buckets(placement: HashBuckets, bucket: HashBucket) -> slice:
    """Slice of ``rows_per_bucket`` of a file with all its rows of a bucket.

    If the buckets of the file are coarser, they contain other rows, too.
    """
    if placement.bucket_count >= bucket.bucket_count:
        n = placement.bucket_count // bucket.bucket_count
        start, end = bucket.number * n, (bucket.number + 1) * n
    else:
        start = bucket.number // (bucket.bucket_count // placement.bucket_count)
        end = start + 1
    first, last = placement.first_bucket, placement.first_bucket + len(placement.rows_per_bucket)
    return slice(max(start, first) - first, max(min(end, last), first) - first)
