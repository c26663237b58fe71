"""Wakes one planted fault after another and runs the tests that reach it, cheapest first, until one fails."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from tools.faults.asleep import ASLEEP, EXIT_SPOILT, write_shared

_SIZES_OF_FIRST_BATCHES = (40, 160)
"""Most faults are found by a few cheap tests. These run first, and then all others."""

_SECONDS_BETWEEN_TESTS = 0.03
_SECONDS_OF_A_TEST = 120
_SECONDS_OF_SILENCE = 400
"""A process that begins no test for so long hangs where no time limit of a test reaches it."""


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


@dataclass(frozen=True, slots=True)
class Job:
    """The tests that are to run with a fault awake, in this order."""

    number: int
    reached_by: int
    tests: list[str]


def read_reached(file: Path) -> dict[str, set[str]]:
    """``file:function`` -> tests that reach it, from the report of a planted run."""
    reached: dict[str, set[str]] = defaultdict(set)
    for line in file.read_text().splitlines():
        function, _, test = line.partition("\t")
        reached[function].add(test)
    return reached


def read_seconds(file: Path) -> dict[str, float]:
    """Test -> seconds it takes, from the file of ``--costs-file``. Tests that did not pass are left out."""
    costs = json.loads(file.read_text())
    return {name: float(cost["seconds"]) for name, cost in costs.items() if cost.get("outcome") == "passed"}


def plan_job(
    number: int, tests: Iterable[str], seconds: Mapping[str, float], known_finders: Sequence[str], budget: float
) -> Job:
    """The cheapest tests that reach a fault, and first those that found it before.

    Args:
        tests: that reach the fault.
        seconds: what each test takes. A test that is missing here does not run: the suite lacks it, or it fails anyway.
        known_finders: tests that found the fault before. They run even if no report says that they reach it.
        budget: seconds of tests, as they take with all faults asleep. The costliest tests beyond it do not run.
    """
    candidates = {test for test in (*tests, *known_finders) if test in seconds}
    chosen: list[str] = []
    total = 0.0
    for test in sorted(candidates, key=lambda t: (t not in known_finders, seconds[t])):
        total += seconds[test] + _SECONDS_BETWEEN_TESTS
        if total > budget and chosen:
            break
        chosen.append(test)
    return Job(number, len(candidates), [test for batch in _batches(chosen) for test in batch])


def hunt_faults(jobs: Sequence[Job], checkout: Path, folder: Path, workers: int) -> None:
    """Run all jobs in warm processes. The file ``outcomes`` of the folder tells what became of each fault."""
    (folder / "claims").mkdir()
    (folder / "jobs").write_text("".join(json.dumps(asdict(job)) + "\n" for job in jobs))
    with ThreadPoolExecutor(workers) as pool:
        for done in [pool.submit(_run_worker, number, jobs, folder, checkout) for number in range(workers)]:
            done.result()


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


def _run_worker(worker: int, jobs: Sequence[Job], folder: Path, checkout: Path) -> None:
    """Start a process again and again until every fault is claimed."""
    by_number = {job.number: job for job in jobs}
    while any(not (folder / "claims" / str(number)).exists() for number in by_number):
        exit_code = _run_process(worker, folder, checkout)
        number, _, test = (folder / f"current{worker}").read_text().partition("\t")
        if number:  # the process ended in this test
            job, note = by_number[int(number)], f"the process ended: {exit_code}"
            with (folder / "outcomes").open("a") as file:
                file.write(write_outcomes([Outcome(job.number, [test], job.reached_by, len(job.tests), note)]))
        elif exit_code not in (0, 1, 5, EXIT_SPOILT):  # pytest fails if a test has failed, as they do here
            raise RuntimeError(f"the tests do not start: exit code {exit_code}, see {folder / f'log{worker}'}")


def _run_process(worker: int, folder: Path, checkout: Path) -> int:
    awake, current = folder / f"awake{worker}", folder / f"current{worker}"
    write_shared(str(awake), ASLEEP)
    current.write_text("")
    command = [
        *(str(checkout / ".venv" / "bin" / "python"), "-m", "pytest", "-q", "--no-header", "--tb=line"),
        *("-m", "not exhaustive", f"--timeout={_SECONDS_OF_A_TEST}", "-p", "nova_faults_hunter"),
        *("--hunt-folder", str(folder), "--hunt-process", str(worker)),
    ]
    environment = {**os.environ, "NOVA_FAULT_FILE": str(awake)}
    environment.pop("NOVA_FAULT_REPORT", None)
    with (folder / f"log{worker}").open("ab") as log:
        process = subprocess.Popen(
            command, cwd=checkout, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0
        )
        while process.poll() is None:
            time.sleep(1)
            if time.time() - current.stat().st_mtime > _SECONDS_OF_SILENCE:
                os.killpg(process.pid, signal.SIGKILL)
    with suppress(ProcessLookupError):  # what a killed test left running
        os.killpg(process.pid, signal.SIGTERM)
    return process.returncode
