"""What a picture of a channel shows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.model.channel_state import BlockSpan
from nova_assets.plan.timeline_chart import ConsumerLane, build_chart
from nova_assets_tests.plan.outlines import of_day, outline


def test_bases_that_were_given_and_that_compaction_made_are_told_apart() -> None:
    seen = build_chart(outline("b1 d2 d3 c3 d4 b5 d5 c5"))
    assert (seen.bases, seen.compacted, seen.deltas) == ((1, 5), (3,), (2, 3, 4, 5))


def test_a_delta_over_several_numbers_is_a_chained_one() -> None:
    seen = build_chart(outline("d1..4 d1-3 d1-4"))
    assert (seen.deltas, seen.chained) == ((1, 2, 3, 4), ((1, 3), (1, 4)))


def test_a_number_is_collected_when_nothing_that_was_given_at_it_is_left() -> None:
    seen = build_chart(outline("x1..3 b3 c2 x4 d5"))
    assert seen.collected == (1, 2, 4), "a compacted base is no block that was given; a base that was, is"
    assert build_chart(replace(outline("d1"), spans=(BlockSpan("base", 1, 1, "compact", True),))).collected == ()


def test_a_partition_that_retention_dropped_is_no_base_that_was_given() -> None:
    with_drops = (*outline("d1..2 b4").spans, BlockSpan("base", 3, 3, "drop"), BlockSpan("base", 4, 4, "drop"))
    seen = build_chart(replace(outline("b4"), spans=with_drops))
    assert (seen.bases, seen.compacted, seen.dropped) == ((4,), (), (3,))
    assert seen.newest_only(1).dropped == ()


def test_partitions_are_put_together_and_a_block_of_any_is_there() -> None:
    one_is_gone = (BlockSpan("delta", 0, 1), BlockSpan("delta", 0, 1, collected=True))
    seen = build_chart(replace(outline("d1"), spans=one_is_gone))
    assert (seen.deltas, seen.collected) == ((1,), ())


def test_a_consumer_of_partitions_stands_between_its_slowest_and_its_fastest() -> None:
    seen = build_chart(outline("d1..12", of_day("sum", 1, 3, 8), of_day("sum", 2, 5, 5), of_day("sum", 3, 9, 11)))
    assert seen.lanes == (ConsumerLane("sum", at=3, fastest=12, lag=5, partitions=3),), (
        "day 2 has nothing unread up to 12"
    )


def test_a_consumer_that_has_read_all_stands_at_the_head() -> None:
    assert build_chart(outline("d1..9", of_day("sum", 1, 4, 4))).lanes == (ConsumerLane("sum", at=9, fastest=9, lag=0),)


def test_who_never_ran_has_read_nothing() -> None:
    orders, stock = nova.Channel("orders", schema="k int"), nova.Channel("stock", schema="k int")

    @nova.task(consumes=[nova.new(orders), nova.all(stock)], produces=nova.delta("out"))
    def sell(orders: Any, stock: Any) -> Any: ...

    bound = [nova.bind(nova.Workflowette(name, [sell])) for name in ("sell", "audit")]
    assert build_chart(outline("d1..3", sell=2), bound).lanes == (
        ConsumerLane("audit", 0, 0, 3),
        ConsumerLane("sell", 2, 2, 1),
    )
    assert build_chart(replace(outline("d1"), channel="stock"), bound).lanes == (), "who reads all of it has no cursor"


def test_unread_rows_are_those_of_the_changes_after_the_cursor() -> None:
    base = BlockSpan("base", 0, 1, "insert", rows=100)
    changes = [BlockSpan("delta", n - 1, n, rows=n) for n in (2, 3, 4)]
    replaced = BlockSpan("base", 0, 4, "task", rows=90)  # its readers read the delta that stands beside it
    compacted = [BlockSpan("delta", 1, 3, "compact", rows=5), BlockSpan("base", 0, 3, "compact", rows=105)]
    seen = replace(outline(), spans=(base, *changes, replaced, *compacted), head=4)

    def unread(*spans: BlockSpan, **cursors: int) -> dict[str, int]:
        made = replace(outline("d1..4", **cursors), spans=spans or seen.spans)
        return build_chart(made).unread_rows_by_consumer

    assert unread(new=0, some=2, done=4) == {"done": 0, "new": 109, "some": 7}
    assert unread(*changes, behind=0, some=2) == {"some": 7}, "earlier numbers are left out"


def test_the_newest_numbers_alone_say_what_they_leave_out() -> None:
    whole = build_chart(outline("b1 d2..3000 c2990 d2970-2980 x2 d2890-2960", sell=812))
    seen = whole.newest_only(30)
    assert (seen.start, seen.numbers, seen.left_out_label) == (2970, 30, "… 1–2970")
    assert (seen.bases, seen.compacted, seen.chained) == ((), (2990,), ((2970, 2980),))
    assert seen.deltas == tuple(range(2971, 3001)) and seen.lanes == whole.lanes
    assert whole.newest_only(3000).left_out_label == "" and whole.newest_only(2999).left_out_label == "… 1"
    assert whole.newest_only(0).numbers == 1, "the head is always seen"
    assert build_chart(outline()).newest_only(5).numbers == 0


@pytest.mark.parametrize(
    ("head", "shown", "apart", "ticks"),
    [
        (0, 9, 0.5, (0,)),
        (5, 9, 0.5, (0, 1, 2, 3, 4, 5)),
        (12, 12, 1.5, (0, 2, 4, 6, 8, 10, 12)),
        (3000, 30, 2.5, (2975, 2980, 2985, 2990, 2995, 3000)),
        (3001, 30, 2.5, (2975, 2980, 2985, 2990, 2995, 3001)),
        (3002, 30, 2.5, (2975, 2980, 2985, 2990, 2995, 3002)),
        (3003, 30, 2.5, (2975, 2980, 2985, 2990, 2995, 3000, 3003)),
    ],
)
def test_round_numbers_are_written_and_the_head(head: int, shown: int, apart: float, ticks: tuple[int, ...]) -> None:
    assert build_chart(outline(f"d1..{head}")).newest_only(shown).axis_numbers(apart) == ticks
