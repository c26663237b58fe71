"""A minute of batches and killed processes under a real ``dagster dev`` (``make soak`` takes ten), and that its verdict
would find what it looks for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.settings import load_settings
from nova_assets_tests.soak import processes
from nova_assets_tests.soak.batches import Batch, batches
from nova_assets_tests.soak.plan import CHANNELS, ROLES, Insert, plan
from nova_assets_tests.soak.recompute import Read, Recompute, broken_chains, difference
from nova_assets_tests.soak.records import Records
from nova_assets_tests.soak.verdict import books
from nova_assets_tests.stub_engine import StubEngine

ROOT = Path(__file__).resolve().parents[2]
SEED = 7


@pytest.mark.spark
@pytest.mark.dagster
@pytest.mark.long
@pytest.mark.exhaustive
@pytest.mark.crash
@pytest.mark.timeout(1200)
@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
@pytest.mark.skipif(version("pyspark") < "4.3", reason="PySpark keeps a server from 4.3 on")
def test_a_minute_of_batches_and_killed_processes(tmp_path: Path) -> None:
    folder = tmp_path / "soak"
    command = [sys.executable, "-m", "nova_assets_tests.soak", "--seconds", "60", "--seed", str(SEED)]
    soak = subprocess.Popen(
        [*command, "--keep", str(folder)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = soak.communicate(timeout=1100)
    finally:
        if soak.poll() is None:
            os.killpg(soak.pid, signal.SIGKILL)
        left = processes.kill_all(folder / "dagster")
    print(said)
    assert f"make soak SEED={SEED} SECONDS=60" in said
    assert soak.returncode == 0, said[-6000:]
    assert not left


def test_a_seed_gives_the_same_plan_and_batches_every_time() -> None:
    one = plan(5, 60)
    assert one == plan(5, 60) and one != plan(6, 60)
    assert {k.role for k in one.kills} <= set(ROLES) and all(k.at < 60 for k in one.kills)
    for channel in CHANNELS:
        count = one.batches(channel)
        assert batches(5, channel, count) == batches(5, channel, count) != batches(6, channel, count)
        given = [i.nth for i in (*one.inserts, *one.last) if i.channel == channel]
        assert given == list(range(count)), "each batch once, in order"
    longer = plan(5, 600)
    assert longer.inserts[: len(one.inserts)] == one.inserts
    assert isinstance(one.last[0], Insert) and {i.channel for i in one.last} == set(CHANNELS)


def test_the_recompute_of_tables() -> None:
    def lives(customer: int, city: str | None) -> dict[str, Any]:
        return {"customer": customer, "city": city, "_deleted": city is None}

    customers = {1: Batch([lives(1, "Cork"), lives(2, "Cork")]), 2: Batch([lives(1, None), lives(2, "Delft")])}
    orders = {1: Batch([{"order": n, "customer": n, "amount": 5, "_deleted": False} for n in (1, 2)])}
    found = Recompute({"customers": customers, "orders": orders, "articles": {}}, []).channels()
    assert found["customers"] == [{"customer": 2, "city": "Delft"}]
    assert found["placed"] == [{"order": 2, "customer": 2, "amount": 5, "city": "Delft"}]
    assert found["per_city"] == [{"city": "Delft", "orders": 1, "amount": 5}]


def test_what_was_read_twice_or_not_at_all_is_found() -> None:
    first, second = Read("w", {"c": (None, 2), "d": (0, 2)}, {}), Read("w", {"d": (2, 3)}, {})
    assert broken_chains([first, second], {"d": 3}) == []
    assert broken_chains([first], {"d": 3}) == ["w has read d up to 2 of 3"]
    assert broken_chains([first, Read("w", {"d": (1, 3)}, {})], {"d": 3}) == ["w read d from 1, after 2"]
    assert broken_chains([Read("w", {"d": (0, 1)}, {"d": 2})], {"d": 2}) == [], "its own output, up to its own number"
    assert difference([{"a": 1}, {"a": 1}], [{"a": 1}, {"a": 2}]).startswith("1 rows missing, 1 further")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[nova.Store]:
    """A small store with one run, on the stub engine."""
    source, copy = nova.Channel("source", schema="k bigint"), nova.Channel("copy", schema="k bigint")

    @nova.task(consumes=nova.new(source), produces=nova.delta(copy))
    def mirror(source: Any) -> Any:
        return source

    project = nova.Project([nova.bind(nova.Workflowette("w", [mirror]), when=nova.on_data("source"))])
    settings = load_settings(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "wh"))
    with nova.Store(settings, project, open_catalog(settings.catalog), StubEngine(settings.warehouse)) as opened:
        opened.register(project)
        opened.insert("source", [{"k": 1}], idempotency_key="source-0")
        firing = opened.catalog.firings.record("w", 0, {}, why="a test")
        assert firing is not None
        begun = opened.runtime.begin("w", firing_id=firing.id)
        opened.runtime.run_tasks_and_commit(begun)
        yield opened


def problems(store: nova.Store) -> str:
    """What the verdict finds wrong with the books."""
    found = books(Records(store.settings.catalog), Path(store.settings.warehouse))
    return "; ".join(p for finding in found for p in finding.problems)


def test_a_sound_store_is_found_sound(store: nova.Store) -> None:
    assert problems(store) == ""


def test_files_too_many_and_too_few_are_found(store: nova.Store) -> None:
    blocks = Path(store.settings.warehouse) / "blocks"
    (blocks / "stray").mkdir()
    assert "blocks/stray is empty" in problems(store)
    (blocks / "stray" / "left.jsonl").write_text("{}")
    assert problems(store) == "blocks/stray/left.jsonl is there and not listed"
    lost = next(f for f in sorted(blocks.glob("*/*")) if f.parent.name != "stray")
    lost.unlink()
    assert f"{lost.relative_to(store.settings.warehouse)} is listed and not there" in problems(store)


def test_what_has_not_ended_is_found(store: nova.Store) -> None:
    store.insert("source", [{"k": 2}])
    assert "w has read source up to 1 of 2" in problems(store)
    firing = store.catalog.firings.record("w", 1, {}, why="a test")
    assert firing is not None and "firing 2 (requested, attempt 1) has not ended" in problems(store)
    store.runtime.begin("w", firing_id=firing.id)
    assert "of w is running with 0 commits" in problems(store)
    store.catalog.firings.end(firing.id, "committed")
    assert "firing 2 (committed, attempt 1) has 0 commits" in problems(store)
