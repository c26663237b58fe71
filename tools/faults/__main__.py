"""``python -m tools.faults draw | plant | hunt``."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click

from tools.faults.draw import draw_faults
from tools.faults.fault import read_faults, write_faults
from tools.faults.hunt import Outcome, hunt_fault, read_outcomes, read_reached, read_seconds, write_outcomes
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
@click.option("--outcomes", type=click.Path(path_type=Path), required=True, help="File of outcomes. Those in it stay.")
@click.option("--finders", type=_FILE, help="Outcomes of an earlier hunt: its finders run first.")
@click.option("--budget", type=float, default=900.0, help="Seconds of tests for one fault.")
@click.option("--workers", type=int, default=2)
def hunt(
    faults: Path,
    checkout: Path,
    reached: Path,
    costs: Path,
    outcomes: Path,
    finders: Path | None,
    budget: float,
    workers: int,
) -> None:
    """Wake one fault after another and run the tests that reach it."""
    listed, tests, seconds = read_faults(faults), read_reached(reached), read_seconds(costs)
    earlier = read_outcomes(finders) if finders else {}
    done = read_outcomes(outcomes)

    def hunt_one(number: int) -> Outcome:
        known = earlier[number].found_by if number in earlier else []
        return hunt_fault(number, checkout.resolve(), tests.get(number, set()), seconds, known, budget)

    left = [number for number in range(len(listed)) if number not in done]
    with ThreadPoolExecutor(workers) as pool, outcomes.open("a") as file:
        for outcome in pool.map(hunt_one, left):
            done[outcome.number] = outcome
            file.write(write_outcomes([outcome]))
            file.flush()
            click.echo(f"{outcome.number:3} {_verdict(outcome)}  {listed[outcome.number].describe()}")
    found = sum(bool(outcome.found_by) for outcome in done.values())
    click.echo(f"{found} of {len(listed)} found")


def _verdict(outcome: Outcome) -> str:
    if outcome.found_by:
        return f"found by {outcome.found_by[0]}"
    return f"NOT FOUND, reached by {outcome.reached_by}, {outcome.tried} tried; {outcome.note}"


if __name__ == "__main__":
    main()
