"""A deadline for a run of the tests. Machines differ by a factor of three, and a run that is cut off says nothing.

After NOVA_TEST_DEADLINE (seconds since 1970), the tests that are slow, long or need Spark are skipped, unless they are
marked ``core``. Before it, all of them run. Quick tests run first. The files of the others come in an order that each
deadline draws anew, so that runs on slow machines leave out different ones.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

# Under its own name, because tests replace `time.time`.
from time import time
from typing import Any

import pytest

DEADLINE = os.environ.get("NOVA_TEST_DEADLINE", "")

WEIGHTS = {"long": 0, "slow": 1, "spark": 2}
"""Marks of tests that cost much, with the place of their files where all tests run."""


MAX_SHARE_LEFT_OUT = 0.25
"""Share of all tests beyond which a run that left them out says too little, and fails: four in ten cost much."""

REASON = "the time of this run is used up (NOVA_TEST_DEADLINE); make test-ci runs it on any machine"


def leaves_out_too_much(outcomes: Mapping[str, Sequence[Any]]) -> bool:
    """Whether a run has skipped so many tests for want of time that its result says little.

    Args:
        outcomes: outcome of tests -> their reports, as pytest's terminal reporter collects them.
    """
    left_out = sum(REASON in str(report.longrepr) for report in outcomes.get("skipped", ()))
    return left_out > MAX_SHARE_LEFT_OUT * sum(len(outcomes.get(o, ())) for o in ("passed", "failed", "skipped"))


def file_rank(weight: int, path: Path) -> tuple[int, str]:
    """Place of a file of tests in a run by several workers.

    Without a deadline, the files that take longest come first. Otherwise one worker has such a file left when all
    others are done.

    Args:
        weight: the least of ``WEIGHTS`` of its tests; their number for a file of quick tests.
    """
    if not DEADLINE:
        return weight, ""
    is_quick = weight == len(WEIGHTS)
    return (0, "") if is_quick else (1, hashlib.sha256(f"{DEADLINE} {path.name}".encode()).hexdigest())


def skip_after_deadline(item: pytest.Item) -> None:
    """Skip a test that this run has no time for."""
    if not DEADLINE or time() < float(DEADLINE) or item.get_closest_marker("core") is not None:
        return
    if any(item.get_closest_marker(name) is not None for name in WEIGHTS):
        pytest.skip(REASON)
