"""A process that runs what is due, and is killed where the environment says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import nova_assets as nova
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.settings import load_settings
from nova_assets.store.store import Store
from nova_assets_tests.stub_engine import StubEngine

SOURCE, COPY, TWICE = (nova.Channel(n, schema="k bigint, v bigint") for n in ("source", "copied", "twice"))


@nova.task(consumes=nova.new(SOURCE), produces=nova.delta(COPY))
def copy(source: Any) -> Any:
    return source


@nova.task(consumes=nova.new(COPY), produces=nova.delta(TWICE))
def double(copied: Any) -> Any:
    return [{**row, "v": 2 * row["v"]} for row in copied]


def open_store(root: Path) -> Store:
    project = nova.Project(
        [
            nova.bind(nova.Workflowette("double", [double]), when=nova.on_data(COPY)),
            nova.bind(nova.Workflowette("copy", [copy]), when=nova.on_data(SOURCE)),
        ]
    )
    settings = load_settings(start_folder=root, catalog=f"sqlite:///{root}/c.db", warehouse=str(root / "wh"))
    return Store(settings, project, open_catalog(settings.catalog), StubEngine(settings.warehouse))


if __name__ == "__main__":
    with open_store(Path(os.environ["TEST_ROOT"])) as store:
        store.run_due(follow=True)
