"""A store that fails, hangs, denies, answers with old listings or loses its answers, at random, while six processes
work: each acknowledged insert is there once, and every error names its cause."""

from __future__ import annotations

import json
import os
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nova_assets_tests.cloud.faulty_s3 import Fault, FaultyS3, Kind
from nova_assets_tests.cloud.faulty_worker import opened
from nova_assets_tests.forked import run_python

pytestmark = pytest.mark.long

PROCESSES = 6
STEPS = int(os.environ.get("NOVA_FUZZ_STEPS", "12"))
SECONDS = max(120.0, 10.0 * STEPS)
FAULTS: list[Fault] = ["fails", "denied", "loses its answer", "lists nothing", "lists what was"]


def test_acknowledged_inserts_are_there_once(faulty: FaultyS3, tmp_path: Path) -> None:
    opened(tmp_path).close()
    chance = random.Random(int(os.environ.get("SEED", "5")))

    def choose(kind: Kind, path: str) -> Fault | None:
        drawn = chance.random()
        if drawn < 0.004:
            return "hangs"
        fault = chance.choice(FAULTS) if drawn < 0.25 else None
        return None if fault is not None and fault.startswith("lists") and kind != "LIST" else fault

    faulty.choose = choose
    count = str(max(1, STEPS // PROCESSES))

    def work(number: int) -> str:
        worker = ["-m", "nova_assets_tests.cloud.faulty_worker", str(tmp_path), str(number), count, str(SECONDS)]
        return run_python(worker, {}, timeout=3 * SECONDS).stdout

    with ThreadPoolExecutor(PROCESSES) as pool:
        said = [json.loads(line) for out in pool.map(work, range(PROCESSES)) for line in out.splitlines()]
    faulty.choose = lambda kind, path: None

    assert [s for s in said if s["what"] == "raw"] == []
    acknowledged = sorted(s["key"] for s in said if s["what"] == "acknowledged")
    assert len(acknowledged) == PROCESSES * int(count), "each was acknowledged in the end"
    assert sum(faulty.faults.values()) > 10, faulty.faults
    for error in (s for s in said if s["what"] == "error"):
        assert error["code"] in ("NOVA-WAREHOUSE-UNAVAILABLE", "NOVA-COMMIT-CONFLICT"), error
        assert "s3://lake/wh" in error["text"] and "AWS" in error["text"], error
    with opened(tmp_path) as store:
        assert sorted(r["k"] for r in store.read("c").to_arrow().to_pylist()) == acknowledged
        inserted = sum(b.rows for b in store.catalog.histories.of("c").blocks if b.kind == "delta")
        assert inserted == len(acknowledged), "none twice"
