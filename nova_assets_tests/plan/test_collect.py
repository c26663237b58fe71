"""What may be collected (R15), and what is worth compacting (R14): on histories alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nova_assets.model.channel_state import ConsumerPosition, PinnedRead, RetentionState
from nova_assets.model.compaction import Compaction
from nova_assets.model.merge import Upsert
from nova_assets.model.reads import SnapshotDiff
from nova_assets.plan import modes
from nova_assets.plan.compaction import due_compactions, forced_compactions
from nova_assets.plan.garbage_collection import blocks_to_collect, retention_verdicts
from nova_assets_tests.plan.histories import block, history


def goes(text: str, *readers: ConsumerPosition, **facts: Any) -> str:
    """What goes, in the notation of histories."""
    return " ".join(
        b.id for b in blocks_to_collect(retention_verdicts(RetentionState(history(text), readers, **facts)))
    )


def test_novas_own_example() -> None:
    """2.4: B0, three deltas, compacted B3, a cursor at 2."""
    blocks = "d1 d2 d3 c3"
    assert goes(blocks, ConsumerPosition("dedup", 2)) == "d1 d2"
    assert goes(blocks, ConsumerPosition("dedup", 2, reads_old_snapshot=True)) == ""
    assert goes(blocks, ConsumerPosition("dedup", 2), may_get_base=True) == ""
    assert goes(blocks, ConsumerPosition("dedup", 3)) == "d1 d2 d3"
    assert goes(blocks) == "d1 d2 d3", "nobody consumes it"
    assert goes(blocks, ConsumerPosition("dedup", 0)) == "d1 d2 d3", "who has never run is given the newest snapshot"


@pytest.mark.parametrize(
    ("blocks", "facts", "gone"),
    [
        ("d1 d2 c2 d3 d4 c4", {"oldest_kept_version": 2}, "d1 d2"),
        ("d1 d2 c2 d3 d4 c4", {"oldest_kept_version": 3}, "d1 d2"),
        ("d1 d2 c2 d3 d4 c4", {"oldest_kept_version": 4}, "d1 d2 c2 d3 d4"),
        ("d1 d2 d3 c3", {"oldest_kept_version": 0}, ""),
        ("d1 d2 c2 d3 c3", {"pins": (PinnedRead("x", 2),)}, "d1 d2 d3"),
        ("d1 d2 c2 d3 c3", {"pins": (PinnedRead("x", 3, 1),)}, "c2"),
        ("d1 d2 d3 c3 d4", {"pins": (PinnedRead("x", 2, 0),)}, ""),
        ("d1 d2 d3 c3 d4", {"pins": (PinnedRead("x", 2),)}, "d3"),
        ("d1 d2 b3 d4 d5 c5", {"pins": (PinnedRead("x", 3, 1),)}, "d2"),
        ("b1 d2 b3 d4", {}, "b1 d2"),
        ("d1 d2 b3 d3 d4 c4", {}, "d1 d2 b3 d3 d4"),
    ],
)
def test_what_holds_a_block(blocks: str, facts: dict[str, Any], gone: str) -> None:
    assert set(goes(blocks, **facts).split()) == set(gone.split())


def test_r9_a_base_that_consumers_have_to_be_told_of_outlasts_a_compaction_after_it() -> None:
    blocks = "d1 c1 b2 d3 c3"
    assert goes(blocks, ConsumerPosition("join", 1), may_get_base=True) == "d1 d3"
    left = history("x1 c1 b2 x3 c3")
    assert isinstance(modes.changes(left, 1), SnapshotDiff)
    assert goes("x1 c1 b2 x3 c3 d4 c4", ConsumerPosition("join", 1), may_get_base=True) == "c3 d4", "and the next one"
    assert goes("x1 c1 b2 x3 c3 b4", ConsumerPosition("join", 1), may_get_base=True) == "b2 c3", (
        "until another takes its place"
    )
    assert goes("x1 c1 b2 x3 c3", ConsumerPosition("join", 3), may_get_base=True) == "c1 b2", "or it has been read"


def test_it_says_who_holds_what() -> None:
    told = {
        v.block.id: v.held_by
        for v in retention_verdicts(
            RetentionState(history("d1 d2 d3 c3"), (ConsumerPosition("dedup", 2, reads_old_snapshot=True),))
        )
    }
    assert told["c3"] == ("the newest snapshot",)
    assert told["d3"] == ("dedup, whose cursor is at 2",)
    assert told["d1"] == told["d2"] == ("dedup, for the snapshot at its cursor 2",)


def test_r15_what_an_execution_will_ask_for_once_it_has_committed_is_held() -> None:
    told = {
        v.block.id: v.held_by
        for v in retention_verdicts(RetentionState(history("d1 d2 d3 c3"), pins=(PinnedRead("it", 2, 0),)))
    }
    assert told["d3"] == ("it after its commit, whose cursor is at 2",)


def test_what_is_collected_stays_collected_and_what_is_left_answers() -> None:
    assert goes("x1 x2 d3 c3", ConsumerPosition("dedup", 2)) == ""
    assert goes("x1 x2 d3 c3", ConsumerPosition("dedup", 3)) == "d3"
    assert goes("x1 x2 d3 c3", ConsumerPosition("lost", 1)) == "d3", (
        "what it would need is gone already: it holds nothing"
    )


def test_r14_when_a_channel_is_compacted() -> None:
    keyed = Upsert(key="k")
    assert due_compactions(history("c1 d2 d3", merge=keyed), Compaction(), full_reads=0) == ()
    [many] = due_compactions(history("c1 d2 d3 d4", merge=keyed), Compaction(deltas=3), full_reads=0)
    assert (many.at, many.why) == (4, "3 deltas")
    assert (
        due_compactions(history("c1 d2 d3", merge=keyed), Compaction(), full_reads=50)[0].why
        == "50 full reads cost more than a new base"
    )
    assert due_compactions(history("c1 d2 d3"), Compaction(), full_reads=50)[0].why == "3 small files"
    assert due_compactions(history("c1"), Compaction(), full_reads=1000) == forced_compactions(history("c1")) == ()
    assert [c.at for c in forced_compactions(history("d1 d2"))] == [2]


def chained(text: str, cursors: tuple[int, ...] = (), **policy: Any) -> list[str]:
    limits = Compaction(**{"deltas": 4, "small": 1, "share": 100.0, **policy})
    return [
        c.range for c in due_compactions(history(text, merge=Upsert(key="k")), limits, full_reads=0, cursors=cursors)
    ]


def test_r14_beside_a_large_base_small_deltas_are_chained() -> None:
    assert chained("c1 d2 d3 d4") == []
    assert chained("c1 d2 d3 d4 d5") == ["Δ(1→5)"]
    assert chained("c1 d2 d3 d4 d5", small=1000) == ["B5"], "a small base is as quickly written"
    assert chained("c1 d2 d3 d4 d5", share=0.5) == ["B5"], "so is one that is not much larger than they are"
    assert chained("c1 d2 d3 d4 d5", cursors=(3,)) == ["Δ(1→3)", "Δ(3→5)"]
    assert chained("c1 d2 d3 d4 d5", cursors=(1, 5)) == ["Δ(1→5)"], "nobody stands in between"
    assert chained("c1 d1-4 d5 d6 d7", deltas=4) == ["Δ(1→7)"]


def test_r14_chains_are_made_in_tiers() -> None:
    """However many deltas come, there are never more than the limit, and each row is written again a few times."""
    there, written = ["c1:10"], 0
    for n in range(2, 1002):
        there.append(f"d{n}")
        for c in due_compactions(sized(there), Compaction(deltas=16, small=1, share=1e9), full_reads=0):
            run = [
                t for t in there[1:] if c.since is not None and c.since < int(t.split(":")[0].split("-")[-1].strip("d"))
            ]
            rows = sum(size_of(t) for t in run)
            written += rows
            there = [*there[: len(there) - len(run)], f"d{c.since}-{c.at}:{rows}"]
        assert len(there) <= 17
    assert sum(map(size_of, there[1:])) == 1000 and written < 5 * 1000
    assert forced_compactions(sized(["c1:10", "d2", "d3"]), chain_deltas=True)[0].range == "Δ(1→3)"


def size_of(text: str) -> int:
    return int(text.partition(":")[2] or 1)


def sized(there: list[str]) -> Any:
    """A history whose deltas are as large as they say: ``d2-9:8``."""
    blocks = tuple(block(t.partition(":")[0], Upsert(key="k"), rows=size_of(t)) for t in there)
    return replace(history("c1", merge=Upsert(key="k")), blocks=blocks, head=blocks[-1].hi)


def test_r18_nothing_is_compacted_while_a_changed_model_waits_for_its_base() -> None:
    waiting = replace(history("c1 d2 d3", merge=Upsert(key="k")), merge=Upsert(key=["k", "v"]))
    assert (
        forced_compactions(waiting)
        == forced_compactions(waiting, chain_deltas=True)
        == due_compactions(waiting, Compaction(deltas=1), 9)
        == ()
    )
