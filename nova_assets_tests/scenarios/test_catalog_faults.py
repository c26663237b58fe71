"""Six processes over lines to PostgreSQL that break at random: each acknowledged write is there once.

Statements do not arrive, their answers are lost, the server does not answer, or a connection ends at a standby whose
data is old. ``NOVA_TEST_FAULT_SECONDS=600`` runs for longer, ``NOVA_TEST_FAULT_SEED`` in another way.
"""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nova_assets_tests import postgres
from nova_assets_tests.conftest import missing
from nova_assets_tests.effort import EVERYTHING
from nova_assets_tests.faulty_line import AtRandom, FaultyLine
from nova_assets_tests.forked import run_python
from nova_assets_tests.scenarios.contention_worker import open_store

SECONDS = float(os.environ.get("NOVA_TEST_FAULT_SECONDS") or (8 if EVERYTHING else 4))
SEED = int(os.environ.get("NOVA_TEST_FAULT_SEED", "24"))
RATE = 1.5
PROCESSES = 6


@pytest.mark.long
@pytest.mark.postgres
def test_each_acknowledged_write_is_there_once_whatever_breaks(tmp_path: Path) -> None:
    try:
        with postgres.server() as primary:
            race(primary, tmp_path / "wh")
    except postgres.NoPostgres as reason:
        missing(f"no PostgreSQL server: {reason}", "install PostgreSQL")


def race(primary: str, warehouse: Path) -> None:
    with open_store(primary, str(warehouse)) as store:
        store.register(store.project)
    with postgres.standby(primary) as standby:
        faults = [AtRandom(SEED + n, RATE) for n in range(PROCESSES)]
        lines = [FaultyLine(primary, fault, standby) for fault in faults]

        def work(number: int) -> subprocess.CompletedProcess[str]:
            worker = ["-m", "nova_assets_tests.scenarios.faults_worker", lines[number].url, str(warehouse)]
            return run_python([*worker, str(SECONDS), str(number)], {}, timeout=SECONDS + 240)

        with ThreadPoolExecutor(PROCESSES) as pool:
            done = list(pool.map(work, range(PROCESSES)))
        for line in lines:
            line.close()
    for process in done:
        assert process.returncode == 0, process.stderr[-3000:]
    said = [line.split(" ", 2) for process in done for line in process.stdout.splitlines()]
    promised = Counter(int(words[1]) for words in said if words[0] == "ok")
    causes = Counter(" ".join(words[1:])[:100] for words in said if words[0] == "error")
    broken = sum((fault.faults for fault in faults), Counter())
    print(
        f"{len(promised)} inserts by {PROCESSES} processes in {SECONDS:.0f} s; faults {dict(broken)}; errors {causes}"
    )
    assert set(promised.values()) == {1} and len(promised) >= PROCESSES and sum(broken.values()) > 10
    assert all(cause.split(" ", 1)[1].strip() for cause in causes), "every error names its cause"

    with open_store(primary, str(warehouse)) as store:
        for name in ("one", "two"):
            store.run(name)
        for name in ("source", "copy_one", "copy_two"):
            assert Counter(r["k"] for r in store.read(name).to_spark()) == promised, name  # type: ignore[union-attr]
        instants = store.timeline("source")
        commits = [i.seq for i in instants if i.action == "commit" and i.state == "complete"]
        assert commits == list(range(1, len(commits) + 1)), "no holes (R1)"
