"""Stored times come from the catalog's clock, and are compared with the catalog's clock alone."""

from __future__ import annotations

import ast
import logging
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import nova_assets
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.model.execution import BeginRequest
from nova_assets_tests.catalog.mirror_project import channel, open_store, project

ROOT = Path(nova_assets.__file__).parent
CALLS = ("datetime.now", "datetime.utcnow", "datetime.today", "date.today")
ALLOWED = {
    "catalog/database/transactions.py": "the host's clock for tests that set it",
    "catalog/database/sqlite.py": "the host's clock, corrected by the file system's",
    "cli/show.py": "the moment for which a person asks",
    "dagster_bridge/partition_mappings.py": "which partitions Dagster is shown",
    "dagster_bridge/partitions.py": "which partitions Dagster is shown",
    "engine/storage/remote_warehouse.py": "folders of S3 have no time",
    "service/http/guard.py": "the default of a service without a catalog",
    "sql/datasets/dataset_query.py": "a task that is called outside an execution",
}


@pytest.mark.slow
def test_the_hosts_clock_is_read_in_these_places_alone() -> None:
    places = set()
    for file in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and ast.unparse(node) in CALLS:
                places.add(str(file.relative_to(ROOT)))
    unexpected = {p for p in places if not p.startswith("examples/")} - set(ALLOWED)
    assert not unexpected, "compare stored times with Catalog.now()"


@pytest.mark.slow
@pytest.mark.postgres
def test_leases_go_by_the_servers_clock(
    postgres_catalog_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process whose clock is five minutes ahead takes nothing from one that lives."""
    with open_store(postgres_catalog_url, tmp_path) as store:
        store.register(project)
        held = store.catalog.executions.begin(
            BeginRequest("reader", None, pinned_channels=("c",), owner="another host:1:1", lease_seconds=60)
        )
    ahead = (
        "import datetime as d\n"
        "class Ahead(d.datetime):\n"
        "    @classmethod\n"
        "    def now(cls, tz=None): return d_now(tz) + d.timedelta(seconds=300)\n"
        "d_now = d.datetime.now\nd.datetime = Ahead\n"
        "import time as t\nreal = t.time\nt.time = lambda: real() + 300\n"
        "from nova_assets.catalog.open_catalog import open_catalog\n"
        f"c = open_catalog({postgres_catalog_url!r})\n"
        "assert c.staging.sweepable(0.0) == []\n"
        "print(c.executions.get('reader').state)\n"
    )
    done = subprocess.run([sys.executable, "-c", ahead], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.strip()) == (0, "running"), done.stderr[-2000:]
    with open_store(postgres_catalog_url, tmp_path) as store:
        assert store.catalog.executions.get(held.id).state == "running"
        assert abs(store.catalog.now() - datetime.now(UTC)) < timedelta(seconds=5)


def test_a_process_with_another_clock_goes_by_that_of_the_catalogs_file_system(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nova_assets.catalog.database import sqlite

    class Ahead(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return datetime.now(UTC) + timedelta(seconds=300)

    catalog = open_catalog(f"sqlite:///{tmp_path}/catalog.db")
    catalog.definitions.register([channel])
    catalog.executions.begin(BeginRequest("reader", None, pinned_channels=("c",), owner="another", lease_seconds=60))
    monkeypatch.setattr(sqlite, "datetime", Ahead)
    with caplog.at_level(logging.WARNING, logger="nova_assets.catalog"):
        assert catalog.staging.sweepable(0.0) == [] and catalog.executions.get("reader").state == "running"
    assert "300 s ahead of that of the file system" in caplog.text
    assert abs(catalog.now() - datetime.now(UTC)) < timedelta(seconds=5)
    catalog.close()
