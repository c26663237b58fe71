"""Reads leave nothing in the catalog, however they end: over HTTP, in a store, or from a process that was killed.

NOVA_FUZZ_STEPS=20000 reads so often, and looks at the memory of the service, too.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from sqlalchemy import func, select

import nova_assets as nova
from nova_assets.catalog import leases
from nova_assets.catalog.catalog import Catalog
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.catalog.tables import metadata
from nova_assets.model.execution import BeginRequest
from nova_assets_tests.service.served_deployment import open_deployment

pytestmark = pytest.mark.slow

STEPS = int(os.environ.get("NOVA_FUZZ_STEPS", "80"))
ROOT = Path(__file__).resolve().parents[2]

SERVE = """
import sys
from pathlib import Path
from nova_assets.wiring.open_store import open
from nova_assets.service.http.config import ServiceConfig
from nova_assets.service.assembly import build_server, build_service
store = open(catalog=sys.argv[1], warehouse=sys.argv[2], service="embedded")
listening = build_server(build_service(store, ServiceConfig(port=0)))
print(listening.listen(), flush=True)
listening.run()
"""


def row_count_by_table(catalog: str) -> dict[str, int]:
    """Rows of every table."""
    opened = open_catalog(catalog)
    try:
        return opened.database.read(
            lambda c: {t.name: c.execute(select(func.count()).select_from(t)).scalar() for t in metadata.sorted_tables}
        )
    finally:
        opened.close()


def reaches_row_counts(catalog: str, expected: dict[str, int]) -> bool:
    """Whether the tables have so many rows, in a moment: pins are let go of after the last byte was sent."""
    until = time.monotonic() + 5
    while row_count_by_table(catalog) != expected and time.monotonic() < until:
        time.sleep(0.1)
    return row_count_by_table(catalog) == expected


def read_at_random(http: httpx.Client, chance: random.Random) -> None:
    """One read: a good one, one that is refused, or one that nobody reads to its end."""
    channel = chance.choice(["stock", "events", "quokka_ledger", "nothing"])
    parameters = chance.choice(
        [{}, {"at": "1"}, {"since": "1"}, {"at": "99"}, {"column": "none"}, {"partition": "x=1"}]
    )
    if chance.random() < 0.2:
        http.post(f"/v1/channels/{channel}/read", json={"keys": [{"sku": chance.randrange(9)}]})
    elif chance.random() < 0.1:
        with http.stream("GET", f"/v1/channels/{channel}/data") as answer:
            next(answer.iter_raw(16), None)
    else:
        http.get(f"/v1/channels/{channel}/data", params=parameters)


def test_reads_over_http_leave_the_catalog_as_it_was(tmp_path: Path) -> None:
    with open_deployment(tmp_path) as deployment:
        url = deployment.store.settings.catalog
    before = row_count_by_table(url)
    command = [sys.executable, "-c", SERVE, url, str(tmp_path / "wh")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    serving = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    try:
        assert serving.stdout is not None
        chance, peaks, sizes = random.Random(7), [], []
        with httpx.Client(base_url=serving.stdout.readline().strip(), timeout=60) as http:
            for step in range(STEPS):
                read_at_random(http, chance)
                if step % (STEPS // 8) == STEPS // 8 - 1:
                    peaks.append(resident_memory_bytes(serving.pid))
                    sizes.append((tmp_path / "catalog.db").stat().st_size)
        assert reaches_row_counts(url, before)
        print("resident MiB", [p >> 20 for p in peaks], "catalog bytes", sizes)
        assert sizes[-1] <= sizes[0] + 64 * 1024
        if STEPS >= 2000:  # after the first eighth, whatever is loaded and cached is there
            assert peaks[-1] < peaks[0] + (48 << 20), peaks
    finally:
        serving.terminate()
        serving.wait(30)


def resident_memory_bytes(pid: int) -> int:
    """Bytes of memory that a process has now."""
    if sys.platform != "linux":
        return 0
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.core
def test_a_store_and_the_shell_leave_nothing_either(tmp_path: Path) -> None:
    with open_deployment(tmp_path) as deployment:
        url, store = deployment.store.settings.catalog, deployment.store
        before = row_count_by_table(url)
        for how in ({}, {"at": 1}, {"since": 1}, {"columns": ["sku"]}, {"keys": [{"sku": 3}]}):
            store.read("stock", **how).to_arrow()
        with store.pin("stock", "events") as pinned:
            pinned.read("stock").to_arrow()
            assert row_count_by_table(url)["nova_executions"] == before["nova_executions"] + 1
        with suppress(ValueError), store.pin("stock"):
            raise ValueError("its reader fails")
        with pytest.raises(nova.NovaError), store.pin("stock", at=99):
            pass
        assert row_count_by_table(url) == before
    options = ["--catalog", url, "--warehouse", str(tmp_path / "wh"), "--json"]
    command = [sys.executable, "-m", "nova_assets.cli", "read", "stock", *options]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert row_count_by_table(url) == before


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Catalog]:
    postgres = request.param == "postgres"
    url = request.getfixturevalue("postgres_catalog_url") if postgres else f"sqlite:///{tmp_path}/catalog.db"
    opened = open_catalog(url)
    yield opened
    opened.close()


def test_what_killed_readers_left_goes_in_bounded_batches(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers that live keep their pins, and so does whoever moves cursors of its own."""
    monkeypatch.setattr(leases, "_READERS_PER_TRANSACTION", 20)
    monkeypatch.setattr(leases, "_MAX_TRANSACTIONS", 3)
    begin, real = catalog.executions.begin, catalog.database.clock
    catalog.definitions.register([nova.Channel("stock", schema="sku bigint")])

    def read(name: str, binding: str | None = None) -> None:
        begin(BeginRequest(name, binding, pinned_channels=("stock",), owner="x", lease_seconds=60.0, purpose="read"))

    catalog.database.clock = lambda: real() - timedelta(hours=1)
    for n in range(90):
        read(f"killed{n}")
    read("consumer", "asset:mine")
    catalog.database.clock = real
    read("alive")
    assert catalog.database.read(lambda c: len(c.exec_driver_sql("SELECT id FROM nova_executions").all())) == 92
    catalog.staging.sweepable(grace_seconds=1.0)
    assert catalog.database.read(lambda c: len(c.exec_driver_sql("SELECT id FROM nova_executions").all())) == 32
    catalog.staging.sweepable(grace_seconds=1.0)
    left = catalog.database.read(lambda c: sorted(c.exec_driver_sql("SELECT execution_id FROM nova_pins").scalars()))
    assert left == ["alive", "consumer"]
    catalog.executions.delete_reader("consumer")
    catalog.executions.delete_reader("alive")
    left = catalog.database.read(lambda c: sorted(c.exec_driver_sql("SELECT execution_id FROM nova_pins").scalars()))
    assert left == ["consumer"]
