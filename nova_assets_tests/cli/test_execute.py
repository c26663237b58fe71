"""``nova plan`` and ``nova run``."""

from __future__ import annotations

from pathlib import Path

import pytest

from nova_assets.store.store import Store
from nova_assets_tests.cli.conftest import Nova

ORDERS = [{"id": 1, "item": "tea", "price": 2.5}]

pytestmark = pytest.mark.usefixtures("with_shop")


def test_a_plan_shows_tasks_in_order_with_what_each_reads_and_writes(nova: Nova, stub_store: Store) -> None:
    stub_store.insert("orders", ORDERS)
    out = nova("plan", "sell").out
    assert out.startswith("sell, when on_data(orders)\n")
    assert out.index("1. check_till") < out.index("2. keep, after check_till; skipped without new data")
    row = next(line for line in out.splitlines() if line.startswith("reads    orders")).split()
    assert row[:5] == ["reads", "orders", "new", "Δ(0→1)", "as"] and row[-7:-5] == ["1", "1"] and row[-3] == "spark"
    assert any(line.split()[:2] == ["stock", "matching"] for line in out.splitlines())
    assert "moves cursor   orders    0 → 1" in out


def test_a_plan_as_json_is_the_run_plan(nova: Nova, stub_store: Store) -> None:
    stub_store.insert("orders", ORDERS)
    planned = nova("plan", "sell", "--json").json
    assert planned == {**stub_store.plan("sell").as_json(), "maintenance": []}
    assert planned["steps"][0]["reads"][0]["by"]["new"]["rows"] == 1
    assert planned["cursors"] == [{"channel": "orders", "from": 0, "to": 1}]


def test_a_dry_run_is_the_plan_and_makes_nothing(nova: Nova, folder: Path) -> None:
    assert nova("run", "sell", "--dry-run") == nova("plan", "sell")
    assert list(folder.iterdir()) == []


def test_a_plan_says_which_channels_must_not_move(nova: Nova) -> None:
    out = nova("plan", "take_stock").out
    assert out.startswith("take_stock, run by hand\n") and "requires   latest    still at 0" in out


@pytest.mark.parametrize("command", ["plan", "run"])
def test_an_unknown_binding_lists_the_known_ones(nova: Nova, command: str) -> None:
    output = nova(command, "sells")
    assert output.code == 1 and output.out == ""
    assert "[NOVA-BINDING-NOT-FOUND] no binding is called 'sells'" in output.err
    assert "sell, take_stock" in output.err and "next:" in output.err


@pytest.mark.parametrize(
    "command", [["plan", "sell"], ["run", "sell"], ["run", "sell", "--dry-run"], ["cursors", "sell"]]
)
def test_without_a_project_it_says_how_to_name_one(
    nova: Nova, monkeypatch: pytest.MonkeyPatch, command: list[str], folder: Path
) -> None:
    monkeypatch.delenv("NOVA_PROJECT")
    output = nova(*command)
    assert output.code == 1
    assert "no project is configured, so there are no bindings" in output.err
    assert f"nova {' '.join(command)} --project package.module:project" in output.err
    assert list(folder.iterdir()) == []


def test_an_execution_that_never_was_cannot_be_resumed(nova: Nova) -> None:
    output = nova("run", "sell", "--resume", "nope")
    assert output.code == 1 and "there is no execution 'nope'" in output.err


def test_an_execution_of_another_binding_is_wrong_use(nova: Nova, stub_store: Store) -> None:
    done = stub_store.run("take_stock")
    output = nova("run", "sell", "--resume", done.id)
    assert output.code == 2 and "belongs to binding 'take_stock', not to binding 'sell'" in output.err


@pytest.mark.spark
def test_run_says_what_was_read_and_written(nova: Nova, orders_file: Path) -> None:
    assert nova("insert", "orders", orders_file).code == 0
    output = nova("run", "sell")
    assert output.code == 0
    assert "sell committed in " in output.out and "read  orders from 0 to 1" in output.out
    row = next(line for line in output.out.splitlines() if line.startswith("archive")).split()
    assert row[:3] == ["archive", "Δ(0→1)", "2"]
    again = nova("run", "sell")
    assert "orders at 1, nothing new" in again.out and "No channel was changed" in again.out


@pytest.mark.spark
def test_run_as_json_prints_json_alone_whatever_tasks_print(nova: Nova, orders_file: Path) -> None:
    nova("insert", "orders", orders_file)
    output = nova("run", "sell", "--json")
    assert output.code == 0
    done = output.json
    assert "counting the till" in output.err and "counting" not in output.out
    assert (done["binding"], done["state"], done["numbers"]) == ("sell", "committed", {"archive": 1})
    assert done["consumed"]["orders"] == {"cursor": 0, "head": 1}
    assert done["blocks"][0]["range"] == "Δ(0→1)" and done["blocks"][0]["rows"] == 2
    assert [t["task"] for t in done["tasks"]] == ["check_till", "keep"]


@pytest.mark.spark
def test_a_failed_task_says_how_to_go_on_and_resuming_does(
    nova: Nova, orders_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nova("insert", "orders", orders_file)
    monkeypatch.setenv("TILL_IS_EMPTY", "1")
    failed = nova("run", "sell")
    assert failed.code == 1
    assert "[NOVA-TASK-FAILED] task 'check_till' of binding 'sell' raised ValueError: the till is empty" in failed.err
    assert "Traceback" not in failed.err and "NOVA_DEBUG=1" in failed.err
    execution = failed.err.partition("nova run sell --resume ")[2].split()[0]
    assert nova("cursors", "sell", "--json").json["cursors"][0]["cursor"] == 0

    monkeypatch.delenv("TILL_IS_EMPTY")
    nova("insert", "orders", orders_file)  # is not read by the execution that is resumed: it keeps its pins (R4)
    resumed = nova("run", "sell", "--resume", execution, "--json")
    assert resumed.code == 0
    assert resumed.json["execution"] == execution and resumed.json["consumed"]["orders"] == {"cursor": 0, "head": 1}
    over = nova("run", "sell", "--resume", execution)
    assert over.code == 1 and "NOVA-EXECUTION-NOT-LIVE" in over.err


@pytest.mark.spark
def test_debugging_shows_where_a_task_failed(nova: Nova, orders_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nova("insert", "orders", orders_file)
    monkeypatch.setenv("TILL_IS_EMPTY", "1")
    monkeypatch.setenv("NOVA_DEBUG", "1")
    failed = nova("run", "sell")
    assert failed.code == 1 and "Traceback" in failed.err and 'raise ValueError("the till is empty")' in failed.err
