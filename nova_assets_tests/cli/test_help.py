"""``nova --help`` and what it must not load (DESIGN §7)."""

from __future__ import annotations

import pkgutil
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from nova_assets import __version__, plan
from nova_assets.cli.main import COMMANDS
from nova_assets_tests.cli.conftest import Nova

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
HEAVY = (
    *("dagster", "pyspark", "sqlalchemy", "pyarrow", "pandas", "numpy"),
    *("fastapi", "httpx", "prometheus_client", "pythonjsonlogger", "starlette", "uvicorn"),
)


def modules_loaded_by(code: str) -> set[str]:
    """The heavy packages that a fresh process has loaded after some code."""
    code = f"import sys\n{code}\nprint(*[m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stderr.split())


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["insert", "--help"], ["doctor", "--help"], ["token", "add", "--help"]]
)
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    code = f"""
from nova_assets.cli.main import cli
try:
    cli({arguments!r}, prog_name='nova')
except SystemExit as end:
    assert end.code == 0, end.code
"""
    assert modules_loaded_by(code) == set()


@pytest.mark.parametrize(
    "module", ["nova_assets", *(f"nova_assets.plan.{m.name}" for m in pkgutil.iter_modules(plan.__path__))]
)
def test_importing_the_package_or_a_plan_loads_nothing_heavy(module: str) -> None:
    assert modules_loaded_by(f"import {module}") == set()


def test_that_check_can_fail() -> None:
    assert modules_loaded_by("import pyarrow") >= {"pyarrow"}


def test_help_is_quick() -> None:
    def cpu() -> float:
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        return spent.ru_utime + spent.ru_stime

    took = []
    for _ in range(3):
        before = cpu()
        subprocess.run(
            [sys.executable, "-m", "nova_assets.cli", "--help"], cwd=ROOT, stdout=subprocess.DEVNULL, check=True
        )
        took.append(cpu() - before)
    assert min(took) < 0.5


def test_help_lists_every_command_with_what_it_is_for(nova: Nova) -> None:
    output = nova("--help")
    assert output.code == 0
    for name, (_, line) in COMMANDS.items():
        assert f"  {name}" in output.out and line in output.out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_takes_json_and_what_changes_things_takes_dry_run(nova: Nova, command: str) -> None:
    output = nova(command, "--help")
    assert output.code == 0 and "--json" in output.out and "JSON: {" in output.out
    upkeep = ("compact", "gc", "drop", "restore", "doctor", "seal")
    changes = (
        "init",
        "run",
        "switch",
        "insert",
        "receive",
        "replay",
        "publish",
        "unpublish",
        "tick",
        "backfill",
        "refresh",
        "token",
        "release",
        *upkeep,
    )
    assert ("--dry-run" in output.out) == (command in changes)


def test_the_version_is_that_of_the_package(nova: Nova) -> None:
    assert nova("--version").out == f"nova {__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["frobnicate"],
        ["timeline"],
        ["insert", "orders"],
        ["insert", "orders", "x.csv", "--kind", "both"],
        ["read", "orders", "--at", "-1"],
        ["read", "orders", "--limit", "many"],
        ["read", "orders", "--output", "rows.xlsx"],
        ["read", "orders", "--columns", "a,,b"],
        ["run", "sell", "--resume", "x", "--dry-run"],
        ["channels", "--frobnicate"],
    ],
)
def test_wrong_use_ends_with_2_and_says_how_to_use_it(nova: Nova, arguments: list[str]) -> None:
    output = nova(*arguments)
    assert output.code == 2
    assert output.out == "" and "Usage: nova" in output.err
