"""``make ui`` finds the example: the examples stand beside the package, and are not installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.core
@pytest.mark.slow
def test_dagster_loads_the_example_in_the_folder_of_the_checkout(tmp_path: Path) -> None:
    command = [str(Path(sys.executable).parent / "dagster"), "definitions", "validate", "-w", "workspace.yaml"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "DAGSTER_HOME": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
