"""Wakes one planted fault after another and runs the tests that reach it, cheapest first, until one fails."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

_SIZES_OF_FIRST_BATCHES = (40, 160)
"""Most faults are found by a few cheap tests. These run first, and then all others at once."""

_FAILED = re.compile(r"^(?:FAILED|ERROR) (nova_assets_tests/\S+?\.py(?:::\S.*?)?)(?: - .*)?$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a fault.

    Args:
        number: of the fault.
        found_by: the tests that failed; none if the fault was not found.
        reached_by: number of tests that reach the fault.
        tried: number of tests that were to run.
        note: why it was not found, where that is known.
    """

    number: int
    found_by: list[str]
    reached_by: int
    tried: int
    note: str = ""


def read_reached(file: Path) -> dict[int, set[str]]:
    """Number of a fault -> tests that reach it, from the report of a planted run."""
    reached: dict[int, set[str]] = defaultdict(set)
    for line in file.read_text().splitlines():
        number, _, test = line.partition("\t")
        reached[int(number)].add(test)
    return reached


def read_seconds(file: Path) -> dict[str, float]:
    """Test -> seconds it takes, from the file of ``--costs-file``. Tests that did not pass are left out."""
    costs = json.loads(file.read_text())
    return {name: float(cost["seconds"]) for name, cost in costs.items() if cost.get("outcome") == "passed"}


def hunt_fault(
    number: int,
    checkout: Path,
    tests: Iterable[str],
    seconds: Mapping[str, float],
    known_finders: Sequence[str] = (),
    budget: float = 900,
) -> Outcome:
    """Run the tests that reach a fault, with the fault awake, until one fails.

    Args:
        tests: that reach the fault.
        seconds: what each test takes. A test that is missing here does not run: the suite lacks it, or it fails anyway.
        known_finders: tests that found the fault before. They run first.
        budget: seconds of tests, as they take with all faults asleep. The costliest tests beyond it do not run.
    """
    candidates = sorted((t for t in tests if t in seconds), key=lambda t: (t not in known_finders, seconds[t]))
    chosen: list[str] = []
    total = 0.0
    for test in candidates:
        total += seconds[test]
        if total > budget and chosen:
            break
        chosen.append(test)
    tried = 0
    for batch in _batches(chosen):
        tried += len(batch)
        if failed := _run_tests(number, checkout, batch):
            return Outcome(number, failed, len(candidates), tried)
    left = len(candidates) - len(chosen)
    return Outcome(number, [], len(candidates), tried, f"{left} costly tests did not run" if left else "")


def write_outcomes(outcomes: Iterable[Outcome]) -> str:
    """Outcomes as JSON, one line for each."""
    return "".join(json.dumps(asdict(outcome)) + "\n" for outcome in outcomes)


def read_outcomes(file: Path) -> dict[int, Outcome]:
    """Number of a fault -> what became of it."""
    if not file.is_file():
        return {}
    outcomes = [Outcome(**json.loads(line)) for line in file.read_text().splitlines()]
    return {outcome.number: outcome for outcome in outcomes}


def _batches(tests: list[str]) -> Iterator[list[str]]:
    """Batches, each with the tests of a file together, so that their fixtures are made once."""
    start = 0
    for size in (*_SIZES_OF_FIRST_BATCHES, len(tests)):
        if batch := tests[start : start + size]:
            order = {file: rank for rank, file in enumerate(dict.fromkeys(t.partition("::")[0] for t in batch))}
            yield sorted(batch, key=lambda test: order[test.partition("::")[0]])
        start += size


def _run_tests(number: int, checkout: Path, tests: Sequence[str]) -> list[str]:
    """The tests that fail, or the reason for which the run as a whole failed."""
    python = checkout / ".venv" / "bin" / "python"
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as names:
        names.write("\n".join(tests))
        names.flush()
        command = [str(python), "-m", "pytest", "-x", "-q", "--no-header", "--tb=no", "--timeout=120", f"@{names.name}"]
        environment = {**os.environ, "NOVA_FAULT": str(number)}
        environment.pop("NOVA_FAULT_REPORT", None)
        try:
            done = subprocess.run(
                command, cwd=checkout, env=environment, capture_output=True, text=True, timeout=1800, errors="replace"
            )
        except subprocess.TimeoutExpired:
            return ["the run did not end"]
    if done.returncode in (0, 5):
        return []
    return _FAILED.findall(done.stdout) or [f"exit code {done.returncode}: {done.stdout.strip()[-200:]}"]
