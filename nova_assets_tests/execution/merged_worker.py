"""A process that runs bindings which begin with one function, and is killed where the environment says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import nova_assets as nova
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.settings import load_settings
from nova_assets.store.store import Store
from nova_assets_tests.stub_engine import StubEngine

SOURCE, EVEN, ODD, LATER = (nova.Channel(n, schema="k bigint, v bigint") for n in ("source", "even", "odd", "later"))


@nova.task(consumes=nova.new(SOURCE), produces=nova.delta("parsed"))
def parse(source: Any) -> Any:
    return [{**row, "v": row["v"] + 1} for row in source]


@nova.task(consumes=nova.new("parsed"), produces=nova.delta(EVEN))
def keep_even(parsed: Any) -> Any:
    return [row for row in parsed if row["k"] % 2 == 0]


@nova.task(consumes=nova.new("parsed"), produces=nova.delta(ODD))
def keep_odd(parsed: Any) -> Any:
    return [row for row in parsed if row["k"] % 2]


@nova.task(consumes=nova.new(EVEN), produces=nova.delta(LATER))
def follow(even: Any) -> Any:
    return even


def open_store(root: Path) -> Store:
    project = nova.Project(
        [
            nova.bind(nova.Workflowette("evens", [parse, keep_even]), when=nova.on_data(SOURCE)),
            nova.bind(nova.Workflowette("odds", [parse, keep_odd]), when=nova.on_data(SOURCE)),
            nova.bind(nova.Workflowette("follows", [follow]), when=nova.on_data(EVEN)),
        ]
    )
    settings = load_settings(start_folder=root, catalog=f"sqlite:///{root}/c.db", warehouse=str(root / "wh"))
    return Store(settings, project, open_catalog(settings.catalog), StubEngine(settings.warehouse))


if __name__ == "__main__":
    with open_store(Path(os.environ["TEST_ROOT"])) as store:
        store.run_due(follow=True)
