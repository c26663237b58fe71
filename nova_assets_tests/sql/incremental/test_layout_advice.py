"""``nova plan --advise``: layouts of inputs by which the unread changes would cost less."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.model.channel import Channel
from nova_assets.sql.incremental.build_operators import SourceTable, build_operators
from nova_assets.sql.incremental.layout_advice import MIN_ROWS, LayoutAdvice, advise_layouts
from nova_assets.sql.parse.dialect import parse_statement
from nova_assets.sql.query.resolved_query import resolve_query
from nova_assets.sql.text import SqlText

CHANNELS = {
    "orders": nova.Channel("orders", schema="id bigint, day date, amount int", merge=nova.Upsert(key="id")),
    "lines": nova.Channel("all_lines", schema="id bigint, line int, price int", merge=nova.Upsert(key=["line", "id"])),
    "events": nova.Channel("events", schema="day date, id int, v int", merge=nova.Upsert(key=["id", "day"])),
    "log": nova.Channel("log", schema="id bigint, text string"),
}
JOIN = "SELECT o.id, l.line, l.price FROM orders o JOIN lines l ON o.id = l.id"


def advice(sql: str, changed: Collection[str], rows: int = MIN_ROWS, **channels: Channel) -> list[LayoutAdvice]:
    known = {**CHANNELS, **channels}
    text = SqlText("query", sql)
    tree: Any = parse_statement(text)
    sources = {n: SourceTable(c.schema, c.merge.key) for n, c in known.items() if c.schema is not None}
    operators = build_operators(resolve_query(text, tree, {n: s.schema for n, s in sources.items()}), sources)
    return advise_layouts(operators, known, dict.fromkeys(known, rows), changed)


def test_the_other_side_of_a_join_is_searched_by_the_changed_keys() -> None:
    [found] = advice(JOIN, ["orders"])
    assert found == LayoutAdvice("lines", "all_lines", "id", "rows are joined with changes by o.id, l.id", MIN_ROWS)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT o.amount, x.id FROM orders o JOIN (SELECT id FROM lines WHERE price > 3) x ON x.id = o.id",
        "SELECT o.amount, l.line FROM orders o LEFT JOIN lines l ON l.id = o.id",
        "SELECT id, COUNT(DISTINCT line) AS n FROM lines GROUP BY id",
    ],
)
def test_columns_are_traced_to_their_dataset(sql: str) -> None:
    assert [(a.dataset, a.cluster_by) for a in advice(sql, ["orders", "lines"]) if a.dataset == "lines"] == [
        ("lines", "id")
    ]


def test_the_kept_side_of_a_join_is_searched_if_the_other_side_has_changed() -> None:
    sql = "SELECT o.amount, l.line FROM orders o LEFT JOIN lines l ON l.id = o.id"
    assert [a.dataset for a in advice(sql, ["orders"])] == ["lines"]
    assert {a.dataset for a in advice(sql, ["lines"])} == {"orders", "lines"}


def test_a_key_with_a_day_is_looked_up_by_the_day() -> None:
    sql = "SELECT id, COUNT(*) AS n FROM events GROUP BY id"
    assert [(a.cluster_by, a.reason) for a in advice(sql, ["events"])] == [
        ("day", "the earlier rows of changed keys are looked up")
    ]


def test_what_needs_no_layout() -> None:
    assert advice(JOIN, []) == [], "nothing has changed"
    assert advice(JOIN, ["orders"], rows=MIN_ROWS - 1) == [], "few rows"
    assert advice(JOIN, ["lines"]) == [
        LayoutAdvice("orders", "orders", "id", "rows are joined with changes by o.id, l.id", MIN_ROWS)
    ]
    clustered = nova.Channel(
        "lines", schema="id bigint, line int, price int", merge=nova.Upsert(key=["line", "id"]), cluster_by="line"
    )
    assert advice(JOIN, ["orders"], lines=clustered) == [], "its author has chosen a layout"
    assert advice("SELECT o.id FROM orders o JOIN log l ON l.id = o.id", ["orders"]) == [], "log has no key"
    assert advice("SELECT id, SUM(line) AS n FROM lines GROUP BY id", ["lines"]) == [], "added to stored groups"
    times = nova.Channel("lines", schema="id timestamp, line int", merge=nova.Upsert(key=["line", "id"]))
    moments = nova.Channel("orders", schema="id timestamp, k int", merge=nova.Upsert(key="k"))
    timed = "SELECT l.line FROM lines l JOIN orders o ON l.id = o.id"
    assert advice(timed, ["orders"], lines=times, orders=moments) == [], "bounds of timestamps are not used"
    assert advice("SELECT l.id FROM lines l JOIN orders o ON l.id + 1 = o.id", ["orders"]) == [], "computed"
