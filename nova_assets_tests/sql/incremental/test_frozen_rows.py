"""Rows that are never made again, whatever happens to the inputs."""

from __future__ import annotations

import os
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.sql.incremental import maintenance_run
from nova_assets.sql.incremental.maintenance_choice import MaintenanceChoice, choose_strategy
from nova_assets_tests.effort import examples, long_except
from nova_assets_tests.sql.incremental.frozen_world import CONDITIONS, NOON, ORDERS, QUERIES, World, datasets_of, order

pytestmark = pytest.mark.spark

STEPS = 5
SEED = int(os.environ.get("NOVA_FUZZ_SEED", "27"))


@pytest.fixture(params=long_except(["changes", "replacement", "comparison", "auto"], "auto"))
def strategy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How executions bring the result up to date where they may choose."""

    def choose(state: Any, *, prefers_changes: bool) -> MaintenanceChoice:
        choice = choose_strategy(state, prefers_changes=prefers_changes)
        is_free = choice.strategy in ("changes", "replacement", "comparison")
        if request.param == "auto" or not is_free or (choice.strategy == "comparison" and request.param == "changes"):
            return choice
        return MaintenanceChoice(request.param, "the test says so")

    monkeypatch.setattr(maintenance_run, "choose_strategy", choose)
    return str(request.param)


@pytest.mark.long
@pytest.mark.parametrize("query", long_except(QUERIES, "best", "sums"))
def test_frozen_rows_stay_whatever_happens(query: str, strategy: str, spark: Any, tmp_path: Path) -> None:
    for number in range(examples(1, 1)):
        rng = random.Random(f"{SEED} {query} {strategy} {number}")
        (tmp_path / str(number)).mkdir()
        world = World(tmp_path / str(number), spark, QUERIES[query], rng.choice(list(CONDITIONS)), rng)
        with world.store as store:
            world.change(25)
            world.run()
            for _ in range(STEPS):
                event = rng.choice(["change", "change", "day", "compact", "backfill", "earlier"])
                if event == "compact":
                    store.compact(rng.choice(["totals", "orders"]))
                elif event == "day":
                    world.now += timedelta(days=rng.choice([1, 2]))
                elif event == "backfill":
                    store.backfill("totals")
                world.now += timedelta(minutes=1)
                world.change(rng.choice([1, 6]))
                world.run()


def test_changes_of_frozen_rows_are_reported(spark: Any, tmp_path: Path) -> None:
    for number, query in enumerate(("rows", "sums")):
        (tmp_path / query).mkdir()
        world = World(tmp_path / query, spark, QUERIES[query], "day < DATE '2024-05-20'", random.Random(number))
        order = {"id": 1, "user": 1, "amount": Decimal("5.00"), "weight": 0.5}
        with world.store as store:
            store.insert("orders", [{**order, "day": date(2024, 5, d), "id": d} for d in (18, 19, 20, 21)])
            world.run()
            store.insert("orders", [{**order, "day": date(2024, 5, d), "id": d, "amount": 6} for d in (18, 19, 21)])
            [forecast] = store.forecast(store.plan("totals"))
            assert forecast.choice.strategy == "changes"
            world.run()
            facts = store.timeline("totals")[-1].details["tasks"][0]["facts"]["maintenance"]
            assert facts["strategy"] == "changes"
            assert facts["frozen_changes"] == {"rows": 4, "sums": 2}[query]
            head = store.catalog.definitions.channel("totals").head
            store.insert("orders", [{**order, "day": date(2024, 5, 18), "id": 18, "amount": 9}])
            store.run("totals")
            assert store.catalog.definitions.channel("totals").head == head, "nothing is written"


@pytest.mark.core
def test_without_rows_everything_is_made(spark: Any, tmp_path: Path) -> None:
    world = World(tmp_path, spark, QUERIES["sums"], "day < DATE '2024-05-20'", random.Random(1))
    with world.store as store:
        world.run()
        store.insert("orders", [order(18, 5), order(21, 5)])
        store.run("totals")
        assert sorted(row["day"].day for row in world.stored()) == [18, 21]


def test_an_empty_result_is_made_again_with_all_rows(spark: Any, tmp_path: Path) -> None:
    world = World(tmp_path, spark, QUERIES["sums"], "day < DATE '2024-05-20'", random.Random(1))
    with world.store as store:
        for orders in ([order(21, 5)], [order(18, 10)], [{**order(21, 5), "_deleted": True}]):
            store.insert("orders", orders)
            world.run()
        assert world.stored() == []
        store.insert("orders", [order(18, 5, id=7)])
        store.run("totals")
        assert [(row["day"].day, row["n"], int(row["s"])) for row in world.stored()] == [(18, 2, 15)]


def test_the_session_of_a_condition_on_the_time_is_in_utc(spark: Any, tmp_path: Path) -> None:
    world = World(tmp_path, spark, QUERIES["sums"], "day < CURRENT_DATE - INTERVAL 2 DAYS", random.Random(1))
    zone = spark.conf.get("spark.sql.session.timeZone")
    with world.store as store:
        store.insert("orders", [order(18, 5)])
        spark.conf.set("spark.sql.session.timeZone", "Europe/Paris")
        try:
            with pytest.raises(nova.SettingsError, match="depends on the time, and the time zone"):
                store.run("totals")
        finally:
            spark.conf.set("spark.sql.session.timeZone", zone)
        store.run("totals")
        assert len(world.stored()) == 1


def test_other_columns_of_a_group_say_what_is_frozen(spark: Any, tmp_path: Path) -> None:
    sql = "SELECT day, YEAR(day) * 100 + MONTH(day) AS month, AVG(amount) AS mean FROM orders GROUP BY day"
    datasets = datasets_of(tmp_path, f"FROZEN WHERE month < 202405 {sql}", refresh="incremental")
    project = nova.Project(datasets, channels=[ORDERS])
    with nova.open(project, f"sqlite:///{tmp_path}/catalog.db", tmp_path / "warehouse", spark) as store:
        store.register(project)
        april = {**order(1, 5), "day": date(2024, 4, 30)}
        store.insert("orders", [april, order(2, 5)])
        store.run("totals")
        store.insert("orders", [{**april, "amount": 7}, order(2, 9)])
        facts = store.run("totals").tasks[0].facts["maintenance"]
        assert (facts["strategy"], facts["frozen_changes"]) == ("changes", 1)
        assert {r["month"]: int(r["mean"]) for r in store.read("totals").to_arrow().to_pylist()} == {
            202404: 5,
            202405: 9,
        }


def test_rows_stay_frozen_if_the_clock_goes_back(spark: Any, tmp_path: Path) -> None:
    world = World(tmp_path, spark, QUERIES["sums"], "day < CURRENT_DATE - INTERVAL 2 DAYS", random.Random(1))
    with world.store as store:
        store.insert("orders", [order(18, 5), order(21, 5)])
        world.run()
        world.now = NOON + timedelta(days=1)
        store.insert("orders", [order(18, 6), order(21, 6)])
        world.run()
        world.now = NOON
        store.insert("orders", [order(18, 7), order(21, 7)])
        store.run("totals")
        assert {row["day"].day: int(row["s"]) for row in world.stored()} == {18: 5, 21: 7}


def test_another_condition_compares_the_rows_that_it_does_not_freeze(spark: Any, tmp_path: Path) -> None:
    found = []
    for condition in ("2024-05-20", "2024-05-19", "2024-05-22"):
        sql = f"FROZEN WHERE day < DATE '{condition}' SELECT day, SUM(amount) AS s FROM orders GROUP BY day"
        project = nova.Project(datasets_of(tmp_path, sql), channels=[ORDERS])
        with nova.open(project, f"sqlite:///{tmp_path}/catalog.db", tmp_path / "warehouse", spark) as store:
            store.register(project, replace=True)
            for amount in (5, 6) if condition == "2024-05-20" else (7,):
                store.insert("orders", [order(day, amount) for day in (18, 19, 21)])
                list(store.tick())
            found.append({row["day"].day: int(row["s"]) for row in store.read("totals").to_arrow().to_pylist()})
    assert found == [{18: 5, 19: 5, 21: 6}, {18: 5, 19: 7, 21: 7}, {18: 5, 19: 7, 21: 7}]


@pytest.mark.core
def test_the_key_of_a_channel_says_whether_a_row_is_frozen(spark: Any, tmp_path: Path) -> None:
    def project_of(key: list[str]) -> nova.Project:
        last = nova.Channel("last", merge=nova.Upsert(key=key))
        sql = "FROZEN WHERE day < DATE '2024-05-20' SELECT id, day, amount FROM orders WHERE day IS NOT NULL"
        keep = nova.incremental("keep", sql, produces=nova.delta(last))
        return nova.Project([nova.bind(nova.Workflowette("keep", [keep]))], channels=[ORDERS])

    for key in (["id"], ["id", "day"]):
        folder = tmp_path / "_".join(key)
        folder.mkdir()
        project = project_of(key)
        with nova.open(project, f"sqlite:///{folder}/catalog.db", folder / "warehouse", spark) as store:
            store.register(project)
            store.insert("orders", [order(18, 5), order(21, 5)])
            if key == ["id"]:
                with pytest.raises(nova.NotSupported, match="depend on 'day', which is no part of its key"):
                    store.run("keep")
                continue
            store.run("keep")
            store.insert("orders", [order(22, 6, id=18), order(17, 6, id=21), order(23, 1)])
            store.run("keep")
            found = {(r["id"], r["day"].day): int(r["amount"]) for r in store.read("last").to_arrow().to_pylist()}
            assert found == {(18, 18): 5, (18, 22): 6, (23, 23): 1}


def test_ticks_leave_frozen_partitions_as_they_are(spark: Any, tmp_path: Path) -> None:
    clicks = nova.Channel("clicks", schema="user int, day string", partitions=[nova.daily("day", start="2024-05-18")])
    head = "FOR t IN TIMESERIES('2024-05-18', '2024-05-21') LET d = DATE_FORMAT(t, 'yyyy-MM-dd')"
    frozen = "FROZEN WHERE day < DATE_FORMAT(CURRENT_DATE - INTERVAL 3 DAYS, 'yyyy-MM-dd')"
    (tmp_path / "sql").mkdir()
    (tmp_path / "sql" / "daily.sql").write_text(
        f"{head} INSERT OVERWRITE daily PARTITION (day = d) {frozen} "
        "SELECT user, COUNT(*) AS n FROM clicks WHERE clicks.day = :d GROUP BY user"
    )
    (tmp_path / "sql" / "copied.sql").write_text(
        f"{head} INSERT OVERWRITE copied PARTITION (day = d) SELECT user, n FROM daily WHERE daily.day = :d"
    )
    datasets = nova.datasets(tmp_path / "sql", channels=[clicks], refresh="incremental")
    project = nova.Project(datasets, channels=[clicks])
    now = datetime(2024, 5, 23, 12, tzinfo=UTC)
    with nova.open(project, f"sqlite:///{tmp_path}/catalog.db", tmp_path / "warehouse", spark) as store:
        store.catalog.database.clock = lambda: now
        store.register(project)

        def click(*days: int) -> None:
            store.insert("clicks", [{"user": 1, "day": f"2024-05-{day}"} for day in days])

        def ran() -> list[str]:
            outcomes = []
            while tick := store.next_tick():
                if not tick.run:
                    return sorted(outcomes)
                for outcome in store.tick(tick):
                    assert outcome.error is None, outcome.error
                    assert outcome.execution is not None
                    is_kept = outcome.execution.tasks[0].facts["maintenance"]["strategy"] == "no change"
                    outcomes.append(f"{outcome.dataset} {outcome.partition[-2:]}{' as it was' if is_kept else ''}")
            raise AssertionError

        def counts() -> dict[str, int]:
            return {row["day"][-2:]: row["n"] for row in store.read("copied").to_arrow().to_pylist()}

        click(18, 19, 20, 21)
        assert len(ran()) == 8, "missing partitions are made, also frozen ones"
        click(18, 21)
        assert ran() == ["copied 21", "daily 21"]
        [waiting] = store.next_tick().waits
        assert (waiting.dataset, waiting.partition[-2:], waiting.waits_for) == ("daily", "18", "another FROZEN WHERE")
        assert counts() == {"18": 1, "19": 1, "20": 1, "21": 2}
        for day, strategy in (("18", "no change"), ("20", "no change"), ("21", "no change")):
            [forecast] = store.forecast(store.plan("daily", f"day=2024-05-{day}"))
            assert forecast.choice.strategy == strategy
            assert ("FROZEN WHERE" in forecast.choice.reason) == (day == "18")
        store.backfill("daily", "day=2024-05-18")
        assert ran() == ["copied 18", "daily 18 as it was"]
        assert counts()["18"] == 1
        click(20)
        assert ran() == ["copied 20", "daily 20"], "frozen from tomorrow on"
        now += timedelta(days=1)
        click(20, 21)
        assert ran() == ["copied 21", "daily 21"]
        assert counts() == {"18": 1, "19": 1, "20": 2, "21": 3}
