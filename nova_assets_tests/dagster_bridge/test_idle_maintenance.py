"""Automatic maintenance of channels that have not changed: its work does not grow with their number."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest
from sqlalchemy import event

import nova_assets as nova
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.dagster_bridge import build_definitions, resources
from nova_assets.store.store import Store
from nova_assets_tests.stub_engine import StubEngine

pytestmark = [pytest.mark.dagster, pytest.mark.filterwarnings("ignore")]


class Deployment:
    """A maintained project whose channels all have data, and the sensor that maintains them."""

    def __init__(self, root: Path, channels: int) -> None:
        def step(rows: object) -> object:
            return rows

        bindings = []
        for n in range(channels):
            source, target = (nova.Channel(f"{name}{n}", schema="k bigint, v bigint") for name in ("source", "target"))
            task = nova.task(name="step", consumes=nova.new(source, as_="rows"), produces=nova.delta(target))(step)
            bindings.append(nova.bind(nova.Workflowette(f"b{n}", [task])))
        defs = build_definitions(nova.Project(bindings), catalog=f"sqlite:///{root}/c.db", warehouse=str(root / "wh"))
        self.sensor = defs.resolve_sensor_def("nova_upkeep_sensor")
        self.store: Store = defs.resources["nova"].store()  # type: ignore[index]
        self.instance, self.cursor, self.queries = dg.DagsterInstance.ephemeral(), "", 0
        event.listen(self.store.catalog.database.engine, "before_cursor_execute", self._count)  # type: ignore[attr-defined]
        self.store.register(self.store.project)
        for n in range(channels):
            self.insert(n)

    def insert(self, number: int) -> None:
        self.store.insert(f"source{number}", [{"k": 1, "v": 1}])

    def tick(self) -> tuple[int, list[str]]:
        """Number of catalog queries of a tick, and the channels whose lags it reports."""
        self.queries = 0
        result = self.sensor(dg.build_sensor_context(instance=self.instance, cursor=self.cursor or None))
        assert isinstance(result, dg.SensorResult) and result.cursor
        self.cursor = result.cursor
        return self.queries, [e.asset_key.to_user_string() for e in result.asset_events]

    def _count(self, *_: object) -> None:
        self.queries += 1


@pytest.mark.slow
def test_an_idle_tick_asks_as_much_for_many_channels_as_for_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        resources,
        "open_store",
        lambda project=None, spark=None, settings=None: Store(
            settings, project, open_catalog(settings.catalog), StubEngine(settings.warehouse)
        ),
    )
    idle = {}
    for size in (2, 12):
        folder = tmp_path / str(size)
        folder.mkdir()
        deployment = Deployment(folder, size)
        first, reported = deployment.tick()
        assert len(reported) == size
        idle[size], reported = deployment.tick()
        assert reported == [] and idle[size] < first
    assert idle[12] == idle[2]
    deployment.insert(7)
    assert deployment.tick()[1] == ["source7"], "its consumer lags by one more"
    deployment.store.run("b7")
    assert deployment.tick()[1] == ["source7"], "its consumer has caught up"
