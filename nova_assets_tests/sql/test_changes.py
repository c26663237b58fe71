"""What a change breaks, told at compile time."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

import nova_assets as nova
from nova_assets.errors import SqlError
from nova_assets.sql.datasets.breaking_changes import Change, find_changes
from nova_assets.sql.datasets.graph_builder import build_graph
from nova_assets.sql.statement.dataset_statement import parse_dataset_statement
from nova_assets.sql.text import SqlText

ORDERS = nova.Channel("orders", schema="id bigint, customer string, price decimal(10,2), day date")

DATASETS = {
    "daily": "SELECT day, customer, SUM(price) AS total, COUNT(*) AS orders FROM orders GROUP BY day, customer",
    "best": "-- owner: crm@example.org\nSELECT customer, MAX(total) AS most\nFROM daily\nWHERE total > 10\n"
    "GROUP BY customer",
    "names": "SELECT DISTINCT customer FROM daily",
    "top": "-- owner: web@example.org\nSELECT customer AS who, most * 2 AS twice FROM best",
}


def found(to: Mapping[str, str], orders: nova.Channel = ORDERS) -> dict[str, Change]:
    """What becomes of it when some statements are replaced; none for those that are taken away."""
    old = build_graph([SqlText(f"{n}.sql", s) for n, s in DATASETS.items()], [ORDERS])
    new = {n: s for n, s in {**DATASETS, **to}.items() if s}
    return {
        str(c): c
        for c in find_changes(old, [parse_dataset_statement(SqlText(f"{n}.sql", s)) for n, s in new.items()], [orders])
    }


def places(change: Change) -> list[tuple[str, tuple[str, ...], int, int, str]]:
    return [(b.file, b.affected_columns, b.line, b.column, b.owner) for b in change.breaks]


def test_nothing_is_nothing() -> None:
    assert found({}) == {}


def test_a_dropped_column_breaks_whoever_names_it_and_what_is_made_of_that() -> None:
    [change] = found({"daily": "SELECT day, customer, COUNT(*) AS orders FROM orders GROUP BY day, customer"}).values()
    assert str(change) == "daily.total is dropped"
    assert change.is_breaking
    assert places(change) == [
        ("best.sql", ("most",), 2, 22, "crm@example.org"),
        ("best.sql", ("most",), 4, 7, "crm@example.org"),
        ("top.sql", ("twice",), 2, 25, "web@example.org"),
    ]
    assert change.breaks[0].snippet == "    2 | SELECT customer, MAX(total) AS most\n      |                      ^^^^^"


def test_a_renamed_column_is_told_from_a_dropped_one() -> None:
    sql = "SELECT day, customer, SUM(price) AS revenue, COUNT(*) AS orders FROM orders GROUP BY day, customer"
    [change] = found({"daily": sql}).values()
    assert str(change) == "daily.total is renamed: total → revenue"
    assert len(change.breaks) == 3


def test_another_type_breaks_and_a_wider_one_does_not() -> None:
    sql = "SELECT day, customer, {} AS total, COUNT(*) AS orders FROM orders GROUP BY day, customer"
    [change] = found({"daily": sql.format("CAST(SUM(price) AS STRING)")}).values()
    assert str(change) == "daily.total is retyped: decimal(20,2) → string"
    assert [b.dataset for b in change.breaks] == ["best", "best", "top"]
    [change] = found({"daily": sql.format("CAST(SUM(price) AS DECIMAL(24,4))")}).values()
    assert str(change) == "daily.total is widened: decimal(20,2) → decimal(24,4)"
    assert not change.is_breaking


def test_what_is_adapted_in_the_same_change_is_not_broken() -> None:
    made = found(
        {
            "daily": "SELECT day, customer, COUNT(*) AS orders FROM orders GROUP BY day, customer",
            "best": "SELECT customer, MAX(orders) AS most FROM daily GROUP BY customer",
        }
    )
    assert {n: c.is_breaking for n, c in made.items()} == {
        "daily.total is dropped": False,
        "best.most is retyped: decimal(20,2) → bigint": True,  # `top` makes something of it
    }


def test_columns_that_come_break_nothing() -> None:
    sql = DATASETS["daily"].replace("COUNT(*) AS orders", "COUNT(*) AS orders, MIN(id) AS first")
    assert {n: c.is_breaking for n, c in found({"daily": sql}).items()} == {"daily.first is added": False}


def test_a_dataset_that_is_removed() -> None:
    [change] = found({"best": ""}).values()
    assert str(change) == "best is removed"
    line = DATASETS["top"].splitlines()[1]
    marked = [(line[b.column - 1 :].split()[0].strip(","), b.affected_columns) for b in change.breaks]
    assert marked == [("customer", ("who",)), ("most", ("twice",)), ("best", ("who", "twice"))]


def test_a_channel_of_other_columns() -> None:
    [change] = found({}, nova.Channel("orders", schema="id bigint, customer string, price string, day date")).values()
    assert str(change) == "orders.price is retyped: decimal(10,2) → string"
    assert [b.dataset for b in change.breaks] == ["daily", "best", "best", "top"]


def test_partitions_that_are_cut_otherwise() -> None:
    sql = (
        "FOR t IN TIMESERIES(last => 3) LET d = DATE(t) INSERT OVERWRITE names PARTITION (d) "
        "SELECT DISTINCT customer FROM daily WHERE daily.day = :d"
    )
    made = found({"names": sql})
    assert {n: c.is_breaking for n, c in made.items()} == {
        "names.d is added": False,
        "names is partitioned: (none) → d (daily)": True,
    }


def test_what_is_wrong_by_itself_is_said_as_such() -> None:
    with pytest.raises(SqlError, match="there is no column 'colour'"):
        found({"daily": "SELECT colour FROM orders"})
