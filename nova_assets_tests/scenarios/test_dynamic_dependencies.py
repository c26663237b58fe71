"""Which partitions a dataset reads follows from the rows of a small dataset, at the version that the task reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.errors import InputsMissing
from nova_assets.store.store import Store
from nova_assets_tests.scenarios.tick_worker import DATASETS, DAYS, STORES, TICKETS, open_store

pytestmark = pytest.mark.slow

CALENDAR = nova.Channel("calendar", schema="day string, is_open boolean", merge=nova.Upsert(key="day"))
OPEN = "IN (SELECT day FROM calendar WHERE is_open)"
READERS = {
    "open_sales": f"SELECT SUM(price) AS revenue FROM tickets WHERE tickets.day {OPEN}",
    "report": f"SELECT SUM(revenue) AS revenue FROM day_sales s WHERE s.day {OPEN}",
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    (tmp_path / "sql").mkdir()
    places = (f"sqlite:///{tmp_path}/c.db", str(tmp_path / "wh"), str(tmp_path / "sql"))
    datasets = {name: DATASETS[name] for name in ("store_sales", "day_sales")} | READERS
    with open_store(*places, datasets=datasets, channels=(TICKETS, CALENDAR)) as made:
        prices = {"Oslo": 2, "Paris": 0}
        rows = [{"price": prices[s] + n, "day": d, "store": s} for n, d in enumerate(DAYS) for s in STORES]
        made.insert("tickets", rows)
        open_days(made, *DAYS[:1])
        yield made


def open_days(store: Store, *days: str) -> None:
    store.insert("calendar", [{"day": day, "is_open": day in days} for day in DAYS])


def tick(store: Store) -> set[str]:
    """Tick until nothing is to do. Returns the datasets that were computed."""
    ran: set[str] = set()
    while (tick := store.next_tick()).run:
        outcomes = store.tick(tick)
        assert all(o.error is None for o in outcomes), outcomes
        ran |= {o.dataset for o in outcomes}
    return ran


def revenue(store: Store, dataset: str) -> int | None:
    [row] = store.read(dataset).to_arrow().to_pylist()
    return row["revenue"]  # type: ignore[no-any-return]


def partitions_read(store: Store, dataset: str, input_name: str) -> set[str]:
    [step] = store.plan(dataset).steps
    [task_input] = [i for i in step.inputs if i.name == input_name]
    return {b.partition.split("/")[0] for b in task_input.reads["all"].bases + task_input.reads["all"].deltas}


def test_changed_rows_change_what_is_read(store: Store) -> None:
    tick(store)
    assert partitions_read(store, "open_sales", "tickets") == {f"day={DAYS[0]}"}
    assert (revenue(store, "open_sales"), revenue(store, "report")) == (2, 2)
    open_days(store, *DAYS)
    assert tick(store) == {"open_sales", "report"}
    assert partitions_read(store, "open_sales", "tickets") == {f"day={day}" for day in DAYS}
    assert (revenue(store, "open_sales"), revenue(store, "report")) == (6, 6)
    open_days(store, DAYS[1])
    assert tick(store) == {"open_sales", "report"}
    assert (revenue(store, "open_sales"), revenue(store, "report")) == (4, 4)


def test_late_data_of_a_partition_that_is_not_listed_changes_nothing(store: Store) -> None:
    tick(store)
    store.insert("tickets", [{"price": 9, "day": DAYS[1], "store": "Oslo"}])
    assert tick(store) == {"store_sales", "day_sales"}
    open_days(store, DAYS[1])
    assert tick(store) == {"open_sales", "report"}
    assert (revenue(store, "open_sales"), revenue(store, "report")) == (13, 13)


@pytest.mark.core
def test_a_task_waits_for_listed_partitions_only(store: Store) -> None:
    for kind, where in (("store_sales", "/store=Oslo"), ("store_sales", "/store=Paris"), ("day_sales", "")):
        store.run(kind, f"day={DAYS[0]}{where}")
    assert "report" in {batch.dataset for batch in store.next_tick().run}
    open_days(store, *DAYS)
    [waiting] = [w for w in store.next_tick().waits if w.dataset == "report"]
    assert waiting.waits_for == f"day_sales/day={DAYS[1]}"


def test_an_execution_reads_what_its_own_version_lists(store: Store) -> None:
    tick(store)
    open_days(store, *DAYS)
    runtime = store.runtime
    execution = runtime.begin("open_sales")
    open_days(store, DAYS[1])
    for step in runtime.project.binding("open_sales").tasks:
        runtime.run_task(execution, step.name)
    runtime.commit(execution)
    assert revenue(store, "open_sales") == 6
    assert "open_sales" in tick(store)
    assert revenue(store, "open_sales") == 4


def test_rows_that_change_while_an_execution_begins(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a listed partition that does not exist would be read as if it were empty."""
    for name, where in (("store_sales", "/store=Oslo"), ("store_sales", "/store=Paris"), ("day_sales", "")):
        store.run(name, f"day={DAYS[0]}{where}")
    begin = store.catalog.executions.begin

    def change_first(request: Any) -> Any:
        monkeypatch.undo()
        open_days(store, *DAYS)
        return begin(request)

    monkeypatch.setattr(store.catalog.executions, "begin", change_first)
    with pytest.raises(InputsMissing, match="channel 'calendar', which decides what report reads, has changed"):
        store.run("report")
    assert not store.read("report").to_arrow().num_rows
    with pytest.raises(InputsMissing, match="reads partitions that do not exist yet"):
        store.run("report")
    tick(store)
    assert revenue(store, "report") == 6


def test_rows_that_cannot_be_read_limit_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    tick(store)

    def fail(read: Any) -> Any:
        raise OverflowError("date value out of range")

    with monkeypatch.context() as patched:
        patched.setattr(store.engine.reader, "fetch", fail)
        open_days(store, DAYS[1])
        assert partitions_read(store, "report", "day_sales") == {f"day={day}" for day in DAYS}
    assert partitions_read(store, "report", "day_sales") == {f"day={DAYS[1]}"}, "it is read again"


def test_a_long_list_limits_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    tick(store)
    assert partitions_read(store, "report", "day_sales") == {f"day={DAYS[0]}"}
    monkeypatch.setattr("nova_assets.execution.shared_rows.MAX_FEW_ROWS", 1)
    open_days(store, DAYS[0])
    assert partitions_read(store, "report", "day_sales") == {f"day={day}" for day in DAYS}
    tick(store)
    assert revenue(store, "report") == 2
