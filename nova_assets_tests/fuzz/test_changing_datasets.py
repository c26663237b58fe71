"""Queries of datasets change between ticks, and every dataset and every reader has what Spark's recompute gives.

``NOVA_FUZZ_STEPS`` sets the number of steps, and ``NOVA_FUZZ_SEED`` the first history.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from nova_assets_tests.effort import EXHAUSTIVE, examples
from nova_assets_tests.fuzz.changing_datasets import play

SEED = int(os.environ.get("NOVA_FUZZ_SEED", "1"))
STEPS_OF_ONE_HISTORY = 10


@pytest.mark.spark
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("histories", [1, pytest.param(examples(0, 200) // STEPS_OF_ONE_HISTORY, marks=EXHAUSTIVE)])
def test_changed_queries_of_a_chain(spark: Any, tmp_path: Path, histories: int) -> None:
    for seed in range(SEED, SEED + histories):
        root = tmp_path / str(seed)
        root.mkdir()
        play(spark, root, seed, STEPS_OF_ONE_HISTORY)
