"""``nova --help`` and what it must not load (DESIGN §7)."""

from __future__ import annotations

import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

from nova_assets import __version__, plan
from nova_assets.cli.main import COMMANDS
from nova_assets.store.store import Store
from nova_assets_tests.cli.conftest import Nova

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
HEAVY = (
    *("dagster", "pyspark", "sqlalchemy", "sqlalchemy.dialects.postgresql", "alembic", "sqlglot"),
    *("pyarrow", "pandas", "numpy", "yaml", "fastavro"),
    *("fastapi", "httpx", "prometheus_client", "pythonjsonlogger", "starlette", "uvicorn"),
    *(
        f"nova_assets.{room}"
        for room in ("dagster_bridge", "engine", "file_views", "formats", "service", "sources", "sql")
    ),
)
"""Packages, and rooms of this package, that take long to load."""


def modules_loaded_by(code: str, folder: Path = ROOT) -> set[str]:
    """The heavy packages that a fresh process has loaded after some code."""
    code = f"import sys\n{code}\nprint(*[m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
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


def test_commands_that_read_no_data_load_nothing_that_reads_data_or_parses_sql(
    stub_store: Store, with_shop: None, folder: Path
) -> None:
    stub_store.register(stub_store.project)
    stub_store.insert("stock", [{"item": "tea", "count": 1}])
    commands = ("channels", "timeline stock", "cursors", "bindings", "executions", "plan sell", "gc --dry-run")
    code = f"""
from nova_assets.cli.main import cli
for command in {commands!r}:
    assert cli(command.split(), prog_name='nova', standalone_mode=False) == 0, command
"""
    assert modules_loaded_by(code, folder) == {"sqlalchemy"}


def test_a_command_spends_no_time_on_garbage_collection(stub_store: Store, with_shop: None, folder: Path) -> None:
    code = """
import gc
from nova_assets.cli.main import main

def collections():
    return sum(generation['collections'] for generation in gc.get_stats())

before, sys.argv = collections(), ['nova', 'channels']
try:
    main()
except SystemExit as end:
    assert end.code == 0 and 'nova_assets.catalog.catalog' in sys.modules
assert collections() == before, collections() - before
"""
    assert modules_loaded_by(code, folder) == {"sqlalchemy"}


@pytest.mark.core
@pytest.mark.parametrize("words", ["nova ti", "nova --p"])
def test_completing_a_command_loads_nothing_heavy(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"_NOVA_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": "1"}.items():
        monkeypatch.setenv(name, value)
    code = """
from nova_assets.cli.main import main
try:
    main()
except SystemExit as end:
    assert not [m for m in sys.modules if m.startswith('nova_assets.cli.t')], 'a command is loaded'
"""
    assert modules_loaded_by(code) == set()


@pytest.mark.parametrize(
    "module", ["nova_assets", *(f"nova_assets.plan.{m.name}" for m in pkgutil.iter_modules(plan.__path__))]
)
def test_importing_the_package_or_a_plan_loads_nothing_heavy(module: str) -> None:
    assert modules_loaded_by(f"import {module}") == set()


def test_that_check_can_fail() -> None:
    assert modules_loaded_by("import pyarrow") >= {"pyarrow"}


def test_help_lists_every_command_with_what_it_is_for(nova: Nova) -> None:
    output = nova("--help")
    assert output.code == 0
    for name, (_, line) in COMMANDS.items():
        assert f"  {name}" in output.out and line in output.out


@pytest.mark.core
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_takes_json_and_what_changes_things_takes_dry_run(nova: Nova, command: str) -> None:
    output = nova(command, "--help")
    assert output.code == 0 and "--json" in output.out and "JSON: {" in output.out
    upkeep = ("compact", "gc", "drop", "restore", "doctor", "seal", "backup")
    changes = (
        "init",
        "run",
        "switch",
        "insert",
        "receive",
        "replay",
        "external",
        "publish",
        "unpublish",
        "tick",
        "backfill",
        "refresh",
        "notify",
        "token",
        "release",
        "pause",
        "resume",
        "remove",
        *upkeep,
    )
    assert ("--dry-run" in output.out) == (command in changes)


@pytest.mark.core
def test_the_version_is_that_of_the_package(nova: Nova) -> None:
    assert nova("--version").out == f"nova {__version__}\n"


@pytest.mark.core
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
