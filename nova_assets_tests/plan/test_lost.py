"""What a missing file means, and which blocks nobody misses: on histories alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nova_assets.errors import BlockCollected
from nova_assets.model.channel_state import ConsumerPosition, RetentionState
from nova_assets.model.damage import Damage
from nova_assets.model.merge import Upsert
from nova_assets.plan import modes
from nova_assets.plan.lost_files import (
    answerable_versions,
    blocks_to_give_up,
    damage_of_lost_files,
    history_without_blocks,
    losses_by_partition,
    newest_answerable_version,
)
from nova_assets_tests.plan.histories import block, history

KEYED = Upsert(key="k")


def goes(text: str, damaged: str, *readers: ConsumerPosition, **facts: Any) -> str:
    """The damaged blocks that are given up, in the notation of histories."""
    of = RetentionState(history(text, merge=KEYED), readers, **facts)
    return " ".join(b.id for b in blocks_to_give_up(of, frozenset(damaged.split())))


def said(text: str, damaged: str, *readers: ConsumerPosition, writer: str | None = None, **facts: Any) -> Damage:
    """What is said of a history of which these blocks have lost their file."""
    of = RetentionState(history(text, merge=KEYED), readers, **facts)
    [damage] = damage_of_lost_files(
        of, {f"blocks/{b}/part-0": "is missing" for b in damaged.split()}, ("totals",), writer
    )
    return damage


@pytest.mark.parametrize(
    ("blocks", "damaged", "readers", "given"),
    [
        ("d1 d2 d3 c3", "c3", (), "c3"),
        ("d1 d2 d3 c3 d4", "c3", (ConsumerPosition("r", 2),), "c3"),
        ("d1 d2 d3 c3", "d2", (), "d2"),
        ("d1 d2 d3 c3", "d3", (ConsumerPosition("r", 2),), ""),
        ("d1 d2 d3 c3", "d1", (ConsumerPosition("r", 2),), "d1"),
        ("d1 d2 d3 c3", "d1", (ConsumerPosition("r", 2, reads_old_snapshot=True),), ""),
        ("d1 d2 d3 c3", "d1 c3", (), ""),
        ("d1 d2 d3 c3", "d1 d2", (), "d1 d2"),
        ("d1 d2", "d2", (), ""),
        ("b1 d2 b3", "b1", (), "b1"),
        ("d1 d2 d1-2 d3", "d1-2", (ConsumerPosition("r", 0),), "d1-2"),
    ],
)
def test_a_block_that_nobody_misses_is_given_up(
    blocks: str, damaged: str, readers: tuple[ConsumerPosition, ...], given: str
) -> None:
    assert goes(blocks, damaged, *readers) == given


def test_what_is_kept_for_time_travel_is_missed() -> None:
    assert goes("d1 d2 d3 c3", "d2", oldest_kept_version=1) == ""
    assert goes("d1 d2 d3 c3", "c3", oldest_kept_version=1) == "c3", "the deltas lead to 3 as well"


def test_partitions_are_judged_each_by_itself() -> None:
    of = history("d1 d2 c2", merge=KEYED)
    other = tuple(replace(b, id=f"{b.id}x", partition="p=x") for b in history("d3 d4", merge=KEYED).blocks)
    facts = RetentionState(replace(of, head=4, blocks=(*of.blocks, *other)))
    assert [b.id for b in blocks_to_give_up(facts, frozenset({"c2", "d4x"}))] == ["c2"]
    assert [loss.partition_history.partition for loss in losses_by_partition(facts, frozenset({"c2", "d4x"}))] == [
        "",
        "p=x",
    ]
    assert newest_answerable_version(facts, losses_by_partition(facts, frozenset({"d4x"}))) == 3


def test_it_says_what_is_lost_for_whom_and_what_to_type() -> None:
    damage = said("d1 d2 d3 d4", "d3", ConsumerPosition("dedup", 2), may_get_base=True)
    assert damage.cure is None and damage.wrong and damage.subject == "c"
    assert damage.what == "Δ(2→3) of c: blocks/d3/part-0 is missing"
    assert damage.means == (
        "versions 3 to 4 of c cannot be read; needed by the newest snapshot; dedup, whose cursor is at 2; "
        "read by totals"
    )
    assert damage.next == (
        "copy the files back from a backup; or nova restore c --at 2, which writes a base of the newest readable "
        "version, without the later data"
    )


def test_what_to_type_depends_on_who_writes_and_who_reads() -> None:
    assert "or nova run weekly, which writes a new base; or" in (said("b1 b2", "b2", writer="weekly").next or "")
    assert "nova insert c FILE --kind base" in (said("d1 d2", "d1").next or "")
    lagging = said("d1 d2 d3", "d3", ConsumerPosition("dedup", 2)).next or ""
    assert "a new base would have to be compared with them, for consumer dedup" in lagging and "restore" not in lagging
    stuck = said("d1 d2 d3 c3", "d1 d2", ConsumerPosition("dedup", 1, reads_old_snapshot=True)).next or ""
    assert (
        "nova restore c --at 3, which writes a base of the newest readable version (dedup can continue only with"
        in stuck
    )
    assert said("d1 d2 d3 c3", "d2", oldest_kept_version=1).next == "copy the files back from a backup"


def test_a_block_that_is_given_up_says_what_can_no_longer_be_read() -> None:
    damage = said("d1 d2 d3 c3", "d1")
    assert damage.cure == "give up" and damage.concerns == ("d1",)
    assert damage.means == (
        "every retained read is possible without Δ(0→1); versions 1 to 2, which no reader needs, cannot be read"
    )
    whole = said("d1 d2 d3 c3", "c3")
    assert whole.means == "every retained read is possible without B3"


def test_a_file_of_another_size_is_named_with_both() -> None:
    of = RetentionState(history("d1 d2", merge=KEYED))
    [damage] = damage_of_lost_files(of, {"blocks/d2/part-0": "has 3 bytes in place of 10"})
    assert damage.what == "Δ(1→2) of c: blocks/d2/part-0 has 3 bytes in place of 10"
    assert damage_of_lost_files(of, {}) == [] and damage_of_lost_files(of, {"blocks/other/part-0": "is missing"}) == []


def test_a_channel_that_is_only_added_to_cannot_be_given_a_base_that_was_not_compared() -> None:
    [damage] = damage_of_lost_files(
        RetentionState(history("d1 d2"), (ConsumerPosition("r", 1),), may_get_base=True),
        {"blocks/d2/part-0": "is missing"},
    )
    assert damage.next is not None and "compared" in damage.next and "restore" not in damage.next


@given(
    st.lists(st.sampled_from("bdc"), min_size=1, max_size=7),
    st.sets(st.integers(0, 9)),
    st.sets(st.tuples(st.integers(0, 6), st.integers(2, 7)), max_size=2),
)
def test_all_numbers_at_once_are_answered_as_one_by_one(kinds: list[str], gone: set[int], chains: Any) -> None:
    blocks = [block(f"{'b' if kind == 'b' else 'd'}{n}", KEYED) for n, kind in enumerate(kinds, start=1)]
    blocks += [block(f"c{n}", KEYED) for n, kind in enumerate(kinds, start=1) if kind == "c"]
    blocks += [block(f"d{lo}-{hi}", KEYED) for lo, hi in chains if lo + 1 < hi <= len(kinds)]
    whole = replace(history("d1", merge=KEYED), head=len(kinds), blocks=tuple(sorted(blocks, key=lambda b: b.hi)))
    left = history_without_blocks(whole, [b for n, b in enumerate(whole.blocks) if n in gone])
    [track] = left.partition_histories
    one_by_one = set()
    for n in (0, *track.numbers):
        try:
            modes.base_and_deltas(left, track, n)
            one_by_one.add(n)
        except BlockCollected:
            pass
    assert answerable_versions(track) == one_by_one
