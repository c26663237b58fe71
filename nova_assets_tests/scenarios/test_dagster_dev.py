"""``dg dev`` on two code locations.

News example: data is inserted, the daemon's sensor fires, the binding commits, the UI's API shows the blocks.
Shop (``shop_twice.py``): bindings by their triggers and plain assets by their conditions hold what a recompute gives.
"""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dagster import DagsterInstance, RunsFilter

import nova_assets as nova
from examples.news.pipeline import project
from examples.news.sources import load_bundled_feed
from nova_assets.dagster_bridge import launch_due
from nova_assets.engine.session import connect_server
from nova_assets_tests.dagster_dev import ROOT, dagster_dev, waited_for
from nova_assets_tests.scenarios import shop_twice
from nova_assets_tests.scenarios.naive_shop import BATCHES, expected, held

QUERY = """{ assetNodes { assetKey { path } dependencyKeys { path }
  assetMaterializations(limit: 5) { metadataEntries { label ... on IntMetadataEntry { intValue } } } } }"""


def ask(url: str) -> dict[str, Any]:
    body = json.dumps({"query": QUERY}).encode()
    request = urllib.request.Request(f"{url}/graphql", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        nodes = json.load(answer)["data"]["assetNodes"]
    return {n["assetKey"]["path"][-1]: n for n in nodes}


def launched_at_insert_time(store: nova.Store, home: Path, url: str) -> None:
    """The webserver launches what an insert makes due, and the sensor takes the run for its own."""
    with DagsterInstance.from_config(str(home)) as instance:
        for crawl in load_bundled_feed().crawls[1:]:
            head = store.catalog.definitions.channel("unique_articles").head
            store.insert("articles", crawl.articles)
            launched = launch_due(store, ["articles"], instance=instance, url=url)
            waited_for(lambda head=head: store.catalog.definitions.channel("unique_articles").head > head, "a commit")
            if launched:  # otherwise the sensor has looked in between
                break
        [run_id] = launched["dedup"]
        done = store.executions("dedup", 1)[0]
        assert (done.state, done.run_id) == ("committed", run_id)
        time.sleep(12)  # two looks of the sensor
        firing = store.catalog.firings.last("dedup")
        assert firing is not None and (firing.id, firing.state, firing.attempt) == (done.firing_id, "committed", 1)
        assert len(instance.get_runs(RunsFilter(tags={"nova/firing": firing.id}))) == 1


def the_shop_holds(store: nova.Store, batches: int) -> None:
    """The daemon brings both pipelines to what a recompute over some batches gives."""
    for suffix in ("", "_twin"):
        waited_for(lambda suffix=suffix: held(store, suffix) == expected(batches), f"batch {batches} in large{suffix}")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where the deployment runs. Its runs share a Spark server."""
    yield tmp_path
    connect_server.stop_server(tmp_path / ".nova")


@pytest.mark.spark
@pytest.mark.dagster
@pytest.mark.long
@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_dagster_dev_runs_what_is_due_and_shows_it(folder: Path) -> None:
    catalog, warehouse, home = f"sqlite:///{folder}/c.db", str(folder / "wh"), folder / "home"
    environment = {
        "NOVA_CATALOG": catalog,
        "NOVA_WAREHOUSE": warehouse,
        "NOVA_SPARK": "server",
        "PYTHONPATH": str(ROOT),
    }
    shop = folder / "workspace.yaml"
    shop.write_text(f"load_from: [{{python_file: {{relative_path: {shop_twice.__file__}, location_name: shop}}}}]")
    with nova.open(project, catalog, warehouse) as store:
        store.register(project)
        for definition in (shop_twice.project, shop_twice.large_twin, shop_twice.totals_twin):
            store.register(definition)
        store.insert("orders", BATCHES[0][1])
        of = ["-w", str(ROOT / "workspace.yaml"), "-w", str(shop)]
        with dagster_dev(home, of, cwd=folder, environment=environment) as url:
            store.insert("articles", load_bundled_feed().crawls[0].articles)
            waited_for(lambda: store.catalog.definitions.channel("unique_articles").head == 1, "a commit", 300)

            def shown() -> Any:
                found = ask(url)
                return found if found.get("unique_articles", {}).get("assetMaterializations") else None

            assets = waited_for(shown, "a materialization")
            labels = {m["label"] for m in assets["unique_articles"]["assetMaterializations"][0]["metadataEntries"]}
            assert {"nova/seq", "nova/range", "nova/consumed", "dagster/row_count"} <= labels
            parents = {k["path"][-1] for k in assets["tagged_articles"]["dependencyKeys"]}
            assert parents == {"articles", "site_templates"}
            the_shop_holds(store, 1)
            # Of one day: Dagster makes a backfill of several, which takes longer.
            store.insert("orders", BATCHES[1][1])
            launched_at_insert_time(store, home, url)
            the_shop_holds(store, 2)
            store.insert("orders", BATCHES[2][1])  # a day that comes late
            the_shop_holds(store, 3)
