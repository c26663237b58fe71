"""The table of modes (DESIGN §3), row by row."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nova_assets.errors import BlockCollected, VersionNotFound
from nova_assets.model.reads import EmptyRead, SnapshotAsInserts, SnapshotDiff, StagedBlockPlaceholder, describe_read
from nova_assets.model.schema import parse_ddl
from nova_assets.plan import modes
from nova_assets_tests.plan.histories import block, history


def test_a_channel_without_blocks_is_b0() -> None:
    assert describe_read(modes.snapshot(history(""))) == "B0 (empty)"


@pytest.mark.parametrize(
    ("blocks", "at", "read"),
    [
        ("d1 d2 d3", 3, "Δ(0→1) ⊕ Δ(1→2) ⊕ Δ(2→3)"),
        ("d1 d2 d3", 2, "Δ(0→1) ⊕ Δ(1→2)"),
        ("b1 d2 d3", 3, "B1 ⊕ Δ(1→2) ⊕ Δ(2→3)"),
        ("d1 b2 d3", 3, "B2 ⊕ Δ(2→3)"),
        ("d1 b2 d3", 1, "Δ(0→1)"),
        ("b1 b2", 2, "B2"),
        ("d1 d2", 0, "B0 (empty)"),
    ],
)
def test_all_is_the_newest_base_and_the_deltas_after_it(blocks: str, at: int, read: str) -> None:
    assert describe_read(modes.snapshot(history(blocks), at)) == read


@pytest.mark.parametrize(
    ("blocks", "at", "read"),
    [
        ("d1 d2 c2 d3", 3, "B2 ⊕ Δ(2→3)"),
        ("d1 d2 d3 d1-3", 3, "Δ(0→1) ⊕ Δ(1→3)"),
        ("d1 d2 d3 d1-3", 2, "Δ(0→1) ⊕ Δ(1→2)"),
        ("c2 d3", 3, "B2 ⊕ Δ(2→3)"),
    ],
)
def test_r9_compaction_gives_a_shorter_way_to_the_same_answer(blocks: str, at: int, read: str) -> None:
    assert describe_read(modes.snapshot(history(blocks), at)) == read


def test_never_run_reads_the_snapshot_as_inserts() -> None:
    read = modes.changes(history("d1 b2 d3"), 0)
    assert isinstance(read, SnapshotAsInserts) and describe_read(read) == "B2 ⊕ Δ(2→3) as inserts"
    assert isinstance(modes.old(history("d1"), 0), EmptyRead)


def test_no_block_since_the_cursor_reads_an_empty_frame_with_the_schema() -> None:
    read = modes.changes(history("d1 d2"), 2)
    assert isinstance(read, EmptyRead) and read.is_change and str(read.schema) == "k bigint, v bigint"
    assert describe_read(modes.old(history("d1 d2"), 2)) == "Δ(0→1) ⊕ Δ(1→2)"


def test_deltas_since_the_cursor_are_chained_in_order() -> None:
    assert describe_read(modes.changes(history("b1 d2 d3 d4"), 1)) == "Δ(1→2) · Δ(2→3) · Δ(3→4)"
    assert describe_read(modes.changes(history("b1 d2 d3 d4"), 2, 3)) == "Δ(2→3)"


def test_a_base_since_the_cursor_is_diffed() -> None:
    read = modes.changes(history("d1 d2 b3 d4"), 1)
    assert isinstance(read, SnapshotDiff) and describe_read(read) == "diff(Δ(0→1), B3 ⊕ Δ(3→4))"


def test_r9_a_compacted_base_is_never_diffed() -> None:
    assert describe_read(modes.changes(history("d1 d2 c2 d3"), 1)) == "Δ(1→2) · Δ(2→3)"
    assert describe_read(modes.changes(history("d1 d2 d3 c3"), 1)) == "Δ(1→2) · Δ(2→3)"


def test_old_stops_at_the_cursor() -> None:
    assert describe_read(modes.old(history("b1 d2 d3"), 2)) == "B1 ⊕ Δ(1→2)"


def test_versions_that_do_not_exist() -> None:
    with pytest.raises(VersionNotFound, match="has no version 9"):
        modes.snapshot(history("d1"), 9)
    with pytest.raises(VersionNotFound, match="no changes since 5"):
        modes.changes(history("d1"), 5)


def test_a_collected_version_names_the_oldest_that_is_left() -> None:
    gone = history("x1 x2 x3 c3 d4")
    with pytest.raises(BlockCollected, match=r"version 2 .* was collected") as met:
        modes.snapshot(gone, 2)
    assert modes.oldest_answerable_version(gone) == 3 and "3 or later" in str(modes.version_collected_error("c", 2, 3))
    assert met.value.channel == "c" and met.value.found == 2
    with pytest.raises(BlockCollected):
        modes.changes(gone, 2)


def test_r15_a_base_beside_what_it_changes_is_no_gap() -> None:
    assert describe_read(modes.changes(history("d1 d2 b3 d3 d4"), 1)) == "Δ(1→2) · Δ(2→3) · Δ(3→4)"
    assert describe_read(modes.snapshot(history("d1 d2 b3 d3 d4"))) == "B3 ⊕ Δ(3→4)"


def test_r13_numbers_taken_by_other_partitions_change_nothing() -> None:
    here = history("d2 d5", head=9)
    assert describe_read(modes.snapshot(here)) == "Δ(1→2) ⊕ Δ(4→5)"
    assert describe_read(modes.snapshot(here, 4)) == "Δ(1→2)"
    assert describe_read(modes.changes(here, 3)) == "Δ(4→5)"
    assert isinstance(modes.changes(here, 6), EmptyRead)


@pytest.mark.parametrize(
    ("since", "kind", "read"),
    [
        (0, "delta", "Δ(0→1) ⊕ Δ(1→2) ⊕ Δ(staged) as inserts"),
        (1, "delta", "Δ(1→2) · Δ(staged)"),
        (2, "delta", "Δ(staged)"),
        (0, "base", "B(staged) as inserts"),
        (1, "base", "diff(Δ(0→1), B(staged))"),
        (2, "base", "diff(Δ(0→1) ⊕ Δ(1→2), B(staged))"),
    ],
)
def test_r5_a_staged_block_reads_as_if_committed_on_top_of_the_pins(since: int, kind: str, read: str) -> None:
    h = history("d1 d2")
    assert (
        describe_read(modes.with_staged_block(modes.changes(h, since), StagedBlockPlaceholder("p", kind), h, since))
        == read
    )


@given(st.lists(st.sampled_from("bd"), min_size=1, max_size=8), st.data())
def test_r9_every_snapshot_and_change_stays_answerable_whatever_is_compacted(
    kinds: list[str], data: st.DataObject
) -> None:
    """Random channels, with compacted bases and chained deltas added: paths exist, meet exactly, and respect bases."""
    head = len(kinds)
    blocks = [f"{k}{n}" for n, k in enumerate(kinds, start=1)]
    extra = [f"c{n}" for n in data.draw(st.sets(st.integers(1, head)))]
    for lo in range(1, head):
        for hi in range(lo + 2, head + 1):
            if all(k == "d" for k in kinds[lo:hi]) and data.draw(st.booleans()):
                extra.append(f"d{lo}-{hi}")
    h, plain = history(" ".join(blocks + extra)), history(" ".join(blocks))
    for at in range(head + 1):
        read = modes.snapshot(h, at)
        ends = [max((b.hi for b in read.bases), default=0)] + [d.hi for d in read.deltas]
        starts = [d.lo for d in read.deltas]
        assert starts == ends[:-1] and (ends[-1] == at)
        for since in range(at + 1):
            assert type(modes.changes(h, since, at)) is type(modes.changes(plain, since, at))


def test_a_version_has_the_schema_that_its_newest_block_had() -> None:
    older, newer = parse_ddl("k bigint"), parse_ddl("k bigint, v bigint")
    blocks = [block("b1"), block("d2"), block("d3")]
    schemas = [older, older, newer]
    written = [replace(b, manifest=replace(b.manifest, schema=s)) for b, s in zip(blocks, schemas, strict=True)]
    changed = replace(history("b1 d2 d3"), blocks=tuple(written), schema=newer)
    assert [modes.schema_at_version(changed, n) for n in (1, 2, 3)] == schemas
