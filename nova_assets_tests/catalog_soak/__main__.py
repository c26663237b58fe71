"""The soak on the shell: ``python -m nova_assets_tests.catalog_soak --seconds 1800 [--seed N] [--keep FOLDER]``."""

from __future__ import annotations

import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from nova_assets_tests import catalog_guard
from nova_assets_tests.catalog_soak.clients import PATIENCE, Commander, Inserter, Prober, probe
from nova_assets_tests.catalog_soak.deployment import Deployment
from nova_assets_tests.catalog_soak.signals import send_signals
from nova_assets_tests.catalog_soak.tally import Tally
from nova_assets_tests.catalog_soak.verdict import Finding, check_counts, check_integrity, check_keys, check_rows
from nova_assets_tests.catalog_soak.watch import FINDING as NO_DELETED_FILE
from nova_assets_tests.catalog_soak.watch import Watch
from nova_assets_tests.soak import processes

_INSERTERS, _COMMANDERS = 4, 2
_LAST_RUNS = 20.0  # seconds that runs of Dagster get to end before they are killed
_RECOVERY = 150.0  # seconds in which each service must be ready once no signal is sent any more


@click.command()
@click.option("--seconds", default=1800.0, show_default=True, help="For how long signals are sent.")
@click.option("--seed", type=int, help="Of an earlier soak, to repeat its signals and commands.")
@click.option("--keep", type=click.Path(path_type=Path), help="Keep catalog, warehouse and logs in this new folder.")
def main(seconds: float, seed: int | None, keep: Path | None) -> None:
    """Insert into a SQLite catalog through two services beside dagster dev and commands, while processes get SIGKILL,
    SIGTERM and SIGSTOP. Then check that each acknowledged insert is there once, and that the file is sound.

    Exits with 1 if anything is amiss.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no process is left running
    chosen = random.randrange(1_000_000) if seed is None else seed
    parent = Path(tempfile.mkdtemp(prefix="nova-soak-")) if keep is None else keep.absolute()
    click.echo(f"seed {chosen}, {seconds:g} seconds; again: make soak-catalog SEED={chosen} SECONDS={seconds:g}")
    try:
        findings = _soak(parent, seconds, chosen)
    finally:
        if keep is None:
            shutil.rmtree(parent, ignore_errors=True)
    sys.exit(1 if any(finding.problems for finding in findings) else 0)


def _soak(folder: Path, seconds: float, seed: int) -> list[Finding]:
    tally = Tally()
    guard = catalog_guard.start_guard(catalog_guard.prepare_report(folder / "guard"))
    _, offset = catalog_guard.read_findings(guard.report)
    with Deployment(folder / "deployment", tally) as deployment:
        inserters = _run(deployment, seconds, seed)
        _stop(deployment, seed)
        findings = _verdict(deployment, inserters)
    touched, _ = catalog_guard.read_findings(guard.report, offset)
    calls = {text.partition("\n")[2] or text: text for text in touched}  # once for each stack, whichever the process
    findings.append(Finding("only SQLite touches the files of the open catalog", list(calls.values())))
    _show(tally, findings)
    return findings


def _run(deployment: Deployment, seconds: float, seed: int) -> list[Inserter]:
    """All of the soak's life. Returns the clients when they have ended."""
    tally, is_over, is_watch_over = deployment.tally, threading.Event(), threading.Event()
    deployment.start()
    _wait_until_ready(deployment, _RECOVERY)
    inserters = [Inserter(number, seed, deployment, is_over) for number in range(_INSERTERS)]
    commanders = [Commander(number, seed, deployment, is_over) for number in range(_COMMANDERS)]
    names = ("service", "instances")
    probers = [Prober(name, url, tally, is_over) for name, url in zip(names, deployment.urls, strict=True)]
    watch = Watch(deployment, is_watch_over)
    threads = [*inserters, *commanders, *probers]
    for thread in (watch, *threads):
        thread.start()
    send_signals(deployment, commanders, seed, seconds)
    is_over.set()
    until = time.monotonic() + PATIENCE + 10
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
        if thread.is_alive():
            tally.problem("all processes end", f"{thread.name} does not end")
    _wait_until_ready(deployment, _RECOVERY)
    is_watch_over.set()
    watch.join()
    return inserters


def _wait_until_ready(deployment: Deployment, patience: float) -> None:
    for name, url in zip(("service", "instances"), deployment.urls, strict=True):
        until = time.monotonic() + patience
        while (status := probe(f"{url}/readyz")) != 200:
            if time.monotonic() > until:
                deployment.tally.problem("each service is ready again", f"{name}: /readyz answers {status}")
                return
            time.sleep(0.5)


def _stop(deployment: Deployment, seed: int) -> None:
    """End the services: by the seed, one is killed. What is acknowledged has to be in the file, whoever ends last."""
    killed = random.Random(seed).randrange(3)
    deployment.dagster.stop()
    deployment.service.stop(kill=killed == 1)
    deployment.watchdog.stop(kill=killed == 2)
    until = time.monotonic() + _LAST_RUNS
    while processes.of_home(deployment.home) and time.monotonic() < until:  # runs of Dagster end by themselves
        time.sleep(0.5)
    processes.kill_all(deployment.home)


def _verdict(deployment: Deployment, inserters: list[Inserter]) -> list[Finding]:
    acknowledged = {key: ids for client in inserters for key, ids in client.acknowledged.items()}
    unacknowledged = {key: ids for client in inserters for key, ids in client.unacknowledged.items()}
    tally = deployment.tally
    seen: Callable[[str], Finding] = lambda what: Finding(what, tally.problems(what))  # noqa: E731
    return [
        check_integrity(deployment.catalog),
        check_keys(deployment.catalog, acknowledged, unacknowledged),
        check_rows(deployment.folder, acknowledged, unacknowledged),
        check_counts(deployment.folder),
        seen(NO_DELETED_FILE),
        seen("no insert fails"),
        seen("no probe is answered with a failure"),
        seen("each command ends well"),
        seen("each service is ready again"),
        seen("all processes end"),
        Finding("something was inserted", [] if acknowledged else ["no insert was acknowledged"]),
    ]


def _show(tally: Tally, findings: list[Finding]) -> None:
    console = Console(width=160)
    counts = Table("what", "which", "count", box=None)
    for what, which, count in tally.counts():
        counts.add_row(what, which, str(count))
    console.print(counts)
    for finding in findings:
        console.print(f"{'AMISS' if finding.problems else 'ok':6} {finding.what}  {finding.text}", markup=False)
        for problem in finding.problems:
            console.print(f"         {problem}", markup=False)


if __name__ == "__main__":
    main()
