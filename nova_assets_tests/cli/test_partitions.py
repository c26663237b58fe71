"""A binding that is triggered per partition, from the shell: which partitions a run is for, and the way back."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path

import pytest

from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.settings import load_settings
from nova_assets.store.store import Store
from nova_assets_tests.cli import days
from nova_assets_tests.cli.conftest import Nova
from nova_assets_tests.stub_engine import StubEngine


@pytest.fixture
def store(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """The catalog that ``nova`` finds, on the stub engine."""
    monkeypatch.setenv("NOVA_PROJECT", "nova_assets_tests.cli.days:project")
    settings = load_settings()
    engine = StubEngine(settings.warehouse, days.SALES)
    with Store(settings, days.project, open_catalog(settings.catalog), engine) as store:
        yield store


def insert_sales(store: Store, *days_of_january: int) -> None:
    rows = [{"day": f"2024-01-{d:02}", "id": n, "shop": "Metz"} for n, d in enumerate(days_of_january)]
    store.insert("sales", rows)


@pytest.mark.parametrize("command", [["plan"], ["run"], ["run", "--dry-run"]])
def test_without_a_partition_it_asks_for_one(nova: Nova, store: Store, command: list[str]) -> None:
    insert_sales(store, 1, 2)
    output = nova(*command, "copy_day")
    assert output.code == 1 and output.out == ""
    assert "triggered per partition, so a run must name its partitions" in output.err
    assert "--partition day=..., once or several times (such as day=2024-01-01)" in output.err
    assert "--missing, for the 2 with unread data" in output.err and "--whole" in output.err
    assert store.cursors() == []


def test_a_plan_of_several_partitions_and_of_those_that_are_missing(nova: Nova, store: Store) -> None:
    insert_sales(store, 1, 2, 3)
    store.run("copy_day", "2024-01-02")
    out = nova("plan", "copy_day", "--missing", "--json").json
    assert [p["partition"] for p in out["plans"]] == ["day=2024-01-01", "day=2024-01-03"]
    named = nova("plan", "copy_day", "--partition", "2024-01-03", "--partition", "day=2024-01-03", "--json").json
    assert [p["partition"] for p in named["plans"]] == ["day=2024-01-03"]
    whole = nova("plan", "copy_day", "--whole", "--partition", "2024-01-03")
    assert whole.code == 2 and "exclude each other" in whole.err


def test_a_switch_to_partitions_and_back(nova: Nova, store: Store) -> None:
    insert_sales(store, 1, 2)
    store.run("copy_day", whole=True)
    refused = nova("plan", "copy_day", "--partition", "2024-01-02")
    assert refused.code == 1 and "nova switch copy_day --to partitions" in refused.err
    dry = nova("switch", "copy_day", "--to", "partitions", "--dry-run")
    assert dry.out.startswith("copy_day would run per partition from now on; its cursors:\n")
    assert [c.partition for c in store.cursors()] == [""]
    done = nova("switch", "copy_day", "--to", "partitions", "--json").json
    assert done["before"] == [{"channel": "sales", "partition": "", "cursor": 1}]
    assert [(c["partition"], c["cursor"]) for c in done["after"]] == [("day=2024-01-01", 1), ("day=2024-01-02", 1)]
    assert nova("plan", "copy_day", "--missing").out == "copy_day: no partition has unread data\n"
    insert_sales(store, 2)
    unread = nova("switch", "copy_day", "--to", "whole")
    assert unread.code == 1 and "1 partitions have unread data" in unread.err and "day=2024-01-02" in unread.err
    assert "nova run copy_day --missing" in unread.err
    store.run("copy_day", "2024-01-02")
    assert "runs unpartitioned from now on" in nova("switch", "copy_day", "--to", "whole").out
    again = nova("switch", "copy_day", "--to", "whole")
    assert again.code == 0 and "copy_day has no cursors to switch" in again.out


def test_a_partition_that_ran_while_it_was_empty_is_not_read_again_after_a_switch(nova: Nova, store: Store) -> None:
    store.run("copy_day", "2024-01-01")
    insert_sales(store, 1, 2)
    store.run("copy_day", whole=True)
    nova("switch", "copy_day", "--to", "partitions")
    assert {c.partition: c.seq for c in store.cursors()} == {"day=2024-01-01": 1, "day=2024-01-02": 1}
    assert nova("plan", "copy_day", "--missing").out == "copy_day: no partition has unread data\n"


def test_cursors_of_many_partitions_are_sorted_and_summarised(nova: Nova, store: Store) -> None:
    store.insert(
        "sales",
        [{"day": str(date(2024, 1, 1) + timedelta(d)), "id": d, "shop": "Metz"} for d in range(60)],
    )
    store.run("copy_day", whole=True)
    out = nova("switch", "copy_day", "--to", "partitions").out.splitlines()
    shown = [line.split()[0] for line in out if line.startswith("day=")]
    assert len(out) < 30 and shown == sorted(shown) and shown[-1] == "day=2024-02-29"
    assert any("40 more" in line for line in out)
    listed = nova("cursors").out.splitlines()
    assert len(listed) < 30 and any("40 more; --json lists all" in line for line in listed)
    assert len(nova("cursors", "--json").json["cursors"]) == 60


@pytest.mark.spark
def test_run_of_what_is_missing_prints_a_line_for_each_partition(nova: Nova, store: Store, tmp_path: Path) -> None:
    file = tmp_path / "sales.csv"
    file.write_text("day,id,shop\n2024-01-02,1,Metz\n2024-01-01,2,Lyon\n")
    assert nova("insert", "sales", file).code == 0
    output = nova("run", "copy_day", "--missing")
    assert output.code == 0
    lines = [line.split() for line in output.out.splitlines() if line.startswith("day=")]
    assert [(line[0], line[1]) for line in lines] == [("day=2024-01-01", "committed"), ("day=2024-01-02", "committed")]
    assert "2 partitions, 2 rows written" in output.out
    assert nova("run", "copy_day", "--missing", "--json").json == {"binding": "copy_day", "executions": []}


def test_bindings_say_what_is_due_in_which_partitions(nova: Nova, store: Store) -> None:
    never = nova("bindings", "--json").json["bindings"][0]
    assert (never["last"], never["due"], never["cursors"]) == (None, {}, [])
    insert_sales(store, 1, 2, 3)
    store.run("copy_day", "2024-01-02")
    found = nova("bindings", "--json").json["bindings"][0]
    assert found["partitions"] == ["day"] and found["when"] == "on_data(sales)"
    assert found["due"] == {"day=2024-01-01": "sales is at 1", "day=2024-01-03": "sales is at 1"}
    assert found["last"]["partition"] == "day=2024-01-02" and found["last"]["state"] == "committed"
    out = nova("bindings").out
    assert (
        "copy_day   on_data(sales), per day" in out and "2 partitions" in out and "day=2024-01-03: sales is at 1" in out
    )
    store.switch("copy_day", "partitions")
    for partition in store.unread("copy_day"):
        store.run("copy_day", partition)
    assert store.bindings()[0].due == {} and "nothing is due" in nova("bindings").out
