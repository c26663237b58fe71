"""What manifests tell about rows: when a change has whole rows, and how many rows a version has."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nova_assets as nova
from nova_assets.model.block import Block, DataFile, Kind, Manifest
from nova_assets.model.merge import Append, Custom, Keyed, MergeModel, Multiset, Upsert
from nova_assets.model.reads import Snapshot
from nova_assets.model.schema import Schema, parse_ddl
from nova_assets.plan import modes
from nova_assets.plan.manifest_rows import RowCount, count_rows, has_rows_after
from nova_assets_tests.plan.histories import SCHEMA, history

UPSERT = nova.Upsert("k")


def is_known(merge: MergeModel, blocks: str = "b1 d2 d3", declared: MergeModel | None = None) -> bool:
    channel, past = nova.Channel("c", merge=declared or merge, schema=SCHEMA), history(blocks, merge=merge)
    return has_rows_after(modes.changes(past, 1), channel, modes.snapshot(past))


@pytest.mark.parametrize("blocks", ["b1 d2 d3", "d1 d2", "b1 d2 c2 d3", "b1 b2 d3"])
def test_a_row_that_replaces_its_earlier_row_is_the_row_afterwards(blocks: str) -> None:
    assert is_known(UPSERT, blocks)


@pytest.mark.parametrize(
    "merge",
    [nova.Append(), nova.Multiset(), nova.Upsert("k", order_by="v"), nova.Keyed("k", combine={"v": "sum"})],
)
def test_other_models_may_need_the_earlier_row(merge: MergeModel) -> None:
    assert not is_known(merge)


def test_blocks_of_another_model_are_merged() -> None:
    assert not is_known(nova.Upsert("k", order_by="v"), declared=UPSERT)


def test_other_columns_or_partitions_need_a_lookup() -> None:
    past, channel = history("b1 d2 d3", merge=UPSERT), nova.Channel("c", merge=UPSERT, schema=SCHEMA)
    change, now = modes.changes(past, 1), modes.snapshot(past)
    assert isinstance(now, Snapshot) and has_rows_after(change, channel, now)
    assert not has_rows_after(change, channel, replace(now, schema=parse_ddl("k bigint, v bigint, w bigint")))
    moved = replace(now, bases=tuple(replace(b, partition="2026-01-01") for b in now.bases))  # type: ignore[type-var]
    assert not has_rows_after(change, channel, moved)


Change = tuple[Kind, list[int], list[int]]
"""A block: its kind, the keys that it adds, and the keys that it deletes."""

CHANGES = st.lists(
    st.tuples(st.just("delta"), st.lists(st.integers(0, 4), max_size=4), st.lists(st.integers(0, 4), max_size=3)),
    max_size=4,
)


def snapshot(merge: MergeModel, base: list[int] | None, deltas: list[Change]) -> Snapshot:
    blocks = [("base", base, [])] if base is not None else []
    sources = [_block(n, merge, *change) for n, change in enumerate([*blocks, *deltas], 1)]
    bases = tuple(b for b in sources if b.kind == "base")
    return Snapshot("c", len(sources), bases, tuple(b for b in sources if b.kind == "delta"), None, merge)


def _block(number: int, merge: MergeModel, kind: Any, added: list[int], deleted: list[int]) -> Block:
    files = (DataFile("f", len(added) + len(deleted), 1),) if added or deleted else ()
    manifest = Manifest(files, Schema(()), deletes=len(deleted))
    return Block(f"b{number}", "c", "", kind, number - 1, number, manifest, merge)


def rows_of_bag(base: list[int], deltas: list[Change]) -> int:
    bag = Counter(base)
    for _, added, deleted in deltas:
        for key in deleted:
            bag[key] = max(0, bag[key] - 1)
        bag.update(added)
    return bag.total()


def rows_by_key(base: list[int], deltas: list[Change]) -> int:
    keys = set(base)
    for _, added, deleted in deltas:
        keys = (keys - set(deleted)) | set(added)
    return len(keys)


@given(st.none() | st.lists(st.integers(0, 4)), CHANGES)
def test_numbers_of_bags(base: list[int] | None, deltas: list[Change]) -> None:
    _agrees(count_rows(snapshot(Multiset(), base, deltas)), rows_of_bag(base or [], deltas))
    appended: list[Change] = [(kind, added, []) for kind, added, _ in deltas]
    counted = count_rows(snapshot(Append(), base, appended))
    assert counted == RowCount(rows_of_bag(base or [], appended), True)


@pytest.mark.parametrize("merge", [Upsert("k"), Keyed("k", {"n": "sum"}), Upsert("k", order_by="at")], ids=str)
@given(base=st.none() | st.lists(st.integers(0, 4), unique=True), deltas=CHANGES)
def test_numbers_of_keyed_channels(merge: MergeModel, base: list[int] | None, deltas: list[Change]) -> None:
    unique: list[Change] = [(k, list(dict.fromkeys(added)), list(dict.fromkeys(gone))) for k, added, gone in deltas]
    _agrees(count_rows(snapshot(merge, base, unique)), rows_by_key(base or [], unique))


def test_what_is_exact() -> None:
    some: list[Change] = [("delta", [1, 2], [])]
    assert count_rows(snapshot(Upsert("k"), None, some)) == RowCount(2, True), "the first delta has each key once"
    assert count_rows(snapshot(Upsert("k"), [1], [])) == RowCount(1, True)
    assert count_rows(snapshot(Upsert("k"), [1], some)) == RowCount(3, False)
    assert count_rows(snapshot(Upsert("k", order_by="at"), None, some)) == RowCount(2, False)
    assert count_rows(snapshot(Multiset(), [1], some)) == RowCount(3, True)
    custom = Custom(merge=rows_of_bag, chain=rows_of_bag, diff=rows_of_bag)
    assert count_rows(snapshot(custom, [1], some)) is None
    assert count_rows(snapshot(custom, [1], [])) == RowCount(1, True)


def _agrees(counted: RowCount | None, actual: int) -> None:
    assert counted is not None
    assert counted.at_most == actual if counted.is_exact else counted.at_most >= actual
