"""What a newcomer meets before any Python of ours runs: `make help`, `make setup`, the Dagster home of the demo."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def a_checkout(folder: Path) -> Path:
    """A folder with what `make setup` looks at, and nothing installed."""
    (folder / "tools").mkdir(parents=True)
    for file in ("Makefile", "pyproject.toml", "tools/setup.sh"):
        shutil.copy(ROOT / file, folder / file)
    return folder


def a_python(file: Path, version: str, has_venv: bool) -> Path:
    """A `python3` that is of this version, as far as `make setup` can tell."""
    answers = f'*"print("*) echo {version} ;;\n  *"< (3, 11)"*) exit {int(version in ("2.7", "3.10"))} ;;\n'
    answers += f"  *ensurepip*) exit {int(not has_venv)} ;;"
    file.write_text(f"#!/bin/sh\ncase $2 in\n  {answers}\nesac\n")
    file.chmod(0o755)
    return file


def make(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    return subprocess.run(["make", "-C", folder, *arguments], env=environment, capture_output=True, text=True)


def test_make_alone_explains_every_target() -> None:
    shown = make(ROOT).stdout
    targets = re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {"help", "setup", "demo", "test", "test-fast", "check", "clean"} <= set(targets)
    for target in targets:
        assert re.search(rf"^  make {target} +\S", shown, re.MULTILINE), target


@pytest.mark.parametrize(
    ("version", "has_venv", "expected"),
    [
        ("3.10", True, "is Python 3.10, and 3.11 or newer is needed; name another: make setup PYTHON=python3.12"),
        ("3.11", False, "has no venv; install it (Debian, Ubuntu: apt install python3.11-venv)"),
    ],
)
def test_a_python_that_will_not_do_gets_one_clear_line(
    tmp_path: Path, version: str, has_venv: bool, expected: str
) -> None:
    python = a_python(tmp_path / "python3", version, has_venv)
    done = make(a_checkout(tmp_path / "checkout"), "setup", f"PYTHON={python}")
    assert done.returncode != 0
    said = [line for line in done.stderr.splitlines() if line.startswith("make setup:")]
    assert said == [f"make setup: '{python}' {expected}"]
    assert not (tmp_path / "checkout" / ".venv").exists()


def test_no_python_at_all_gets_one_clear_line(tmp_path: Path) -> None:
    done = make(a_checkout(tmp_path / "checkout"), "setup", "PYTHON=python-of-nowhere")
    assert done.returncode != 0
    assert "there is no 'python-of-nowhere' here; install Python 3.11 or newer" in done.stderr


@pytest.mark.slow
@pytest.mark.dagster
def test_many_processes_may_be_first_to_use_the_demos_dagster_home(tmp_path: Path) -> None:
    home = tmp_path / "dagster"
    command = [sys.executable, ROOT / "tools" / "init_dagster_home.py", home]
    racing = [subprocess.Popen(command) for _ in range(4)]
    assert [process.wait(timeout=120) for process in racing] == [0] * 4
    assert "enabled: false" in (home / "dagster.yaml").read_text()
    for database in ("history/runs.db", "history/runs/index.db", "schedules/schedules.db"):
        with sqlite3.connect(home / database) as connection:
            assert len(connection.execute("SELECT version_num FROM alembic_version").fetchall()) == 1, database


def test_the_rooms_that_have_passed_do_not_run_again_until_the_code_changes(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "every_test.py", tmp_path / "tools")
    for room in ("one", "two"):
        (tmp_path / "nova_assets_tests" / room).mkdir(parents=True)
    (tmp_path / "nova_assets_tests" / "test_top.py").write_text("def test(): pass")
    (tmp_path / "nova_assets_tests" / "one" / "test_one.py").write_text("def test(): pass")
    wrong = tmp_path / "nova_assets_tests" / "two" / "test_two.py"
    wrong.write_text("import os\ndef test(): assert os.environ['NOVA_TEST_ALL'] == '2'")
    (tmp_path / ".gitignore").write_text("build\n__pycache__\n.pytest_cache\n")
    subprocess.run(["git", "init", "-q", tmp_path], check=True)

    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # they take most of the time

    def run() -> tuple[int, list[str]]:
        command = [sys.executable, "tools/every_test.py", "-q"]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        return done.returncode, [re.sub(r" in [\d.]+s \(\d+ s\)", "", line) for line in done.stdout.splitlines()]

    assert run() == (1, ["top_level: 1 passed", "one: 1 passed", "two: 1 failed"])
    assert run() == (1, ["top_level: 1 passed, before", "one: 1 passed, before", "two: 1 failed"])
    wrong.write_text("def test(): pass")
    assert run() == (0, ["top_level: 1 passed", "one: 1 passed", "two: 1 passed"])
    assert run() == (0, ["top_level: 1 passed, before", "one: 1 passed, before", "two: 1 passed, before"])
