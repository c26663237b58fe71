"""Which parts of a keyed channel belong together: against keys that are looked at one by one."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from nova_assets.model.block import Block, DataFile, Kind, Manifest
from nova_assets.model.declared_schema import schema_from_declaration
from nova_assets.model.key_layout import HashBuckets, KeyLayout, KeyRange
from nova_assets.model.merge import Keyed, Upsert
from nova_assets.model.reads import DeltaChain, Snapshot, SnapshotDiff
from nova_assets.model.schema import Schema
from nova_assets.plan.block_layout import changed_key_range, common_layout, split_by_delta_overlap
from nova_assets.plan.merge_units import (
    BUCKET_ROWS,
    MAX_BUCKETS,
    DataSize,
    HashBucket,
    KeySpan,
    MergeUnit,
    SnapshotBlocks,
    base_files_overlapping,
    bucket_count_for,
    differing_merge_tasks,
    key_range_count_for,
    merge_tasks,
    target_bucket_bytes,
)
from nova_assets.plan.read_strategy import best_estimate, choose_strategy, estimate_strategies

BITS = 8
SCHEMA = schema_from_declaration("k bigint, v string")
HASHED, CLUSTERED = KeyLayout(("k",), ("bigint",)), KeyLayout(("k",), ("bigint",), clustered=True)
MODEL = Upsert(key="k")

Keys = frozenset[int]


def hash_of(key: int) -> int:
    return (key * 2654435761 >> 7) % 2**BITS


def hashed(name: str, keys: Keys, of: int, first: int = 0, count: int | None = None) -> DataFile:
    """A file with the keys that are in some buckets."""
    count = of if count is None else count
    numbers = [hash_of(k) * of >> BITS for k in keys]
    rows = tuple(numbers.count(n) for n in range(first, first + count))
    return DataFile(name, sum(rows), 100 * sum(rows), key_placement=HashBuckets(of, first, rows))


def ranged(name: str, keys: Keys) -> DataFile:
    return DataFile(name, len(keys), 100 * len(keys), key_placement=KeyRange((min(keys),), (max(keys),)))


def block(kind: Kind, n: int, files: list[DataFile], layout: KeyLayout, schema: Schema = SCHEMA) -> Block:
    manifest = Manifest(tuple(files), schema, layout=layout)
    return Block(f"{kind}{n}", "c", "", kind, n if kind == "base" else n - 1, n, manifest, MODEL)


class World:
    """A base and deltas, with the keys that are in each of their files."""

    def __init__(self, seed: int, *, clustered: bool) -> None:
        self.rng = rng = random.Random(seed)
        self.layout = CLUSTERED if clustered else HASHED
        self.keys: dict[str, Keys] = {}
        self.bases = [self.base("b")] if rng.random() < 0.9 else []
        self.deltas = [self.delta(n) for n in range(rng.randint(0, 4))]

    def base(self, name: str) -> Block:
        rng = self.rng
        if self.layout.clustered:
            cuts = sorted(rng.sample(range(1, 1000), rng.randint(0, 5)))
            spans = list(zip([0, *cuts], [*cuts, 1000], strict=True))
            parts = [self.some(range(a, b)) for a, b in spans if rng.random() < 0.8]
            files = [self.known(ranged(f"{name}{n}", p), p) for n, p in enumerate(parts)]
        else:
            of, everything = rng.choice([1, 2, 4, 8]), self.some(range(1000), 120)
            files = []
            for n in range(of):
                keys = frozenset(k for k in everything if hash_of(k) * of >> BITS == n)
                if keys and rng.random() < 0.8:
                    file = hashed(f"{name}{n}", keys, of, n, 1)
                    if rng.random() < 0.3:  # its rows lie in finer buckets
                        file = replace(hashed(f"{name}{n}", keys, 2 * of, 2 * n, 2), rows=len(keys))
                    files.append(self.known(file, keys))
        return block("base", 1, files, self.layout)

    def delta(self, n: int) -> Block:
        keys = self.some(range(1000), 12)
        file = ranged(f"d{n}", keys) if self.layout.clustered else hashed(f"d{n}", keys, self.rng.choice([1, 4, 32]))
        return block("delta", n + 2, [self.known(file, keys)], self.layout)

    def some(self, keys: range, most: int = 20) -> Keys:
        return frozenset(self.rng.sample(keys, min(len(keys), self.rng.randint(1, most))))

    def known(self, file: DataFile, keys: Keys) -> DataFile:
        self.keys[file.path] = keys
        return file

    def within(self, path: str, cell: MergeUnit) -> Keys:
        return frozenset(k for k in self.keys[path] if inside(k, cell))


def inside(key: int, cell: MergeUnit) -> bool:
    if isinstance(cell, HashBucket):
        return hash_of(key) * cell.bucket_count >> BITS == cell.number
    assert isinstance(cell, KeySpan)
    return (cell.least is None or cell.least[0] <= key) and (cell.below is None or key < cell.below[0])


@pytest.mark.parametrize("clustered", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_each_key_is_in_one_cell_with_all_files_that_have_it(seed: int, clustered: bool) -> None:
    world = World(seed, clustered=clustered)
    works = merge_tasks(world.bases, world.deltas, world.layout, min_units=4)
    assert works is not None
    for key in range(1000):
        mine = [w for w in works if inside(key, w.unit)]
        assert len(mine) == 1
        opened = set(mine[0].paths)
        assert {p for p, keys in world.keys.items() if key in keys} <= opened
    of_base = [f.path for w in works for _, f in w.base]
    assert sorted(of_base) == sorted(f.path for b in world.bases for f in b.manifest.files), "each is opened once"


@pytest.mark.parametrize("clustered", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_files_without_a_changed_key_are_read_bare(seed: int, clustered: bool) -> None:
    world = World(seed, clustered=clustered)
    changed = {k for d in world.deltas for f in d.manifest.files for k in world.keys[f.path]}
    found = base_files_overlapping(world.bases, world.deltas, world.layout)
    for file in (f for b in world.bases for f in b.manifest.files):
        assert file.path in found or not world.keys[file.path] & changed
    bare, rest = split_by_delta_overlap(Snapshot("c", 9, tuple(world.bases), tuple(world.deltas), SCHEMA, MODEL))
    if world.bases and world.deltas:
        assert {f.path for b in bare.bases if isinstance(b, Block) for f in b.manifest.files} == {
            f.path for b in world.bases for f in b.manifest.files if f.path not in found
        }
        assert rest.deltas == tuple(world.deltas)


@pytest.mark.parametrize("clustered", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_all_changed_keys_lie_within_the_range_that_is_told(seed: int, clustered: bool) -> None:
    world = World(seed, clustered=clustered)
    changed = [k for d in world.deltas for f in d.manifest.files for k in world.keys[f.path]]
    found = changed_key_range(Snapshot("c", 9, tuple(world.bases), tuple(world.deltas), SCHEMA, MODEL))
    assert found == (("k", min(changed), max(changed)) if clustered and changed else None)


@pytest.mark.parametrize("clustered", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_what_two_snapshots_share_is_not_compared(seed: int, clustered: bool) -> None:
    world = World(seed, clustered=clustered)
    old = SnapshotBlocks(tuple(world.bases), tuple(world.deltas[:2]))
    kept = [f for b in world.bases for f in b.manifest.files if world.rng.random() < 0.7]
    new = SnapshotBlocks((block("base", 9, kept, world.layout),), tuple(world.deltas[:1]))
    pairs = differing_merge_tasks(old, new, world.layout)
    assert pairs is not None
    for key in range(1000):
        opened = [pair for pair in pairs if inside(key, pair[0].unit)]
        sides = [
            {f.path for b in (*s.bases, *s.deltas) for f in b.manifest.files if key in world.keys[f.path]}
            for s in (old, new)
        ]
        assert len(opened) <= 1
        if sides[0] != sides[1]:
            assert sides[0] <= set(opened[0][0].paths) and sides[1] <= set(opened[0][1].paths)
    same = differing_merge_tasks(old, old, world.layout)
    assert same == ()


def test_blocks_that_are_laid_out_otherwise_are_not_put_together_by_cells() -> None:
    file = hashed("b", frozenset(range(9)), 2)
    base, delta = block("base", 1, [file], HASHED), block("delta", 2, [replace(file, path="d")], HASHED)

    def snapshot(*deltas: Block, schema: Schema = SCHEMA) -> Snapshot:
        return Snapshot("c", 9, (base,), deltas, schema, MODEL)

    assert common_layout(snapshot(delta)) is not None
    assert common_layout(snapshot(block("delta", 2, [replace(file, path="d", key_placement=None)], CLUSTERED))) is None
    narrow = replace(delta, manifest=replace(delta.manifest, layout=KeyLayout(("k",), ("int",))))
    assert common_layout(snapshot(narrow)) is None, "the same number hashes otherwise"
    assert common_layout(snapshot(replace(delta, merge=Keyed(key="k", combine={"v": "max"})))) is None
    assert common_layout(snapshot(replace(delta, manifest=replace(delta.manifest, format="orc")))) is None
    assert common_layout(snapshot(block("delta", 2, [], CLUSTERED))) is not None, (
        "a block without files matters to nobody"
    )
    lists = schema_from_declaration("k bigint, v array<int>")
    assert common_layout(snapshot(delta, schema=lists)) is not None
    assert common_layout(SnapshotDiff(snapshot(schema=lists), snapshot(delta, schema=lists))) is None, (
        "Arrow compares no lists"
    )


def test_the_cheapest_way_is_taken_unless_one_is_forced() -> None:
    def read(rows: int, deltas: int) -> Snapshot:
        file = DataFile("b", rows, 20 * rows, key_placement=HashBuckets(1, 0, (rows,)))
        base = block("base", 1, [file], HASHED)
        later = [block("delta", n + 2, [replace(file, path=f"d{n}", rows=9, bytes=99)], HASHED) for n in range(deltas)]
        return Snapshot("c", 9, (base,), tuple(later), SCHEMA, MODEL)

    small, large = read(1000, 1), read(50_000_000, 1)
    assert choose_strategy(small, "here") == "arrow" and choose_strategy(large, "here") == "spark"
    assert [e.strategy for e in estimate_strategies(large, "block")] == ["buckets", "spark"], (
        "there is too much for memory"
    )
    assert choose_strategy(large, "block", "spark") == "spark" and choose_strategy(large, "block", "arrow") == "buckets"
    assert [e.strategy for e in estimate_strategies(small)] == ["spark"], "Spark prunes what it scans"
    assert choose_strategy(SnapshotDiff(large, read(50_000_000, 2))) == "buckets"
    found = best_estimate(estimate_strategies(large))
    assert found is not None and found.rows == 50_000_009 and found.seconds > 1
    assert best_estimate(estimate_strategies(DeltaChain("c", 8, 9, (), SCHEMA, MODEL))) is not None


def test_buckets_grow_in_number_and_then_in_size() -> None:
    def wide(size: int) -> int:
        return bucket_count_for(DataSize(size, size // 1000))

    assert [wide(n) for n in (0, 2**20, 2**25 + 1, 2**30)] == [1, 1, 2, 32]
    assert wide(2**40) == 4096 and all(wide(n).bit_count() == 1 for n in range(0, 10**12, 10**10 + 7))


def test_rows_that_pack_well_are_in_more_buckets_but_not_in_too_many() -> None:
    narrow = [DataSize(n, n // 2) for n in (2**20, 2**22, 2**25, 2**30)]
    assert [key_range_count_for(s) for s in narrow] == [1, 2, 16, 512]
    assert target_bucket_bytes(narrow[2]) == 2 * BUCKET_ROWS
    assert key_range_count_for(DataSize(2**40, 2**40)) <= 4 * MAX_BUCKETS


@pytest.mark.parametrize("of", [1, 8, 64])
def test_the_sizes_of_cells_are_shares_of_files_however_coarse_these_are(of: int) -> None:
    """Files of wide rows have few rows, and few buckets. Each is of many cells, and is counted once in all."""

    def delta(n: int) -> Block:
        starts = range(6400 * n, 6400 * (n + 1), 320)
        files = [hashed(f"{n}.{start}", frozenset(range(start, start + 320)), of) for start in starts]
        return block("delta", n + 1, files, HASHED)

    deltas = [delta(0), delta(1)]
    works = merge_tasks([], deltas, HASHED, min_units=64)
    assert works is not None and len(works) == 64
    whole = sum(f.bytes for d in deltas for f in d.manifest.files)
    assert whole * 0.9 <= sum(w.size.bytes for w in works) <= whole * 1.3
