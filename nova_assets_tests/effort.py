"""How much the tests try: some of it in ``make test``, more in ``make test-ci``, and everything in ``make test-all``
(NOVA_TEST_ALL=1)."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest

EVERYTHING = os.environ.get("NOVA_TEST_ALL") == "1"

by_hand = pytest.mark.skipif(os.environ.get("NOVA_TEST_BY_HAND") != "1", reason="set NOVA_TEST_BY_HAND=1 to run it")
"""Mark of a test that takes minutes, and of which continuous integration runs a part."""


EXHAUSTIVE = (pytest.mark.long, pytest.mark.exhaustive)
"""Marks of a further case of a long test, for ``make test-all``."""


def examples(some: int, everything: int) -> int:
    """How many random examples a test tries. NOVA_FUZZ_STEPS sets another number."""
    return int(os.environ.get("NOVA_FUZZ_STEPS") or (everything if EVERYTHING else some))


def long_except(values: Iterable[Any], *short: Any) -> list[Any]:
    """The values of a parameter. All but the ``short`` ones are for ``make test-all``."""
    values = list(values)
    assert set(short) <= set(values), "a value that the test does not have"
    return [value if value in short else pytest.param(value, marks=EXHAUSTIVE) for value in values]
