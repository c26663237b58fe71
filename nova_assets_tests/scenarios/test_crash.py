"""SIGKILL at every named point (R1 to R7): before the commit is durable nothing is visible, afterwards everything is.

The whole matrix runs on the stub engine, over both catalogs; each point once on Spark over PostgreSQL.
"""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path

import pytest

import nova_assets as nova
from nova_assets.crash_points import CRASH_POINTS
from nova_assets_tests.effort import long_except
from nova_assets_tests.forked import run_python
from nova_assets_tests.scenarios.crash_worker import GRACE, LEASE, open_store, rows

pytestmark = pytest.mark.slow

OTHERS = ("sweep", "publish", "collect", "repair", "fire", "receive", "seal", "edition", "notify")
RUN_POINTS = [p for p in CRASH_POINTS if not p.startswith(OTHERS)]
INSERT_POINTS = [p for p in RUN_POINTS if p != "task.after"]
DURABLE = ("commit.after",)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/catalog.db"
    url: str = request.getfixturevalue("postgres_catalog_url")
    return url


def worker(catalog: str, warehouse: Path, engine: str, action: str, crash: str | None = None) -> int:
    """Run the action in a process of its own; the exit code, -9 when it was killed."""
    command = ["-m", "nova_assets_tests.scenarios.crash_worker", catalog, str(warehouse), engine, action]
    done = run_python(command, {"NOVA_CRASH_AT": crash or ""})
    assert done.returncode in (0, -9), done.stderr[-3000:]
    return done.returncode


def keys(store: nova.Store, channel: str) -> list[int]:
    frame = store.read(channel).to_spark()
    got = frame if isinstance(frame, list) else [r.asDict() for r in frame.collect()]
    return sorted(r["k"] for r in got)


def files(warehouse: Path) -> set[str]:
    return {
        p.relative_to(warehouse).as_posix() for p in warehouse.glob("blocks/*/*") if not p.name.startswith((".", "_"))
    }


def listed(store: nova.Store) -> set[str]:
    return {
        f.path
        for s in store.channels()
        for i in store.timeline(s.channel.name)
        for b in i.blocks
        for f in b.manifest.files
    }


def crash_and_recover(catalog: str, warehouse: Path, engine: str, action: str, point: str) -> None:
    with open_store(catalog, str(warehouse), engine) as store:
        store.register(store.project)
        store.insert("source", rows(engine, 1, 2))
        if action == "insert":
            store.run("w")
        assert worker(catalog, warehouse, engine, action, point) == -9

        durable = point in DURABLE
        if action == "run":
            assert keys(store, "copy") == keys(store, "total") == ([1, 2] if durable else [])
            assert {(c.channel, c.seq) for c in store.cursors() if c.seq} == (
                {("source", 1), ("copy", 1)} if durable else set()
            )
        else:
            assert keys(store, "source") == ([1, 2, 3, 4] if durable else [1, 2])

        # the next run is right, whoever makes it; a dead process of this machine need not be waited for
        if engine == "stub":
            assert worker(catalog, warehouse, engine, action) == 0
        store.run("w")
        expected = [1, 2] if action == "run" else [1, 2, 3, 4]
        assert keys(store, "source") == keys(store, "copy") == keys(store, "total") == expected
        assert all(c.lag == 0 for c in store.cursors())

        time.sleep(LEASE + GRACE + 0.2)
        store.runtime.delete_dead_staging()
        assert files(warehouse) == listed(store), "nothing is left after the sweep, and nothing is missing"


@pytest.mark.crash
@pytest.mark.parametrize("point", long_except(RUN_POINTS, "stage.written", "commit.after"))
def test_a_run_killed_at_each_point(catalog: str, tmp_path: Path, point: str) -> None:
    crash_and_recover(catalog, tmp_path / "wh", "stub", "run", point)


@pytest.mark.crash
@pytest.mark.parametrize("point", long_except(INSERT_POINTS, "commit.inside"))
def test_an_insert_killed_at_each_point(catalog: str, tmp_path: Path, point: str) -> None:
    crash_and_recover(catalog, tmp_path / "wh", "stub", "insert", point)


@pytest.mark.crash
@pytest.mark.parametrize("point", long_except(["sweep.before", "sweep.after"], "sweep.before"))
def test_a_sweep_killed_at_each_point(catalog: str, tmp_path: Path, point: str) -> None:
    warehouse = tmp_path / "wh"
    with open_store(catalog, str(warehouse), "stub") as store:
        store.register(store.project)
        store.insert("source", rows("stub", 1, 2))
        assert worker(catalog, warehouse, "stub", "run", "commit.before") == -9
        time.sleep(LEASE + GRACE + 0.2)
        assert worker(catalog, warehouse, "stub", "sweep", point) == -9
        assert worker(catalog, warehouse, "stub", "sweep") == 0
        assert files(warehouse) == listed(store)
        store.run("w")
        assert keys(store, "total") == [1, 2]


@pytest.mark.crash
@pytest.mark.parametrize(
    "point", long_except([p for p in INSERT_POINTS if p != "begin.before"], "stage.written", "commit.after")
)
def test_a_compaction_killed_at_each_point(catalog: str, tmp_path: Path, point: str) -> None:
    warehouse = tmp_path / "wh"
    with open_store(catalog, str(warehouse), "stub") as store:
        store.register(store.project)
        for n in range(3):
            store.insert("source", rows("stub", n, n + 1))
            store.run("w")
        assert worker(catalog, warehouse, "stub", "compact", point) == -9
        assert keys(store, "total") == [0, 1, 2, 3] and store.catalog.definitions.channel("total").head == 3
        assert worker(catalog, warehouse, "stub", "compact") == 0
        blocks = store.catalog.histories.of("total").blocks
        assert [b.range for b in blocks if b.kind == "base"] == ["B3"]
        time.sleep(LEASE + GRACE + 0.2)
        store.runtime.delete_dead_staging()
        assert files(warehouse) == listed(store) and keys(store, "total") == [0, 1, 2, 3]


@pytest.mark.crash
@pytest.mark.parametrize("point", ["collect.marked", "collect.deleted"])
def test_a_collection_killed_at_each_point(catalog: str, tmp_path: Path, point: str) -> None:
    warehouse = tmp_path / "wh"
    with open_store(catalog, str(warehouse), "stub") as store:
        store.register(store.project)
        for n in range(3):
            store.insert("source", rows("stub", n, n + 1))
            store.run("w")
        store.compact("total")
        if point == "collect.deleted":
            store.catalog.garbage.collect("total", 0.0)  # marked; the files are left to the worker
            time.sleep(0.1)
        assert worker(catalog, warehouse, "stub", "collect", point) == -9
        assert keys(store, "total") == [0, 1, 2, 3]
        time.sleep(0.1)
        assert worker(catalog, warehouse, "stub", "collect") == 0
        assert files(warehouse) == listed(store), "what is collected is gone, and nothing else"
        assert [b.range for b in store.catalog.histories.of("total").blocks] == ["B3"]
        assert keys(store, "total") == [0, 1, 2, 3]


@pytest.mark.crash
@pytest.mark.parametrize(
    "point", long_except(["sweep.before", "sweep.after", "repair.given_up", "repair.moving"], "repair.moving")
)
def test_a_repair_killed_at_each_point(catalog: str, tmp_path: Path, point: str) -> None:
    warehouse = tmp_path / "wh"
    with open_store(catalog, str(warehouse), "stub") as store:
        store.register(store.project)
        for n in range(3):
            store.insert("source", rows("stub", n, n + 1))
            store.run("w")
        store.compact("total")
        [base] = [b for b in store.catalog.histories.of("total").blocks if b.kind == "base"]
        (warehouse / base.manifest.files[0].path).unlink()
        store.insert("source", rows("stub", 9))
        assert worker(catalog, warehouse, "stub", "run", "task.after") == -9
        orphan = warehouse / "blocks" / "lost" / "part-0"
        orphan.parent.mkdir()
        orphan.write_text("nobody's")
        time.sleep(LEASE + GRACE + 0.2)
        assert worker(catalog, warehouse, "stub", "repair", point) == -9
        assert worker(catalog, warehouse, "stub", "repair") == 0
        assert files(warehouse) == {f for f in listed(store) if f not in {f.path for f in base.manifest.files}}
        store.run("w")
        assert keys(store, "total") == [0, 1, 2, 3, 9]


@pytest.mark.crash
@pytest.mark.dagster
@pytest.mark.parametrize("point", long_except(["publish.before", "publish.after"], "publish.before"))
def test_r17_a_dagster_run_killed_around_publishing(
    catalog: str, tmp_path: Path, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit is durable, so everything is visible; what Dagster has not heard is published later, once."""
    import dagster as dg

    from nova_assets.dagster_bridge import unreported_commits

    warehouse, home = tmp_path / "wh", tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    with open_store(catalog, str(warehouse), "stub") as store, dg.DagsterInstance.get() as instance:
        store.register(store.project)
        store.insert("source", rows("stub", 1, 2))
        assert worker(catalog, warehouse, "stub", "dagster", point) == -9
        assert keys(store, "copy") == keys(store, "total") == [1, 2]
        assert [c.lag for c in store.cursors()] == [0, 0]
        monkeypatch.setattr(unreported_commits, "LEAVE_TO_RUN", timedelta(0))
        for _ in range(3):
            for event in unreported_commits.collect_missing_events(store, instance):
                instance.report_runless_asset_event(event)
        for channel in ("source", "copy", "total"):
            told = instance.fetch_materializations(dg.AssetKey(channel), limit=10).records
            assert len(told) == 1, f"{channel} is told once"
        assert store.catalog.commits.unreported() == []


@pytest.mark.crash
@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.long
@pytest.mark.parametrize("point", long_except(RUN_POINTS, "commit.inside"))
def test_a_run_on_spark_and_postgresql_killed_at_each_point(
    postgres_catalog_url: str, tmp_path: Path, point: str
) -> None:
    crash_and_recover(postgres_catalog_url, tmp_path / "wh", "spark", "run", point)
