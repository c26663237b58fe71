"""How pictures look in a terminal, and in a pipe: line by line."""

from __future__ import annotations

from dataclasses import replace
from textwrap import dedent

import pytest

from nova_assets.cli.timeline import render_chart_lines
from nova_assets.model.channel_state import BlockSpan, ChannelOutline
from nova_assets.plan.timeline_chart import build_chart
from nova_assets_tests.plan.outlines import of_day, outline


def assert_chart(channel_outline: ChannelOutline, expected: str, width: int = 80) -> None:
    """The lines of a drawing, below its title."""
    title, empty, *lines = render_chart_lines(build_chart(channel_outline), width)
    assert (title, empty) == (f"orders: head {channel_outline.head}", "")
    assert lines == dedent(expected).strip("\n").splitlines()
    assert all(len(line) <= width for line in lines)


def test_before_anything_came() -> None:
    assert_chart(
        outline(sell=0),
        """
                 0
        sell     ●  at 0, lag 0

        ● read up to here
        """,
    )


def test_of_one_number() -> None:
    assert_chart(
        outline("d1", sell=1),
        """
                 0   1
        deltas    ───▶
        sell     ━━━━●  at 1, lag 0

        ─▶ delta  ● read up to here
        """,
    )


def test_bases_collected_numbers_and_one_who_never_ran() -> None:
    assert_chart(
        outline("x1..2 b3 d4..5 c5", audit=0, sell=3),
        """
                 0   1   2   3   4   5
        bases                ■       □
        deltas       ·   ·    ───▶───▶
        audit    ●┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄  at 0, lag 5
        sell     ━━━━━━━━━━━━●┄┄┄┄┄┄┄┄  at 3, lag 2

        ■ base  □ compacted base  ─▶ delta  · collected  ● read up to here  ┄ unread
        """,
    )


def test_chained_deltas_that_overlap_are_below_each_other() -> None:
    assert_chart(
        outline("b1 d2 x3 d4..9 c7 d1-4 d2-6 d5-9", sell=9),
        """
                 0   1   2   3   4   5   6   7   8   9
        bases        ■                       □
        deltas        ───▶   ·───▶───▶───▶───▶───▶───▶
        chained       ═══════════▶    ═══════════════▶
        chained           ═══════════════▶
        sell     ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━●  at 9, lag 0

        ■ base  □ compacted base  ─▶ delta  ═▶ chained deltas  · collected
        ● read up to here
        """,
    )


def test_of_sixty_numbers_the_newest() -> None:
    assert_chart(
        outline("x1..44 d45..60 c32 c52", sell=58, audit=12, **{"asset:reports/daily": 45}),
        """
        … 1–39                40  42  44  46  48  50  52  54  56  58  60
        bases                                          □
        deltas                 · · · · ·─▶─▶─▶─▶─▶─▶─▶─▶─▶─▶─▶─▶─▶─▶─▶─▶
        asset:reports/daily  ━━━━━━━━━━━━●┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄  at 45, lag 15
        audit                ◀ 12 ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄  at 12, lag 48
        sell                 ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━●┄┄┄┄  at 58, lag 2

        □ compacted base  ─▶ delta  · collected  ● read up to here  ┄ unread
        """,
    )


def test_of_three_thousand_numbers_the_newest() -> None:
    assert_chart(
        outline("x1..2979 d2980..3000 c2990 d2984-2990", sell=2999, audit=812),
        """
        … 1–2975         2980      2985      2990      2995      3000
        bases                                   □
        deltas      · · · ·─▶─▶─▶─▶─▶─▶─▶─▶─▶─▶─▶─▶─▶─▶─▶─▶─▶─▶─▶─▶─▶
        chained                      ═══════════▶
        audit     ◀ 812 ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄  at 812, lag 2188
        sell      ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━●┄┄  at 2999, lag 1

        □ compacted base  ─▶ delta  ═▶ chained deltas  · collected  ● read up to here
        ┄ unread
        """,
    )


def test_of_partitions_the_slowest_and_the_fastest() -> None:
    assert_chart(
        outline("d1..12", of_day("sum_up", 1, 3, 8), of_day("sum_up", 2, 5, 5), of_day("sum_up", 3, 9, 11)),
        """
                 0   2   4   6   8  10  12
        deltas    ─▶─▶─▶─▶─▶─▶─▶─▶─▶─▶─▶─▶
        sum_up   ━━━━━━●╍╍╍╍╍╍╍╍╍╍╍╍╍╍╍╍╍○  at 3–12, lag 5, 3 partitions

        ─▶ delta  ● read up to here  ╍ in some partitions
        """,
    )


def test_without_consumers() -> None:
    assert_chart(
        outline("d1..4"),
        """
                 0   1   2   3   4
        deltas    ───▶───▶───▶───▶

        ─▶ delta  no consumer has a cursor on it
        """,
    )


def test_a_cursor_at_the_left_edge_is_seen_and_one_left_of_it_is_told() -> None:
    at_the_edge, left_of_it = (render_chart_lines(build_chart(outline("d1..300", sell=n)), 80) for n in (273, 272))
    assert at_the_edge[2].startswith("… 1–273 ") and left_of_it[2].startswith("… 1–273 ")
    assert at_the_edge[4].startswith("sell     ●┄") and left_of_it[4].startswith("sell     ◀ 272 ┄")


def test_of_many_chained_deltas_some_are_left_out_and_counted() -> None:
    many = " ".join(f"d{n}-12" for n in range(9))
    rows = [
        line for line in render_chart_lines(build_chart(outline(f"d1..12 {many}")), 80) if line.startswith("chained")
    ]
    assert len(rows) == 4 and rows[-1].endswith("▶  and 5 more")


@pytest.mark.parametrize("head", [0, 1, 5, 13, 14, 26, 27, 28, 60, 999, 1000, 3000])
@pytest.mark.parametrize("width", [60, 80, 81, 200])
def test_it_keeps_to_its_width_and_its_rows_to_each_other(head: int, width: int) -> None:
    _, _, axis, *rows = render_chart_lines(
        build_chart(outline(f"d1..{head}", sell=head // 2, audit=0, all_done=head)), width
    )
    assert all(len(line) <= width for line in (axis, *rows))
    assert axis.endswith(str(head))
    done = next(row for row in rows if row.startswith("all_done"))
    assert done.index("●") == len(axis) - 1, "the head is above the end of what was read"


def test_a_dropped_partition_is_marked() -> None:
    lines = render_chart_lines(
        build_chart(replace(outline("d1..3"), spans=(BlockSpan("delta", 0, 1), BlockSpan("base", 2, 2, "drop")))), 80
    )
    assert lines[3:5] == ["bases            ×", "deltas    ───▶"] and "× partition dropped" in lines[-1]


def test_a_long_name_is_cut_on_a_terminal_and_whole_in_a_pipe() -> None:
    seen = build_chart(outline("d1..60", **{"asset:" + "x" * 40: 3}))
    assert any(line.startswith("asset:" + "x" * 40 + "  ") for line in render_chart_lines(seen, 80))
    cut = render_chart_lines(seen, 80, max_name_length=24)
    assert any(line.startswith("asset:" + "x" * 17 + "…  ") for line in cut) and max(map(len, cut)) <= 80


def test_no_name_commands_the_terminal() -> None:
    assert "\x1b" not in "".join(render_chart_lines(build_chart(outline("d1", **{"\x1b[2J": 1})), 80))
