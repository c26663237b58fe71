"""Lost COMMITs, servers that are gone for a while, and locked files: each has one meaning, and nothing is lost."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

import nova_assets as nova
from nova_assets.catalog.database import transactions
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.model.execution import BeginRequest
from nova_assets_tests.catalog.mirror_project import channel, count_keys, open_store, project
from nova_assets_tests.faulty_line import AtCommit, Fault, FaultyLine

pytestmark = pytest.mark.slow

# the URL's own options


# PgBouncer


# lost COMMITs (R7)


@pytest.mark.postgres
@pytest.mark.parametrize("first", ["cut", "lose"] if os.environ.get("NOVA_TEST_FAULT_SECONDS") else ["lose"])
def test_r7_every_lost_commit_of_an_insert_and_a_run_is_looked_up(
    postgres_catalog_url: str, tmp_path: Path, first: Fault
) -> None:
    """Registering, begin, staging, the commit itself: each COMMIT in turn does not arrive, or its answer does not.

    With ``NOVA_TEST_FAULT_SECONDS`` each of them fails in both ways, otherwise in one.
    """
    with open_store(postgres_catalog_url, tmp_path) as store:
        store.register(project)
    number, lost = 0, True
    while lost:
        number += 1
        fault: Fault = first if number % 2 else "cut" if first == "lose" else "lose"
        broken = AtCommit(fault, number)
        broken.armed = False
        line = FaultyLine(postgres_catalog_url, broken)
        with open_store(line.url, tmp_path) as store:
            broken.armed = True
            store.insert("c", [{"k": number, "v": 0}], idempotency_key=f"key {number}")
            store.run("mirror")
        line.close()
        lost = broken.count >= number
    assert number > 8
    with open_store(postgres_catalog_url, tmp_path) as store:
        assert count_keys(store, "c") == count_keys(store, "copy") == Counter(range(1, number + 1))
        assert not [e for e, _ in store.catalog.staging.executions_with_blocks() if e.state == "running"]


@pytest.mark.postgres
def test_a_server_that_never_answers_is_cut_off_and_its_locks_are_freed(
    postgres_catalog_url: str, tmp_path: Path
) -> None:
    with open_store(postgres_catalog_url, tmp_path) as store:
        store.register(project)
    for number in range(1, 5):
        broken = AtCommit("hang", number)
        line = FaultyLine(postgres_catalog_url, broken)
        with open_store(line.url, tmp_path, timeout=0.5) as store:
            store.insert("c", [{"k": number, "v": 0}])
            assert broken.count >= number
        line.close()
    with open_store(postgres_catalog_url, tmp_path) as store:
        assert count_keys(store, "c") == Counter(range(1, 5))


@pytest.mark.postgres
def test_an_outcome_that_nobody_can_tell_says_what_to_do(postgres_catalog_url: str) -> None:
    line = FaultyLine(postgres_catalog_url)
    catalog = open_catalog(line.url, patience=1.0)
    catalog.definitions.register([channel])
    gone = AtCommit("lose")

    def decide(data: bytes) -> Fault | None:
        return "cut" if gone.count and not data else gone(data)

    line.decide = decide
    with pytest.raises(nova.CommitOutcomeUnknown, match="could not be determined within 1 s") as met:
        catalog.executions.begin(BeginRequest("x", None, pinned_channels=("c",), owner="test"))
    assert "nova timeline" in str(met.value.next) and "looked up" not in str(met.value)
    catalog.close()
    line.close()


# a server that is gone for a while


@pytest.mark.postgres
def test_a_server_that_is_gone_for_two_seconds_is_waited_for(
    postgres_catalog_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "LOG_WAITING_AFTER_SECONDS", 1.0)
    line = FaultyLine(postgres_catalog_url)
    with open_store(line.url, tmp_path) as store:
        store.register(project)
        until = time.monotonic() + 2.0
        line.decide = lambda data: "cut" if time.monotonic() < until else None
        with caplog.at_level(logging.WARNING, logger="nova_assets.catalog"):
            store.insert("c", [{"k": 1, "v": 1}])
        assert count_keys(store, "c") == Counter([1])
    assert "waiting for the catalog postgresql+psycopg://" in caplog.text and "gives up in" in caplog.text
    line.close()


@pytest.mark.postgres
def test_a_server_that_stays_away_ends_at_the_stated_time(postgres_catalog_url: str, tmp_path: Path) -> None:
    line = FaultyLine(postgres_catalog_url)
    with open_store(line.url, tmp_path, patience=1.5) as store:
        store.register(project)
        line.decide = lambda data: "cut"
        with pytest.raises(nova.CatalogUnavailable, match="does not answer") as met:
            store.channels()
        assert "waited" in str(met.value.found)
    line.close()


# what is refused, and why


# clocks


# a locked SQLite file


@pytest.mark.core
def test_a_locked_file_is_told_and_ends_at_the_stated_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "LOG_WAITING_AFTER_SECONDS", 0.6)
    catalog = open_catalog(f"sqlite:///{tmp_path}/catalog.db", patience=2.5)
    holding = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('BEGIN IMMEDIATE'); print(1, flush=True);"
            "sys.stdin.read()",
            str(tmp_path / "catalog.db"),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holding.stdout is not None and holding.stdin is not None
    holding.stdout.readline()
    with (
        caplog.at_level(logging.WARNING, logger="nova_assets.catalog"),
        pytest.raises(nova.CatalogUnavailable, match="is locked by another transaction") as met,
    ):
        catalog.definitions.register([channel])
    assert f"process {holding.pid}" in str(met.value.found) and "waited" in str(met.value.found)
    assert f"process {holding.pid}" in caplog.text and "gives up in" in caplog.text
    assert catalog.definitions.channels() == [], "it can be read meanwhile"
    holding.stdin.close()
    holding.wait()
    catalog.definitions.register([channel])
    catalog.close()


# threads
