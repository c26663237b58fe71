"""A picture as SVG: what is in it, its size, and text that breaks nothing."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from nova_assets.model.channel_state import BlockSpan
from nova_assets.plan.timeline_chart import build_chart, render_svg
from nova_assets_tests.plan.outlines import of_day, outline

SPACE = "{http://www.w3.org/2000/svg}"


def texts(drawn: str) -> list[str]:
    return [t.text or "" for t in ElementTree.fromstring(drawn).iter(f"{SPACE}text")]


def marks(drawn: str, mark: str) -> list[str]:
    return [e.get("d", "") for e in ElementTree.fromstring(drawn).iter() if e.get("class") == mark]


def test_it_has_bases_deltas_cursors_and_lags() -> None:
    drawn = render_svg(build_chart(outline("x1..2 b3 d4..5 c5 d3-5", sell=3, audit=0)))
    assert texts(drawn) == [
        *("orders: head 5", "0", "1", "2", "3", "4", "5", "bases", "deltas", "chained"),
        *("audit", "at 0, lag 5", "sell", "at 3, lag 2"),
    ]
    assert len(marks(drawn, "b")) == len(marks(drawn, "c")) == len(marks(drawn, "k")) == 1
    assert marks(drawn, "d")[0].count("M") == 2, "one line for each delta"
    assert len(marks(drawn, "g")) == 2, "and a point for each number that was collected"
    assert len(marks(drawn, "r")) == 1, "audit has read nothing"


def test_of_many_numbers_it_has_the_newest() -> None:
    drawn = render_svg(build_chart(outline("d1..3000", audit=812)))
    assert "… 1–2960" in texts(drawn) and "at 812, lag 2188" in texts(drawn)
    assert marks(drawn, "d")[0].count("M") == 40 and len(marks(drawn, "h")) == 1


@pytest.mark.parametrize("name", ["<&>" * 30, "\x00\x1b[2J", "a\ud800b", "Σ" * 300])
def test_no_name_breaks_it_and_it_stays_small(name: str) -> None:
    many = {f"{n}{name}": 2960 + n for n in range(30)}
    chained = " ".join(f"d{n}-{n + 9}" for n in range(2950, 2991))
    drawn = render_svg(build_chart(outline(f"x1..2975 d2976..3000 c2990 {chained}", **many)))
    assert len(drawn.encode()) < 6000
    assert "and 18 more" in texts(drawn), "those that are furthest behind are there"
    assert next(t for t in texts(drawn) if re.fullmatch(r"at \d+, lag \d+", t)) == "at 2960, lag 40"


def test_a_dropped_partition_is_marked() -> None:
    drawn = render_svg(build_chart(replace(outline("d1..2"), spans=(BlockSpan("base", 2, 2, "drop"),))))
    assert texts(drawn)[-2:] == ["bases", "×"]


def test_partitions_of_a_consumer_are_one_line() -> None:
    drawn = render_svg(build_chart(outline("d1..9", of_day("sum", 1, 3, 8), of_day("sum", 2, 9, 9))))
    assert "at 3–9, lag 5, 2 partitions" in texts(drawn) and len(marks(drawn, "p")) == 1


@pytest.mark.parametrize("head", [0, 1, 60])
def test_any_head_can_be_drawn(head: int) -> None:
    assert texts(render_svg(build_chart(outline(f"d1..{head}", sell=head))))[0] == f"orders: head {head}"
