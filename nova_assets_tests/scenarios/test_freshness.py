"""Freshness limits: ticks leave changes unread as long as their readers allow, and never longer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.catalog.database.transactions import utc_now
from nova_assets_tests.scenarios.tick_worker import DAYS, STORES, open_store

pytestmark = pytest.mark.slow

MINUTE = timedelta(minutes=1)


class Deployment:
    """Datasets over sold tickets, and a clock that the test moves."""

    def __init__(self, folder: Path, freshness: str | Mapping[str, str]) -> None:
        (folder / "sql").mkdir()
        self.now = utc_now()
        places = (f"sqlite:///{folder}/c.db", str(folder / "wh"), str(folder / "sql"))
        self.store = open_store(*places, clock=lambda: self.now, freshness=freshness)
        self.sell(*((d, s) for d in DAYS for s in STORES))
        self.tick()

    def sell(self, *places: tuple[str, str]) -> None:
        self.store.insert("tickets", [{"price": 2, "day": d, "store": s} for d, s in places])

    def tick(self) -> list[str]:
        """Tick until nothing is to do. Returns the tasks that were run."""
        ran: list[str] = []
        while (tick := self.store.next_tick()).run:
            outcomes = self.store.tick(tick)
            assert all(o.error is None for o in outcomes), outcomes
            ran += [f"{o.dataset} {o.partition}".rstrip() for o in outcomes]
        return ran

    def after(self, passed: timedelta) -> list[str]:
        self.now += passed
        return self.tick()


@pytest.fixture
def deploy(tmp_path: Path) -> Iterator[Callable[[Any], Deployment]]:
    made: list[Deployment] = []

    def deploy(freshness: Any) -> Deployment:
        made.append(Deployment(tmp_path, freshness))
        return made[-1]

    yield deploy
    for deployment in made:
        deployment.store.close()


def test_changes_wait_until_the_oldest_is_as_old_as_the_limit(deploy: Callable[[Any], Deployment]) -> None:
    deployment = deploy({"total": "10 minutes"})
    deployment.sell((DAYS[0], "Oslo"))
    oslo = [f"store_sales day={DAYS[0]}/store=Oslo", f"day_sales day={DAYS[0]}"]
    assert deployment.tick() == oslo, "datasets without a limit do not wait"
    limit = deployment.now + 10 * MINUTE
    assert deployment.after(6 * MINUTE) == []
    (waiting,) = deployment.store.next_tick().waits
    assert waiting.dataset == "total" and waiting.waits_for == f"its freshness limit, at {limit:%Y-%m-%d %H:%M:%S}"
    deployment.sell((DAYS[1], "Paris"))
    assert deployment.tick() == [f"store_sales day={DAYS[1]}/store=Paris", f"day_sales day={DAYS[1]}"]
    assert deployment.after(4 * MINUTE) == ["total"], "the oldest change counts"
    assert deployment.after(60 * MINUTE) == [], "nothing has changed"


def test_a_partition_waits_for_its_own_changes_only(deploy: Callable[[Any], Deployment]) -> None:
    deployment = deploy({"store_sales": "10m", "day_sales": "10m", "total": "10m"})
    deployment.sell((DAYS[0], "Oslo"))
    assert deployment.after(5 * MINUTE) == []
    deployment.sell((DAYS[1], "Paris"))
    assert deployment.after(5 * MINUTE) == [f"store_sales day={DAYS[0]}/store=Oslo"]
    assert deployment.after(5 * MINUTE) == [f"store_sales day={DAYS[1]}/store=Paris"]


def test_datasets_run_when_a_reader_is_due(deploy: Callable[[Any], Deployment]) -> None:
    deployment = deploy({"store_sales": "downstream", "day_sales": "downstream", "total": "1 hour"})
    deployment.sell((DAYS[0], "Oslo"))
    assert deployment.after(59 * MINUTE) == []
    assert deployment.after(MINUTE) == [f"store_sales day={DAYS[0]}/store=Oslo", f"day_sales day={DAYS[0]}", "total"]


def test_readers_do_not_wait_for_a_dataset_that_its_limit_holds_back(deploy: Callable[[Any], Deployment]) -> None:
    deployment = deploy({"store_sales": "1h"})
    deployment.sell((DAYS[0], "Oslo"))
    deployment.store.backfill("day_sales", f"day={DAYS[0]}", downstream="none")
    assert deployment.tick() == [f"day_sales day={DAYS[0]}"]


def test_what_no_dataset_reads_waits_for_a_request(deploy: Callable[[Any], Deployment]) -> None:
    deployment = deploy("downstream")
    deployment.sell((DAYS[0], "Oslo"))
    assert deployment.after(timedelta(days=9)) == []
    assert {w.waits_for for w in deployment.store.next_tick().waits} == {"a dataset that reads it"}
    deployment.store.run("store_sales", f"day={DAYS[0]}/store=Oslo")
    deployment.store.backfill("day_sales", f"day={DAYS[0]}", downstream="all")
    assert deployment.tick() == [f"day_sales day={DAYS[0]}", "total"]


@pytest.mark.core
def test_limits_that_do_not_exist(tmp_path: Path) -> None:
    (tmp_path / "total.sql").write_text("SELECT 1 AS one")
    for freshness, shown in [("soon", "'soon'"), ({"total": "0m"}, "{'total': '0m'}")]:
        with pytest.raises(nova.DefinitionError, match=f"freshness={shown} is neither a period nor 'downstream'"):
            nova.datasets(tmp_path, freshness=freshness)
    with pytest.raises(nova.NovaError, match="totals"):
        nova.datasets(tmp_path, freshness={"totals": "5m"})


def test_a_changed_limit_computes_no_rows_again(tmp_path: Path) -> None:
    orders = nova.Channel("orders", merge=nova.Upsert(key="id"), schema="id int, user int")

    def marks_after(freshness: str | None, sql: str) -> list[str]:
        (tmp_path / "totals.sql").write_text(sql)
        datasets = nova.datasets(tmp_path, channels=[orders], refresh="incremental", freshness=freshness)
        project = nova.Project(datasets, channels=[orders])
        with nova.open(project, f"sqlite:///{tmp_path}/catalog.db", tmp_path / "warehouse") as store:
            store.register(project, replace=True)
            return [mark.why for mark in store.catalog.scheduler.dirty_partitions()]

    totals = "SELECT user, COUNT(*) AS n FROM orders GROUP BY user"
    assert marks_after(None, totals) == marks_after("10 minutes", totals) == marks_after("downstream", totals) == []
    assert marks_after("downstream", totals.replace("COUNT", "2 + COUNT")) == ["its query has changed"]
