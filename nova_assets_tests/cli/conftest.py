"""The ``nova`` command as a test types it: in this process for speed, or in one of its own where that matters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.cli.main import cli
from nova_assets.settings import load_settings
from nova_assets.store.store import Store
from nova_assets_tests.cli import shop
from nova_assets_tests.forked import run_python
from nova_assets_tests.stub_engine import StubEngine

STOCK = "item string, count bigint"
SHOP = "nova_assets_tests.cli.shop:project"


@dataclass(frozen=True)
class CommandOutput:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        """The error that ``--json`` puts on stderr."""
        return json.loads(self.err.splitlines()[-1])


Nova = Callable[..., CommandOutput]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test of the shell is in an empty folder, with nothing set that nova would read."""
    for name in [n for n in os.environ if n.startswith("NOVA_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def nova() -> Nova:
    """``nova("channels", "--json")``, in this process; its output is a pipe."""

    def call(*arguments: object) -> CommandOutput:
        result = CliRunner().invoke(cli, [str(a) for a in arguments], prog_name="nova")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return CommandOutput(result.exit_code, result.stdout, result.stderr)

    return call


@pytest.fixture
def nova_process() -> Nova:
    """The same in a fresh process."""

    def call(*arguments: object, **environment: str) -> CommandOutput:
        command = [sys.executable, "-m", "nova_assets.cli", *map(str, arguments)]
        root = str(Path(__file__).resolve().parents[2])
        done = subprocess.run(
            command, env={**os.environ, "PYTHONPATH": root, **environment}, capture_output=True, text=True, timeout=240
        )
        return CommandOutput(done.returncode, done.stdout, done.stderr)

    return call


@pytest.fixture
def nova_forked() -> Nova:
    """The same in a copy of a process that has imported the package: quicker, if nothing depends on what is loaded."""

    def call(*arguments: object, **environment: str) -> CommandOutput:
        done = run_python(["-m", "nova_assets.cli", *map(str, arguments)], environment)
        return CommandOutput(done.returncode, done.stdout, done.stderr)

    return call


@pytest.fixture
def with_shop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shop is the project."""
    monkeypatch.setenv("NOVA_PROJECT", SHOP)


@pytest.fixture
def stub_store(folder: Path) -> Iterator[Store]:
    """The shop's store on the stub engine, over the catalog that ``nova`` finds: histories without Spark."""
    settings = load_settings()
    with Store(settings, shop.project, open_catalog(settings.catalog), StubEngine(settings.warehouse, STOCK)) as store:
        yield store


@pytest.fixture
def orders_file(folder: Path) -> Path:
    """Two orders, as JSON lines."""
    return write_json_lines(
        folder / "orders.jsonl", {"id": 1, "item": "tea", "price": 2.5}, {"id": 2, "item": "jam", "price": 4.0}
    )


def write_json_lines(file: Path, *rows: dict[str, Any]) -> Path:
    """A file of JSON lines."""
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file
