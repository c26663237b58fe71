"""A soak on the shell: ``python -m nova_assets_tests.soak --seconds 600 --seed N [--keep FOLDER]``."""

from __future__ import annotations

import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from dagster import DagsterInstance
from rich.console import Console
from rich.table import Table

import nova_assets as nova
from nova_assets_tests.soak.batches import Row, batches
from nova_assets_tests.soak.driver import Driver
from nova_assets_tests.soak.pipeline import project
from nova_assets_tests.soak.plan import CHANNELS, plan
from nova_assets_tests.soak.quiet import left_to_do, wait_until_quiet
from nova_assets_tests.soak.records import Records
from nova_assets_tests.soak.verdict import Finding, verdict
from nova_assets_tests.soak.world import World

LIMIT = 600.0
"""Seconds in which everything must have come to rest once nothing is killed any more."""


@click.command()
@click.option("--seconds", default=600.0, show_default=True, help="For how long batches come and processes are killed.")
@click.option("--seed", type=int, help="Of an earlier soak, to repeat it.")
@click.option("--keep", type=click.Path(path_type=Path), help="Keep everything in this folder, which is to be new.")
def main(seconds: float, seed: int | None, keep: Path | None) -> None:
    """Run pipelines under dagster dev while batches arrive and processes are killed; then look whether all is right.

    Exits with 1 when anything differs from what was promised.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing is left running
    chosen = random.randrange(1_000_000) if seed is None else seed
    folder = Path(tempfile.mkdtemp(prefix="nova-soak-")) if keep is None else keep.absolute()
    click.echo(f"seed {chosen}, {seconds:g} seconds, in {folder}; again: make soak SEED={chosen} SECONDS={seconds:g}")
    try:
        right = _soak(folder, seconds, chosen)
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    sys.exit(0 if right else 1)


def _soak(folder: Path, seconds: float, seed: int) -> bool:
    began = time.monotonic()

    def tell(line: str) -> None:
        click.echo(f"{time.monotonic() - began:7.1f} s  {line}")

    todo = plan(seed, seconds)
    inserted = {channel: batches(seed, channel, todo.batches(channel)) for channel in CHANNELS}
    with World(folder, tell) as world, nova.open(project, settings=world.settings) as store:
        store.register(project)
        world.start()
        driver = Driver(world, store, inserted, tell)
        driver.carry_out(todo)
        records = Records(world.settings.catalog)
        left = _come_to_rest(world, records, tell)
        read = _reader(store)
        findings = [
            Finding("all has come to rest", tuple(left)),
            *verdict(records, Path(world.settings.warehouse), inserted, read),
        ]
        _show(findings, {**driver.killed, "inserts repeated": driver.repeated, **_upkeep(records)})
    return not any(finding.problems for finding in findings)


def _come_to_rest(world: World, records: Records, tell: Callable[[str], None]) -> list[str]:
    """Wait until all is quiet, and end Dagster; gives what was left to do."""
    tell("nothing is killed any more")
    with DagsterInstance.from_config(str(world.home)) as instance:
        took, left = wait_until_quiet(lambda: left_to_do(records, project, instance), LIMIT)
        tell(f"quiet after {took:.0f} s" if not left else f"not quiet after {took:.0f} s: {'; '.join(left)}")
        world.stop()
        return left or left_to_do(records, project, instance)


def _reader(store: nova.Store) -> Callable[[str], list[Row]]:
    def read(channel: str) -> list[Row]:
        rows: list[Row] = store.read(channel).to_arrow().to_pylist()
        return rows

    return read


def _upkeep(records: Records) -> dict[str, int]:
    count = "SELECT count(*) FROM nova_blocks WHERE "
    return {
        "blocks": records.column(count + "1 = 1")[0],
        "bases by compaction": records.column(count + "origin = 'compact'")[0],
        "blocks collected": records.column(count + "collected_at IS NOT NULL")[0],
    }


def _show(findings: list[Finding], figures: dict[str, Any]) -> None:
    table = Table("", "what", "found", box=None)
    for finding in findings:
        judged, found = ("WRONG", "\n".join(finding.problems)) if finding.problems else ("right", finding.said)
        table.add_row(judged, finding.what, found)
    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False, markup=False)
    console.print("; ".join(f"{name}: {n}" for name, n in figures.items()))
    console.print(table)


if __name__ == "__main__":
    main(prog_name="python -m nova_assets_tests.soak")
