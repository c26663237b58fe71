"""``nova show``, on the datasets of the sales example."""

from __future__ import annotations

import pytest

from nova_assets_tests.cli.conftest import Nova

PROJECT = "examples.sales.pipeline:project"


@pytest.fixture
def show(nova: Nova) -> Nova:
    return lambda *given: nova("show", *given, "--project", PROJECT)  # type: ignore[return-value]


def test_a_task_is_shown_as_the_paper_shows_it(show: Nova) -> None:
    output = show("products_sales", "day=2022-03-31")
    assert output.code == 0
    assert (
        output.out
        == """
Evaluation scope
================

name            value                  type
────────────────────────────────────────────────
partition_day   2022-03-31             STRING
t               2022-03-31T00:00:00Z   TIMESTAMP

Partition columns
=================

column   value        type
────────────────────────────
day      2022-03-31   STRING

Dependencies
============

- store_sales/day=2022-03-31/store=Detroit
- store_sales/day=2022-03-31/store=Paris

Schema
======

column       type
──────────────────────────
product_id   STRING
nb_sales     BIGINT
revenue      DECIMAL(30,2)
day          STRING

Query
=====

SELECT nova_query.*, CAST(:partition_day AS string) AS `day` FROM (
SELECT
  product_id,
  SUM(nb_sales) AS nb_sales,
  SUM(revenue) AS revenue
FROM store_sales AS `store_sales`
WHERE store_sales.day = :partition_day
GROUP BY product_id
) AS nova_query
"""
    )


def test_all_scopes_of_a_dataset(show: Nova) -> None:
    output = show("store_sales", "--json").json
    assert [s["partition"] for s in output["scopes"]] == [
        "day=2022-03-30/store=Detroit",
        "day=2022-03-30/store=Paris",
        "day=2022-03-31/store=Detroit",
        "day=2022-03-31/store=Paris",
    ]
    assert output["reads"] == ["tickets"]
    shown = show("store_sales")
    assert "Scopes: 4" in shown.out
    assert "day=2022-03-31/store=Paris     2022-03-31T00:00:00Z   Paris     2022-03-31" in shown.out


def test_values_of_several_columns_may_stand_apart(show: Nova) -> None:
    output = show("store_sales", "store=Paris", "day=2022-03-31", "--json").json
    assert output["partition"] == "day=2022-03-31/store=Paris"
    assert output["dependencies"] == [{"dataset": "tickets", "mode": "all", "partition": "day=2022-03-31/store=Paris"}]


def test_before_there_was_a_scope_there_is_none(show: Nova) -> None:
    assert show("products_sales", "--at", "2022-03-30T12:00", "--json").json["scopes"][-1:] == [
        {"partition": "day=2022-03-30", "variables": {"t": "2022-03-30T00:00:00Z", "partition_day": "2022-03-30"}}
    ]


@pytest.mark.parametrize(
    ("given", "what"),
    [
        (("sales",), "no dataset in SQL is called 'sales'"),
        (("products_sales", "day=2022-04-01"), "no task of 'products_sales' writes day=2022-04-01"),
        (("products_sales", "store=Paris"), "'store=Paris' names no partition"),
        (("products_sales", "--at", "soon"), "is not a time"),
    ],
)
def test_what_there_is_not(show: Nova, given: tuple[str, ...], what: str) -> None:
    output = show(*given)
    assert output.code in (1, 2)
    assert what in output.err


def test_a_tick_says_what_it_would_do(nova: Nova) -> None:
    output = nova("tick", "--dry-run", "--json", "--project", PROJECT).json
    assert [(r["dataset"], r["partition"], r["why"]) for r in output["run"]][:2] == [
        ("store_sales", "day=2022-03-30/store=Detroit", "missing"),
        ("store_sales", "day=2022-03-30/store=Paris", "missing"),
    ]
    assert output["waits"][0] == {
        "dataset": "products_sales",
        "partition": "day=2022-03-30",
        "why": "missing",
        "waits_for": "store_sales/day=2022-03-30/store=Detroit",
    }
    assert (output["drop"], output["held"]) == ({}, {})
    shown = nova("tick", "--dry-run", "--project", PROJECT).out
    assert "To run: 4" in shown and "Waiting: 2" in shown


def test_a_tick_leaves_out_a_paused_dataset_and_says_who_paused_it(nova: Nova) -> None:
    assert nova("pause", "binding", "store_sales", "--project", PROJECT).code == 0
    output = nova("tick", "--dry-run", "--json", "--project", PROJECT).json
    assert output["run"] == [] and "binding store_sales is paused by" in output["waits"][0]["waits_for"]
    assert nova("tick", "--json", "--project", PROJECT).json["waits"] == output["waits"]
    done = nova("tick", "--project", PROJECT)
    assert done.code == 0 and "0 computed, 0 failed, 0 dropped" in done.out
    assert "binding store_sales is paused by" in " ".join(done.out.split())
    assert nova("resume", "binding", "store_sales", "--project", PROJECT).code == 0
    assert len(nova("tick", "--dry-run", "--json", "--project", PROJECT).json["run"]) > 0
