"""``nova backfill`` and ``nova backfills``, on the datasets of the sales example, of which nothing is made yet."""

from __future__ import annotations

import getpass
from pathlib import Path

import pytest

from nova_assets_tests.cli.conftest import Nova

PROJECT = ("--project", "examples.sales.pipeline:project")


def test_a_dry_run_says_what_follows_and_marks_nothing(nova: Nova) -> None:
    output = nova("backfill", "store_sales", "day=2022-03-31", "--dry-run", *PROJECT)
    assert output.code == 0
    assert (
        output.out
        == """\
dataset          partition                      rows   size   took
──────────────────────────────────────────────────────────────────
store_sales      day=2022-03-31/store=Detroit
store_sales      day=2022-03-31/store=Paris
products_sales   day=2022-03-31
3 partitions would be computed again
"""
    )
    assert nova("backfills").out == "there are no backfills yet; nova backfill DATASET requests one\n"


def test_what_does_not_follow_is_said(nova: Nova) -> None:
    output = nova("backfill", "store_sales", "store=Paris", "--downstream", "none", "--dry-run", *PROJECT)
    assert "2 partitions would be computed again" in output.out
    assert "not computed again: products_sales, although 2 partitions of it read these" in output.out
    output = nova("backfill", "store_sales", "store=Paris", "--downstream", "none", "--dry-run", "--json", *PROJECT)
    assert output.json["left"] == {"products_sales": 2} and output.json["backfill"] is None


def test_asked_for_looked_at_and_cancelled(nova: Nova) -> None:
    asked = ("store_sales", "day=2022-03-30..2022-03-31", "store=Paris", "--why", "wrong prices", "--priority", "high")
    name = nova("backfill", *asked, "--json", *PROJECT).json["backfill"]
    assert nova("tick", "--dry-run", "--json", *PROJECT).json["run"][0]["partition"] == "day=2022-03-30/store=Paris"

    [one] = nova("backfills", "--json").json["backfills"]
    assert one["state"] == "running" and one["parts"] == {"waiting": 4}
    assert (one["by"], one["why"], one["priority"]) == (getpass.getuser(), "wrong prices", "high")
    assert (one["dataset"], one["downstream"]) == ("store_sales", ["products_sales"])
    shown = nova("backfills").out
    assert f"{name}   running      0    4   high" in shown and "wrong prices" in shown
    shown = nova("backfills", name).out
    assert "downstream: products_sales; priority: high" in shown
    assert "store_sales      day=2022-03-30/store=Paris   waiting" in shown

    assert nova("backfill", "--cancel", name, "--dry-run").out == "4 partitions would stay as before\n"
    assert nova("backfill", "--cancel", name).out == "4 partitions stay as before\n"
    assert nova("backfill", "--cancel", name).out == "0 partitions stay as before\n"
    assert nova("backfills", name, "--json").json["state"] == "cancelled"


def test_what_adds_to_what_is_there_is_not_made_again(nova: Nova, folder: Path) -> None:
    (folder / "sql").mkdir()
    (folder / "sql" / "whole.sql").write_text("SELECT 1 AS n")
    (folder / "sql" / "added.sql").write_text("INSERT INTO added SELECT n FROM whole")
    (folder / "adding.py").write_text("import nova_assets as n\nproject = n.Project(n.datasets('sql'))")
    output = nova("backfill", "added", "--project", "adding:project")
    assert output.code == 1 and "partitions of 'added' cannot be recomputed" in output.err
    output = nova("backfill", "whole", "--dry-run", "--json", "--project", "adding:project")
    assert [part["dataset"] for part in output.json["parts"]] == ["whole"] and output.json["left"] == {"added": 1}


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ((), "DATASET is missing; nova show lists the datasets"),
        (("sales",), "no dataset in SQL is called 'sales'"),
        (("store_sales",), "next:     name partitions, or run nova backfill store_sales --all for all 4 partitions"),
        (("store_sales", "shop=Paris"), "expected: day=VALUE, day=FROM..TO or store=VALUE, store=FROM..TO"),
        (("store_sales", "day=2022-05-01"), "'day=2022-05-01' selects no partition of 'store_sales'"),
        (("store_sales", "--all", "--downstream", "tickets"), "'tickets': depends on no partition of the backfill"),
        (("store_sales", "--all", "--priority", "soon"), "Invalid value for '--priority'"),
        (("--cancel", "nothing"), "there is no backfill 'nothing'"),
        (("store_sales", "--cancel", "nothing"), "--cancel takes no DATASET and no partitions"),
    ],
)
def test_what_cannot_be(nova: Nova, given: tuple[str, ...], what: str) -> None:
    output = nova("backfill", *given, *PROJECT)
    assert output.code in (1, 2)
    assert what in output.err
    assert nova("backfills", "--json").json == {"backfills": []}
