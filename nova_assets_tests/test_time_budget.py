"""Which tests a run with a deadline leaves out, and in which order the files come."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from nova_assets_tests import time_budget
from nova_assets_tests.conftest import ROOT

CONFTEST = """
from nova_assets_tests.time_budget import skip_after_deadline

def pytest_runtest_setup(item):
    skip_after_deadline(item)
"""

TESTS = """
import pytest

def test_quick(): pass

@pytest.mark.slow
def test_slow(): pass

@pytest.mark.spark
@pytest.mark.core
def test_that_each_commit_must_pass(): pass
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seconds_left", "result"), [(-1, "2 passed, 1 skipped"), (600, "3 passed"), (None, "3 passed")]
)
def test_what_is_slow_is_left_out_after_the_deadline(seconds_left: int | None, result: str, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_some.py").write_text(TESTS)
    deadline = "" if seconds_left is None else str(time.time() + seconds_left)
    environment = {**os.environ, "NOVA_TEST_DEADLINE": deadline, "PYTHONPATH": str(ROOT)}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", str(tmp_path)]
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0 and result in ran.stdout, ran.stdout + ran.stderr
    assert ("the time of this run is used up" in ran.stdout) == (seconds_left == -1)


def test_quick_files_come_first_and_the_others_in_an_order_of_each_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {f"test_{n}.py": n % 4 for n in range(40)}

    def ordered(deadline: str) -> list[str]:
        monkeypatch.setattr(time_budget, "DEADLINE", deadline)
        return sorted(files, key=lambda name: time_budget.file_rank(files[name], Path(name)))

    def quick(names: list[str]) -> list[bool]:
        return [files[name] == len(time_budget.WEIGHTS) for name in names]

    assert [files[name] for name in ordered("")] == sorted(files.values())
    assert quick(ordered("1")) == quick(ordered("2")) == [True] * 10 + [False] * 30
    assert ordered("1") == ordered("1") != ordered("2")


def test_a_run_that_leaves_out_too_much_says_too_little() -> None:
    def outcomes(passed: int, left_out: int) -> dict[str, list[SimpleNamespace]]:
        skipped = SimpleNamespace(longrepr=("test_budget.py", 1, f"Skipped: {time_budget.REASON}"))
        elsewhere = SimpleNamespace(longrepr=("test_other.py", 1, "Skipped: needs a browser"))
        return {"passed": [SimpleNamespace(longrepr=None)] * passed, "skipped": [skipped] * left_out + [elsewhere]}

    assert not time_budget.leaves_out_too_much({})
    assert not time_budget.leaves_out_too_much(outcomes(passed=79, left_out=20))
    assert time_budget.leaves_out_too_much(outcomes(passed=60, left_out=40))
