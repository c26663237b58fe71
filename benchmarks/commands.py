"""CPU seconds of commands that need no Spark, each in a process of its own.

    python -m benchmarks.commands [--quick] [--json FILE]

The project has one binding, two channels and a SQLite catalog. Two lines are no commands: an empty Python, and an
import of SQLAlchemy, which every command loads that reads the catalog. They tell how fast the machine is.

Python's bytecode is kept in a folder of the benchmark, so that a checkout is measured like an installed package.
"""

from __future__ import annotations

import contextlib
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import nova_assets as nova
from benchmarks import measure

ROOT = Path(__file__).resolve().parents[1]

PROJECT = """
import nova_assets as nova

orders = nova.Channel("orders", schema="id bigint, item string, amount double")
totals = nova.Channel("totals", merge=nova.Upsert(key="item"), schema="item string, amount double")

@nova.task(consumes=nova.new(orders), produces=nova.delta(totals))
def total(orders):
    return orders.groupBy("item").sum("amount")

project = nova.Project([nova.bind(nova.Workflowette("total", [total]), when=nova.on_data("orders"))])
"""

COMMANDS = ("--help", "channels", "bindings", "timeline orders", "cursors", "plan total", "channels --json")

CALLS = {
    "python -c pass": ["-c", "pass"],
    "import sqlalchemy": ["-c", "import sqlalchemy"],
    **{f"nova {command}": ["-m", "nova_assets.cli", *command.split()] for command in COMMANDS},
}


def cpu_of(arguments: list[str], folder: Path) -> float:
    """CPU seconds of a Python process."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def seconds_by_call(folder: Path, rounds: int) -> dict[str, list[float]]:
    """CPU seconds of each call, in a project that is laid out in the current folder."""
    (folder / "shop.py").write_text(PROJECT)
    (folder / "pyproject.toml").write_text('[tool.nova]\nproject = "shop:project"\n')
    with nova.open() as store:
        store.register(store.project)
        store.insert("orders", [{"id": 1, "item": "tea", "amount": 1.0}])
    spent: dict[str, list[float]] = {call: [] for call in CALLS}
    for n in range(rounds + 1):  # the first round writes the bytecode
        for call, arguments in CALLS.items():
            seconds = cpu_of(arguments, folder)
            if n:
                spent[call].append(seconds)
    return spent


def main() -> None:
    given = measure.options(__doc__ or "")
    rounds = 3 if given.quick else 15
    with tempfile.TemporaryDirectory(prefix="commands-") as folder, contextlib.chdir(folder):
        spent = seconds_by_call(Path(folder), rounds)
    medians = {call: statistics.median(seconds) for call, seconds in spent.items()}
    measure.show(
        f"CPU seconds of a process, {rounds} rounds",
        ("process", "median", "least"),
        [(call, medians[call], min(spent[call])) for call in CALLS],
    )
    measure.keep(given.json, {"median": medians, "least": {call: min(seconds) for call, seconds in spent.items()}})
    slowest = max(COMMANDS, key=lambda command: medians[f"nova {command}"])
    print(f"commands: nova {slowest} takes {medians[f'nova {slowest}']:.2f} s of CPU, the other commands less")


if __name__ == "__main__":
    main()
