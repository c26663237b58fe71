"""A pytest plugin that hunts faults in one warm process: it wakes one fault after another between tests.

This file is copied into the site-packages of a planted copy. ``--hunt-folder`` is a folder that processes share:

- ``jobs``: a line of JSON for each fault, ``{"number": 7, "reached_by": 40, "tests": [...]}``.
- ``claims/7``: a process has claimed the fault.
- ``current0``: the fault and the test that process 0 runs.
- ``outcomes``: a line of JSON for each fault that has been hunted.

A test that fails with the fault awake runs again with the fault asleep. Only if it passes then, the fault is found.
Otherwise the process is spoilt by what came before: it gives the fault back and ends.

Without ``--hunt-folder`` the plugin tells which test runs, so that the functions of the package report it.
"""

from __future__ import annotations

import functools
import gc
import json
import os
import tempfile
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path

import nova_faults_asleep as asleep
import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("faults")
    group.addoption("--hunt-folder", type=Path)
    group.addoption("--hunt-process", type=int, default=0)


def pytest_configure(config: pytest.Config) -> None:
    if config.option.hunt_folder:
        config.pluginmanager.register(Hunter(config.option.hunt_folder, config.option.hunt_process))
    elif "NOVA_FAULT_REPORT" in os.environ:
        config.pluginmanager.register(Announcer())


class Announcer:
    """Tells the processes of this one which test runs."""

    def __init__(self) -> None:
        descriptor, self._file = tempfile.mkstemp(prefix="nova-faults-")
        os.close(descriptor)
        self._number = 0
        asleep.write_shared(self._file, asleep.ASLEEP)
        asleep.open_shared(self._file)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._number += 1
        asleep.write_shared(self._file, asleep.ASLEEP, self._number, nodeid)

    def pytest_unconfigure(self) -> None:
        os.unlink(self._file)


class Hunter:
    """Runs the tests of the faults that it claims."""

    def __init__(self, folder: Path, process: int) -> None:
        self._jobs = [json.loads(line) for line in (folder / "jobs").read_text().splitlines()]
        self._folder = folder
        self._current = folder / f"current{process}"
        self._failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed = self._failed or report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the tests of one fault after another instead of all tests once."""
        items = {item.nodeid: item for item in session.items}
        for job in self._jobs:
            if not self._claim(job["number"]):
                continue
            spoilt = self._spoilt(job["number"])
            present = [items[test] for test in job["tests"] if test in items and test not in spoilt]
            finder = self._first_failing(session, job["number"], present)
            outcome = {
                "number": job["number"],
                "found_by": [finder] if finder else [],
                "reached_by": job["reached_by"],
                "tried": len(present),
                "note": "",
            }
            asleep.append(self._folder / "outcomes", json.dumps(outcome) + "\n")
            self._current.write_text("")
        return True

    def _claim(self, number: int) -> bool:
        try:
            (self._folder / "claims" / str(number)).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _spoilt(self, number: int) -> set[str]:
        """Tests that failed twice with the fault asleep."""
        file = self._folder / f"spoilt{number}"
        tests = file.read_text().splitlines() if file.exists() else []
        return {test for test in tests if tests.count(test) > 1}

    def _first_failing(self, session: pytest.Session, number: int, items: list[pytest.Item]) -> str | None:
        _clear_caches()
        for item, following in zip_longest(items, items[1:]):
            self._current.write_text(f"{number}\t{item.nodeid}")
            if self._fails(session, item, number, following):
                _clear_caches()
                if self._fails(session, item, asleep.ASLEEP):
                    asleep.append(self._folder / f"spoilt{number}", item.nodeid + "\n")
                    (self._folder / "claims" / str(number)).unlink()
                    self._current.write_text("")
                    os._exit(asleep.EXIT_SPOILT)
                return item.nodeid
        return None

    def _fails(
        self, session: pytest.Session, item: pytest.Item, number: int, following: pytest.Item | None = None
    ) -> bool:
        """Whether a test fails with this fault awake. What it shares with the tests before and after stays set up."""
        elsewhere = next(other for other in session.items if other.path != item.path)
        with suppress(Exception):  # what the fault made for the module does not serve the test without the fault
            session._setupstate.teardown_exact(elsewhere if number == asleep.ASLEEP else item)
        self._failed = False
        following = following or elsewhere
        _wake(number)
        try:
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        finally:
            _wake(asleep.ASLEEP)
        return self._failed


def _wake(number: int) -> None:
    asleep.write_shared(os.environ["NOVA_FAULT_FILE"], number)


def _clear_caches() -> None:
    """Forget what functions of the package remember: right answers hide a fault, wrong ones show it too late."""
    for cached in [o for o in gc.get_objects() if isinstance(o, functools._lru_cache_wrapper)]:
        if str(getattr(cached, "__module__", "")).startswith("nova_assets"):
            cached.cache_clear()
