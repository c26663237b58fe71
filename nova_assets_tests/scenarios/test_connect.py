"""Everything that reads and writes, on Spark Connect: the same suites, in a process whose session is a client."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SUITES = ("contracts", "engine/test_writing.py", "engine/test_partitions.py", "engine/test_schemas.py")


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_the_contract_suites_pass_on_spark_connect() -> None:
    suites = [str(ROOT / "nova_assets_tests" / s) for s in SUITES]
    environment = {**os.environ, "NOVA_TEST_SPARK": "connect"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *suites],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout and "1 skipped" in done.stdout
