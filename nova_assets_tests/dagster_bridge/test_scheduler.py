"""The scheduler of datasets in SQL under Dagster: a sensor that looks, and runs that make what they lack."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import nova_assets as nova
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.dagster_bridge import build_definitions, dataset_ticks, resources
from nova_assets.engine.spark_engine import SparkEngine
from nova_assets.store.store import Store

pytestmark = [pytest.mark.dagster, pytest.mark.spark, pytest.mark.filterwarnings("ignore")]

TICKETS = nova.Channel("tickets", schema="price int, day string", partitions=[nova.daily("day", start="2022-03-30")])
SALES = """
FOR t IN TIMESERIES('2022-03-30', '2022-03-31') LET d = DATE_FORMAT(t, 'yyyy-MM-dd')
INSERT OVERWRITE sales PARTITION (day = d)
SELECT SUM(price) AS revenue, ANY_VALUE(1 DIV price) AS odd FROM tickets WHERE tickets.day = :d
"""
TOTAL = "SELECT SUM(revenue) AS revenue FROM sales"


class Deployment:
    """A project under Dagster, in this process."""

    def __init__(
        self, root: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, datasets: Mapping[str, str] | None = None
    ) -> None:
        for name, sql in (datasets or {"sales": SALES, "total": TOTAL}).items():
            (root / f"{name}.sql").write_text(sql)
        project = nova.Project(bindings=nova.datasets(root, channels=[TICKETS]))

        def opener(project: Any = None, spark_: Any = None, settings: Any = None, **_: Any) -> Store:
            return Store(settings, project, open_catalog(settings.catalog), SparkEngine(settings.warehouse, spark))

        monkeypatch.setattr(resources, "open_store", opener)
        self.defs = build_definitions(project, catalog=f"sqlite:///{root}/c.db", warehouse=str(root / "wh"))
        self.store: Store = self.defs.resources["nova"].store()
        self.instance = dg.DagsterInstance.ephemeral()

    def tick(self) -> str:
        """One look of the sensor, and the run that it requests. Gives why it requested none, or how that run ended."""
        context = dg.build_sensor_context(instance=self.instance, definitions=self.defs)
        answer = self.defs.get_sensor_def("nova_tick_sensor")(context)
        if isinstance(answer, dg.SkipReason):
            return str(answer.skip_message)
        done = self.defs.get_job_def("nova_tick").execute_in_process(instance=self.instance, raise_on_error=False)
        self.run_id = done.run_id
        failed = [e.step_failure_data for e in done.all_node_events if e.is_step_failure]
        return "made" if done.success else str(failed[0].user_failure_data.description)

    def shown(self, dataset: str) -> list[tuple[str | None, str]]:
        """(partition, run) of the materializations that Dagster has of a dataset."""
        found = self.instance.fetch_materializations(dg.AssetKey(dataset), limit=100).records
        return sorted((r.partition_key, r.run_id) for r in found)


@pytest.fixture
def deployment(tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployment]:
    made = Deployment(tmp_path, spark, monkeypatch)
    yield made
    made.store.close()


def sold(*prices: int, day: str = "2022-03-30") -> list[dict[str, Any]]:
    return [{"price": p, "day": day} for p in prices]


def test_what_lacks_is_made_by_runs_and_shown_as_their_materializations(deployment: Deployment) -> None:
    deployment.store.insert("tickets", [*sold(2, 3), *sold(5, day="2022-03-31")])
    assert deployment.tick() == "made"
    first = deployment.run_id
    assert deployment.shown("sales") == [("2022-03-30", first), ("2022-03-31", first)]
    assert deployment.shown("total") == []
    assert deployment.tick() == "made"
    assert deployment.shown("total") == [(None, deployment.run_id)]
    assert deployment.store.read("total").to_arrow().to_pylist() == [{"revenue": 10}]
    assert deployment.tick() == "no partition is missing, dirty or stale"

    deployment.store.insert("tickets", sold(1))
    assert deployment.tick() == "made" and deployment.tick() == "made"
    assert len(deployment.shown("sales")) == 3, "only the day to which data came"
    assert deployment.store.read("total").to_arrow().to_pylist() == [{"revenue": 11}]
    told = {b.channel for c in deployment.store.catalog.commits.unreported() for b in c.blocks}
    assert told == {"tickets"}, "what the runs made is shown; what was inserted is for the sensor nova_publish"


def test_a_task_that_fails_stops_no_other_and_is_told(deployment: Deployment) -> None:
    deployment.store.insert("tickets", [*sold(0), *sold(5, day="2022-03-31")])
    said = deployment.tick()
    assert "1 of 2 failed" in said and "sales day=2022-03-30" in said and "DIVIDE_BY_ZERO" in said
    assert [day for day, _ in deployment.shown("sales")] == ["2022-03-31"]
    assert deployment.tick() == "a run is active, or failed a moment ago"


@pytest.mark.core
def test_what_others_have_written_is_looked_at_once_a_minute(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "tills"
    there.mkdir()
    pq.write_table(pa.table({"price": [2, 3]}), there / "a.parquet")
    view = f"CREATE EXTERNAL TABLE sold (price BIGINT) USING parquet LOCATION '{there}'"
    total = "SELECT SUM(price) AS revenue FROM sold"
    deployment = Deployment(tmp_path, spark, monkeypatch, {"sold": view, "sum_of_sold": total})
    try:
        assert deployment.tick() == "made"
        assert deployment.store.read("sum_of_sold").to_arrow().to_pylist() == [{"revenue": 5}]
        pq.write_table(pa.table({"price": [4]}), there / "b.parquet")
        assert deployment.tick() == "no partition is missing, dirty or stale", "it has looked a moment ago"
        monkeypatch.setattr(dataset_ticks, "EXTERNAL_REFRESH_INTERVAL", 0)
        assert deployment.tick() == "made"
        assert deployment.store.read("sum_of_sold").to_arrow().to_pylist() == [{"revenue": 9}]
        there.rename(tmp_path / "elsewhere")
        assert deployment.tick() == "no partition is missing, dirty or stale", "what was known of it is as it was"
    finally:
        deployment.store.close()
