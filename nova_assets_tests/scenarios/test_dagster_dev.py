"""``dagster dev`` on the news example: data is inserted, the daemon's sensor fires, the binding commits, the UI's API
shows the blocks."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from dagster import DagsterInstance, RunsFilter

import nova_assets as nova
from nova_assets.dagster_bridge import launch_due
from nova_assets.examples.news.pipeline import project
from nova_assets.examples.news.sources import own_feed

ROOT = Path(__file__).resolve().parents[2]
QUERY = """{ assetNodes { assetKey { path } dependencyKeys { path }
  assetMaterializations(limit: 5) { metadataEntries { label ... on IntMetadataEntry { intValue } } } } }"""


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


def ask(port: int) -> dict[str, Any]:
    body = json.dumps({"query": QUERY}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/graphql", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        nodes = json.load(answer)["data"]["assetNodes"]
    return {n["assetKey"]["path"][-1]: n for n in nodes}


def launched_at_insert_time(store: nova.Store, home: Path, port: int, until: float) -> None:
    """The webserver launches what an insert makes due, and the sensor takes the run for its own."""
    with DagsterInstance.from_config(str(home)) as instance:
        store.insert("articles", own_feed().crawls[1].articles)
        launched = launch_due(store, ["articles"], instance=instance, url=f"http://127.0.0.1:{port}")
        if not launched:  # the sensor has just looked
            return
        [run_id] = launched["dedup"]
        while time.monotonic() < until and store.catalog.channel("unique_articles").head == 1:
            time.sleep(1)
        done = store.executions("dedup", 1)[0]
        assert (done.state, done.run_id) == ("committed", run_id)
        time.sleep(12)  # two looks of the sensor
        firing = store.catalog.last_firing("dedup")
        assert firing is not None and (firing.id, firing.state, firing.attempt) == (done.firing_id, "committed", 1)
        assert len(instance.get_runs(RunsFilter(tags={"nova/firing": firing.id}))) == 1


@pytest.mark.spark
@pytest.mark.dagster
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_dagster_dev_runs_what_is_due_and_shows_it(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text((ROOT / "dagster.yaml").read_text())
    catalog, warehouse = f"sqlite:///{tmp_path}/c.db", str(tmp_path / "wh")
    env = {**os.environ, "DAGSTER_HOME": str(home), "NOVA_CATALOG": catalog, "NOVA_WAREHOUSE": warehouse}
    subprocess.run(
        [sys.executable, str(ROOT / "tools" / "init_dagster_home.py"), str(home)], env=env, check=True, timeout=120
    )
    port = free_port()
    command = [
        str(Path(sys.executable).with_name("dagster")),
        "dev",
        "-w",
        str(ROOT / "workspace.yaml"),
        "-p",
        str(port),
    ]
    with nova.open(project, catalog, warehouse) as store, (tmp_path / "log").open("w") as log:
        store.register(project)
        dev = subprocess.Popen(command, cwd=ROOT, env=env, stdout=log, stderr=log, start_new_session=True)
        try:
            store.insert("articles", own_feed().crawls[0].articles)
            until = time.monotonic() + 300
            while time.monotonic() < until and store.catalog.channel("unique_articles").head == 0:
                time.sleep(2)
                assert dev.poll() is None, (tmp_path / "log").read_text()[-3000:]
            assert store.catalog.channel("unique_articles").head == 1, (tmp_path / "log").read_text()[-4000:]
            shown: dict[str, Any] = {}
            while time.monotonic() < until and not shown.get("unique_articles", {}).get("assetMaterializations"):
                time.sleep(2)
                shown = ask(port)
            labels = {m["label"] for m in shown["unique_articles"]["assetMaterializations"][0]["metadataEntries"]}
            assert {"nova/seq", "nova/range", "nova/consumed", "dagster/row_count"} <= labels
            assert [k["path"][-1] for k in shown["tagged_articles"]["dependencyKeys"]] in (
                ["articles", "site_templates"],
                ["site_templates", "articles"],
            )
            launched_at_insert_time(store, home, port, until)
        finally:
            os.killpg(dev.pid, signal.SIGTERM)
            try:
                dev.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(dev.pid, signal.SIGKILL)
