"""Several processes on one catalog: nothing lost, nothing doubled, no raw database error reaches the caller."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

SECONDS = float(os.environ.get("NOVA_TEST_CONTENTION_SECONDS", "30"))


def race(catalog: str, warehouse: Path, inserters: int, runners: int) -> None:
    from nova_assets_tests.scenarios.contention_worker import open_store

    with open_store(catalog, str(warehouse)) as store:
        store.register(store.project)
    command = [
        sys.executable,
        "-m",
        "nova_assets_tests.scenarios.contention_worker",
        catalog,
        str(warehouse),
        str(SECONDS),
    ]
    roles = [("insert", n) for n in range(inserters)] + [("run", n) for n in range(runners)]
    processes = [
        subprocess.Popen([*command, role, str(n)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for role, n in roles
    ]
    done = [(p.communicate(timeout=SECONDS + 120), p.returncode) for p in processes]
    for (_, errors), code in done:
        assert code == 0, errors[-3000:]
    promised = Counter(int(line) for (out, _), _ in done[:inserters] for line in out.split())
    committed = sum(int(out) for (out, _), _ in done[inserters:])

    with open_store(catalog, str(warehouse)) as store:
        for name in ("one", "two"):
            store.run(name)
        there = Counter(r["k"] for r in store.read("source").to_spark())  # type: ignore[union-attr]
        assert there == promised and set(promised.values()) == {1}, "each acknowledged insert once, and none else"
        for copy in ("copy_one", "copy_two"):
            assert Counter(r["k"] for r in store.read(copy).to_spark()) == promised, copy  # type: ignore[union-attr]
        instants = store.timeline("source")
        commits = [i.seq for i in instants if i.action == "commit" and i.state == "complete"]
        assert commits == list(range(1, len(commits) + 1)), "no holes (R1)"
        print(f"{len(commits)} inserts by {inserters} processes, {committed} runs by {runners}, in {SECONDS:.0f} s")
        assert committed >= 2 and len(commits) > inserters


@pytest.mark.long
@pytest.mark.postgres
def test_six_inserters_and_two_runners_on_postgresql(postgres_catalog_url: str, tmp_path: Path) -> None:
    race(postgres_catalog_url, tmp_path / "wh", inserters=6, runners=2)


@pytest.mark.long
@pytest.mark.exhaustive
def test_four_inserters_and_two_runners_on_sqlite(tmp_path: Path) -> None:
    race(f"sqlite:///{tmp_path}/catalog.db", tmp_path / "wh", inserters=4, runners=2)
