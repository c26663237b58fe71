"""Completion in a shell: a real bash asks a real process of nova."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import nova_assets as nova
from nova_assets.cli.name_completion import CATALOG_NAMES
from nova_assets_tests.cli.conftest import Nova

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def shop(folder: Path) -> Path:
    """A folder with a catalog of one binding and three channels."""
    days = nova.daily("day", start="2026-01-01")
    orders, other = (nova.Channel(n, schema="day date, id bigint", partitions=days) for n in ("orders", "other"))
    totals = nova.Channel("totals", schema="day date, id bigint", partitions=days)

    @nova.task(consumes=nova.new(orders), produces=nova.delta(totals))
    def add_up(orders: object) -> object:
        return orders

    project = nova.Project([nova.bind(nova.Workflowette("sums", [add_up]))], channels=[other])
    with nova.open(project, f"sqlite:///{folder}/.nova/catalog.db", folder / ".nova" / "warehouse") as store:
        store.register(project)
        rows: list[dict[str, object]] = [{"day": "2026-01-02", "id": 1}, {"day": "2026-01-03", "id": 2}]
        store.insert("orders", rows)
    return folder


def complete(folder: Path, line: str) -> list[str]:
    """What bash offers for a command line, whose last word is incomplete."""
    words = line.split(" ")
    (folder / "bin").mkdir(exist_ok=True)
    program = folder / "bin" / "nova"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m nova_assets.cli "$@"\n')
    program.chmod(0o755)
    script = f'eval "$(nova completion bash)"; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; '
    script += '_nova_completion nova; printf "%s\\n" "${COMPREPLY[@]}"'
    path = f"{program.parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=120)
    assert not done.stderr, done.stderr
    return done.stdout.split()


def test_bash_completes_commands_and_names_of_the_catalog(shop: Path) -> None:
    assert complete(shop, "nova ti") == ["timeline", "tick"]
    assert complete(shop, "nova timeline o") == ["orders", "other"]
    assert complete(shop, "nova plan s") == ["sums"]
    assert complete(shop, "nova read orders --partition day=2026-01-0") == ["day=2026-01-02", "day=2026-01-03"]


def test_there_is_nothing_to_complete_without_a_catalog(folder: Path) -> None:
    assert complete(folder, "nova timeline o") == []
    assert not (folder / ".nova").exists()


@pytest.mark.core
@pytest.mark.parametrize(("shell", "part"), [("bash", "complete -o"), ("zsh", "compdef"), ("fish", "complete --no")])
def test_a_script_for_each_shell(nova: Nova, shell: str, part: str) -> None:
    done = nova("completion", shell)
    assert done.code == 0 and part in done.out and "_NOVA_COMPLETE" in done.out
    assert nova("completion", shell, "--json").json["script"].strip() == done.out.strip()


@pytest.mark.core
def test_names_of_parameters_that_are_completed() -> None:
    assert {"channel", "channels", "dataset", "binding", "partition", "partitions"} == set(CATALOG_NAMES)
