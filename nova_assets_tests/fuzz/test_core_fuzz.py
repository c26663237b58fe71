"""Random histories of one channel through the public API: whatever a user reads is what the naive channel has.

``NOVA_FUZZ_STEPS`` makes the runs longer, and ``NOVA_FUZZ_SEED`` begins elsewhere. ``python -m nova_assets_tests.fuzz``
does the same by hand.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from nova_assets_tests.effort import examples
from nova_assets_tests.fuzz.play import play

STEPS = examples(80, 200)
SEED = int(os.environ.get("NOVA_FUZZ_SEED", "100"))
STEPS_OF_ONE_HISTORY = 40


@pytest.mark.slow
@pytest.mark.timeout(max(300, STEPS))
def test_random_histories_in_memory() -> None:
    for seed in range(SEED, SEED + STEPS // STEPS_OF_ONE_HISTORY):
        finding = play(seed, STEPS_OF_ONE_HISTORY)
        assert finding is None, str(finding)


@pytest.mark.core
@pytest.mark.spark
@pytest.mark.timeout(max(300, STEPS))
def test_random_histories_with_bindings_and_every_read_strategy(spark: Any) -> None:
    for seed in range(SEED, SEED + STEPS // (4 * STEPS_OF_ONE_HISTORY)):
        finding = play(seed, STEPS_OF_ONE_HISTORY, spark)
        assert finding is None, str(finding)


@pytest.mark.spark
@pytest.mark.timeout(max(300, STEPS))
def test_random_histories_of_multisets(spark: Any) -> None:
    for seed in range(SEED, SEED + max(1, STEPS // (4 * STEPS_OF_ONE_HISTORY))):
        finding = play(seed, STEPS_OF_ONE_HISTORY, spark, kinds=["multiset"])
        assert finding is None, str(finding)
