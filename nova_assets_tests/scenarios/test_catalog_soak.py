"""Services, dagster dev, commands and signals on one SQLite catalog for a short while (``make soak-catalog``: half an
hour), and that its verdict would find what it looks for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import nova_assets as nova
from nova_assets_tests.catalog_soak.deployment import PROJECT
from nova_assets_tests.catalog_soak.plan import plan_signals
from nova_assets_tests.catalog_soak.project import EVENTS, events
from nova_assets_tests.catalog_soak.verdict import check_integrity, check_keys, check_rows
from nova_assets_tests.effort import examples
from nova_assets_tests.soak import processes

ROOT = Path(__file__).resolve().parents[2]
SEED = 7
SECONDS = examples(20, 60)


@pytest.mark.dagster
@pytest.mark.long
@pytest.mark.crash
@pytest.mark.timeout(900)
@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
def test_each_acknowledged_insert_outlives_many_signals(tmp_path: Path) -> None:
    folder = tmp_path / "soak"
    command = [sys.executable, "-m", "nova_assets_tests.catalog_soak", "--seconds", str(SECONDS), "--seed", str(SEED)]
    soak = subprocess.Popen(
        [*command, "--keep", str(folder)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = soak.communicate(timeout=800)
    finally:
        if soak.poll() is None:
            os.killpg(soak.pid, signal.SIGKILL)
        left = processes.kill_all(folder / "deployment" / "dagster")
    print(said)
    assert f"make soak-catalog SEED={SEED} SECONDS={SECONDS}" in said
    assert soak.returncode == 0, said[-8000:]
    assert not left


def test_a_seed_gives_the_same_signals_every_time() -> None:
    signals = list(plan_signals(5, 300))
    assert signals == list(plan_signals(5, 300)) != list(plan_signals(6, 300))
    assert list(plan_signals(5, 60)) == [planned for planned in signals if planned.at < 60]
    assert {planned.kind for planned in signals} == {"kill", "terminate", "stop"}
    assert {planned.target for planned in signals} == {"service", "watchdog", "instance", "command"}


def test_the_verdict_finds_rows_that_are_missing_repeated_or_unknown(tmp_path: Path) -> None:
    settings = f'[tool.nova]\nproject = "{PROJECT}:defs"\n'
    catalog = tmp_path / "catalog.db"
    (tmp_path / "pyproject.toml").write_text(
        f'{settings}catalog = "sqlite:///{catalog}"\nwarehouse = "{tmp_path}/warehouse"\n'
    )
    with nova.open(catalog=f"sqlite:///{catalog}", warehouse=tmp_path / "warehouse") as store:
        store.register(events)
        for key, rows in {"0-0": ["a", "b"], "0-1": ["c"], "0-2": ["c"]}.items():
            store.insert(EVENTS, [{"id": row, "client": 0} for row in rows], idempotency_key=key)
    sent = {"0-0": ["a", "b"], "0-1": ["c"]}
    assert check_integrity(catalog).problems == []
    assert check_keys(catalog, sent, {"0-2": ["c"]}).problems == []
    assert check_keys(catalog, {**sent, "0-3": ["d"]}, {}).problems == [
        "1 keys are acknowledged and missing: 0-3",
        "1 keys are there that nobody sent: 0-2",
    ]
    assert check_rows(tmp_path, sent, {"0-2": ["e"]}).problems == ["1 rows are there several times: c"]
    assert check_rows(tmp_path, {"0-0": ["a", "d"]}, {"0-1": ["c"]}).problems == [
        "1 rows are acknowledged and missing: d",
        "1 rows are there several times: c",
        "1 rows are there that nobody sent: b",
    ]


def test_the_verdict_finds_a_damaged_file(tmp_path: Path) -> None:
    (tmp_path / "catalog.db").write_bytes(b"SQLite format 3\0" + b"overwritten" * 1_000)
    assert check_integrity(tmp_path / "catalog.db").problems
    assert check_keys(tmp_path / "catalog.db", {"0-0": ["a"]}, {}).problems
