"""``dagster dev`` on the news example: data is inserted, the daemon's sensor fires, the binding commits, the UI's API
shows the blocks."""

from __future__ import annotations

import json
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from dagster import DagsterInstance, RunsFilter

import nova_assets as nova
from nova_assets.dagster_bridge import launch_due
from nova_assets.examples.news.pipeline import project
from nova_assets.examples.news.sources import load_bundled_feed
from nova_assets_tests.dagster_dev import ROOT, dagster_dev, waited_for

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
            head = store.catalog.channel("unique_articles").head
            store.insert("articles", crawl.articles)
            launched = launch_due(store, ["articles"], instance=instance, url=url)
            waited_for(lambda head=head: store.catalog.channel("unique_articles").head > head, "a commit")
            if launched:  # otherwise the sensor has looked in between
                break
        [run_id] = launched["dedup"]
        done = store.executions("dedup", 1)[0]
        assert (done.state, done.run_id) == ("committed", run_id)
        time.sleep(12)  # two looks of the sensor
        firing = store.catalog.last_firing("dedup")
        assert firing is not None and (firing.id, firing.state, firing.attempt) == (done.firing_id, "committed", 1)
        assert len(instance.get_runs(RunsFilter(tags={"nova/firing": firing.id}))) == 1


@pytest.mark.spark
@pytest.mark.dagster
@pytest.mark.long
@pytest.mark.timeout(600)
def test_dagster_dev_runs_what_is_due_and_shows_it(tmp_path: Path) -> None:
    catalog, warehouse, home = f"sqlite:///{tmp_path}/c.db", str(tmp_path / "wh"), tmp_path / "home"
    environment = {"NOVA_CATALOG": catalog, "NOVA_WAREHOUSE": warehouse}
    with nova.open(project, catalog, warehouse) as store:
        store.register(project)
        with dagster_dev(home, ["-w", str(ROOT / "workspace.yaml")], environment=environment) as url:
            store.insert("articles", load_bundled_feed().crawls[0].articles)
            waited_for(lambda: store.catalog.channel("unique_articles").head == 1, "a commit", 300)

            def shown() -> Any:
                found = ask(url)
                return found if found.get("unique_articles", {}).get("assetMaterializations") else None

            assets = waited_for(shown, "a materialization")
            labels = {m["label"] for m in assets["unique_articles"]["assetMaterializations"][0]["metadataEntries"]}
            assert {"nova/seq", "nova/range", "nova/consumed", "dagster/row_count"} <= labels
            parents = {k["path"][-1] for k in assets["tagged_articles"]["dependencyKeys"]}
            assert parents == {"articles", "site_templates"}
            launched_at_insert_time(store, home, url)
