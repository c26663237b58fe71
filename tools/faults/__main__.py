"""``python -m tools.faults draw | plant | hunt``."""

from __future__ import annotations

from pathlib import Path

import click

from tools.faults.draw import draw_faults
from tools.faults.fault import Fault, read_faults, write_faults
from tools.faults.hunt import Outcome, hunt_faults, plan_job, read_outcomes, read_reached, read_seconds, write_outcomes
from tools.faults.plant import plant_faults

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@click.group()
def main() -> None:
    """Plant faults in the package, and see which tests find them."""


@main.command()
@click.option("--seed", type=int, required=True)
@click.option("--count", type=int, default=80)
@click.option("--root", type=_FOLDER, default=Path(), help="The repository.")
def draw(seed: int, count: int, root: Path) -> None:
    """Print faults at random places, as JSON."""
    click.echo(write_faults(seed, draw_faults(root.resolve(), seed, count)), nl=False)


@main.command()
@click.argument("faults", type=_FILE)
@click.argument("checkout", type=_FOLDER)
def plant(faults: Path, checkout: Path) -> None:
    """Plant all faults of a list, asleep, in a clone that has its own environment."""
    listed = read_faults(faults)
    for number in plant_faults(listed, checkout.resolve()):
        click.echo(f"no longer there: {number} {listed[number].describe()}", err=True)


@main.command()
@click.argument("faults", type=_FILE)
@click.argument("checkout", type=_FOLDER)
@click.option("--reached", type=_FILE, required=True, help="The report of a run of all tests in the planted clone.")
@click.option("--costs", type=_FILE, required=True, help="The costs of the tests that run passed.")
@click.option("--folder", type=click.Path(path_type=Path), required=True, help="A new folder, for outcomes and logs.")
@click.option("--finders", type=_FILE, help="Outcomes of an earlier hunt: its finders run first.")
@click.option("--done", type=_FILE, help="Outcomes of this hunt that need not be repeated.")
@click.option("--budget", type=float, default=150.0, help="Seconds of tests for one fault.")
@click.option("--workers", type=int, default=2)
def hunt(
    faults: Path,
    checkout: Path,
    reached: Path,
    costs: Path,
    folder: Path,
    finders: Path | None,
    done: Path | None,
    budget: float,
    workers: int,
) -> None:
    """Wake one fault after another and run the tests that reach it."""
    listed, tests, seconds = read_faults(faults), read_reached(reached), read_seconds(costs)
    earlier, outcomes = (read_outcomes(file) if file else {} for file in (finders, done))
    folder.mkdir(parents=True)
    (folder / "outcomes").write_text(write_outcomes(outcomes.values()))
    left = [number for number in range(len(listed)) if number not in outcomes]
    jobs = [
        plan_job(
            number,
            tests[_place(listed[number])],
            seconds,
            earlier[number].found_by if number in earlier else [],
            budget,
        )
        for number in left
    ]
    hunt_faults(jobs, checkout.resolve(), folder.resolve(), workers)
    outcomes = read_outcomes(folder / "outcomes")
    for number, outcome in sorted(outcomes.items()):
        click.echo(f"{number:3} {_verdict(outcome)}  {listed[number].describe()}")
    click.echo(f"{sum(bool(outcome.found_by) for outcome in outcomes.values())} of {len(listed)} found")


def _place(fault: Fault) -> str:
    return f"{fault.file}:{fault.function}"


def _verdict(outcome: Outcome) -> str:
    if outcome.found_by:
        return f"found by {outcome.found_by[0]}"
    return f"NOT FOUND, reached by {outcome.reached_by}, {outcome.tried} tried; {outcome.note}"


if __name__ == "__main__":
    main()
