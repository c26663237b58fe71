"""A binding with its project and Dagster instance: real Dagster, real SQLite, stub engine."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

import nova_assets as nova
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.dagster_bridge import build_definitions, resources
from nova_assets.dagster_bridge.triggers import evaluate_trigger
from nova_assets.store.store import Store
from nova_assets_tests.stub_engine import StubEngine
from nova_assets_tests.stub_merge import Row

DDL = "k bigint, v bigint"
source, copy, other = (nova.Channel(n, schema=DDL) for n in ("source", "copy", "other"))
broken: list[str] = []


@nova.task(consumes=nova.new(source), produces=nova.delta(copy))
def mirror(ctx: nova.Context, source: list[Row]) -> list[Row]:
    ctx.log.info("a line of the task")
    if broken:
        raise ValueError(broken.pop())
    return source


@nova.task(consumes=nova.new(other))
def sink(other: list[Row]) -> None:
    return None


def make(root: Path, monkeypatch: Any, **bind: Any) -> Any:
    project = nova.Project([nova.bind(nova.Workflowette("w", [mirror]), **bind)], channels=[other])
    return World(root, project, monkeypatch)


class World:
    def __init__(self, root: Path, project: nova.Project, monkeypatch: Any) -> None:
        def opener(project: Any = None, spark: Any = None, settings: Any = None) -> Store:
            return Store(settings, project, open_catalog(settings.catalog), StubEngine(settings.warehouse))

        monkeypatch.setattr(resources, "open_store", opener)
        broken.clear()
        self.binding = project.bindings[0]
        self.defs = build_definitions(project, catalog=f"sqlite:///{root}/c.db", warehouse=str(root / "wh"))
        self.store = self.defs.resources["nova"].store()
        self.store.register(project)
        (root / "home").mkdir()
        self.instance = dg.DagsterInstance.local_temp(str(root / "home"))

    def run(self, selection: str = "copy", assets: Any = (), **how: Any) -> Any:
        defs = dg.Definitions.merge(self.defs, dg.Definitions(assets=list(assets))) if assets else self.defs
        job = defs.resolve_implicit_global_asset_job_def()
        keys = [dg.AssetKey(s) for s in selection.split(",")]
        return job.execute_in_process(instance=self.instance, asset_selection=keys, raise_on_error=False, **how)

    def tick(self, now: datetime | None = None) -> Any:
        return evaluate_trigger(self.binding, self.store, self.instance, now)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = make(tmp_path, monkeypatch, when=nova.on_data("source"))
    yield made
    made.store.close()
    made.instance.dispose()


def rows(*keys: int) -> list[Row]:
    return [{"k": k, "v": 0} for k in keys]
