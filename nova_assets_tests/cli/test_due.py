"""``nova run --due`` and ``nova run --follow``."""

from __future__ import annotations

from pathlib import Path

import pytest

from nova_assets_tests.cli.conftest import Nova

pytestmark = pytest.mark.usefixtures("with_shop")


@pytest.mark.core
@pytest.mark.spark
def test_what_is_due_is_listed_and_run_once(nova: Nova, orders_file: Path) -> None:
    assert nova("run", "--due").out == "nothing is due\n"
    nova("insert", "orders", orders_file)
    planned = {"due": [{"binding": "sell", "partition": "", "why": "orders is at 1"}], "waits": [], "shared": []}
    assert nova("run", "--due", "--dry-run", "--json").json == nova("plan", "--due", "--json").json == planned
    assert nova("plan", "--due").out == "sell: orders is at 1\n"
    output = nova("run", "--follow", "--json")
    assert output.code == 0
    [due] = output.json["due"]
    assert due["binding"] == "sell" and due["state"] == "committed" and due["rows"] == 2
    assert [row["id"] for row in nova("read", "archive", "--json").json["rows"]] == [1, 2]
    assert nova("run", "--due", "--select", "sell+").out == "nothing is due\n"


@pytest.mark.core
@pytest.mark.spark
def test_a_failure_is_shown_and_waits_for_its_next_attempt(
    nova: Nova, orders_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nova("insert", "orders", orders_file)
    monkeypatch.setenv("TILL_IS_EMPTY", "1")
    output = nova("run", "--due")
    assert output.code == 1 and "the till is empty" in output.out and "0 executions committed" in output.out
    waiting = nova("run", "--due")
    assert waiting.code == 0 and "the next attempt comes at" in waiting.out
    [waits] = nova("plan", "--due", "--json").json["waits"]
    assert waits["binding"] == "sell" and "the next attempt comes at" in waits["why"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--due", "sell"], "--due and --follow take no BINDING"),
        (["--follow", "--missing"], "--due and --follow take no BINDING"),
        ([], "name a BINDING, or run what is due"),
        (["sell", "--select", "sell"], "name a BINDING, or run what is due"),
    ],
)
def test_what_excludes_each_other(nova: Nova, arguments: list[str], message: str) -> None:
    output = nova("run", *arguments)
    assert output.code == 2 and message in " ".join(output.err.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sell", "--due"], "--due takes no BINDING"),
        (["--due", "--why"], "--due takes no BINDING"),
        ([], "name a BINDING, or plan what is due"),
        (["sell", "--select", "sell"], "name a BINDING, or plan what is due"),
    ],
)
def test_plans_of_what_excludes_each_other(nova: Nova, arguments: list[str], message: str) -> None:
    output = nova("plan", *arguments)
    assert output.code == 2 and message in " ".join(output.err.split())
