"""The wheel in an empty environment outside the checkout: ``nova init shop``, and the project's commands."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nova_assets_tests.effort import by_hand

ROOT = Path(__file__).resolve().parents[2]


@by_hand
@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("python", ["python3.11", "python3.12", "python3.13"])
def test_a_project_runs_with_the_wheel_alone(python: str, tmp_path: Path) -> None:
    interpreter = shutil.which(python)
    if interpreter is None or subprocess.run([interpreter, "--version"], capture_output=True, check=False).returncode:
        pytest.skip(f"no {python}")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "NOVA", "PYTHON", "DAGSTER"))}

    def run(*command: str, folder: Path = tmp_path) -> str:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout

    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", "--wheel-dir", str(tmp_path), str(ROOT))
    [wheel] = tmp_path.glob("*.whl")
    run(interpreter, "-m", "venv", "empty")
    commands = tmp_path / "empty" / "bin"
    run(str(commands / "pip"), "install", "--quiet", f"{wheel}[dg]", "pytest")
    run(str(commands / "nova"), "init", "shop")
    shop = tmp_path / "shop"
    run(str(commands / "pip"), "install", "--quiet", "--no-deps", "-e", ".", folder=shop)
    output = run(str(commands / "python"), "-m", "shop", folder=shop)
    assert [line.split() for line in output.splitlines() if line.strip().startswith("Lyon")] == [["Lyon", "39.50", "2"]]
    assert " passed" in run(str(commands / "pytest"), "-q", folder=shop)
