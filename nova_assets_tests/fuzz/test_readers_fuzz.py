"""Random tables by every reader, and faults of a reader that they find."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nova_assets_tests.effort import examples
from nova_assets_tests.fuzz.readers import find_difference

SEEDS = examples(2, 60)


@pytest.mark.slow
def test_every_reader_gives_the_values_that_were_inserted(tmp_path: Path) -> None:
    for seed in range(SEEDS):
        assert (found := find_difference(seed, tmp_path)) is None, found


@pytest.mark.spark
def test_spark_gives_them_too(spark: Any, tmp_path: Path) -> None:
    for seed in range(1000, 1000 + examples(1, 20)):
        assert (found := find_difference(seed, tmp_path, spark)) is None, found


def whole_numbers_with_nulls_become_floats(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("nova_assets.formats.pandas_frame._nullable_type_options", dict)


def nested_whole_numbers_become_floats(patch: pytest.MonkeyPatch) -> None:
    from nova_assets.formats import pandas_frame

    options = pandas_frame._nullable_type_options()
    patch.setattr(pandas_frame, "_nullable_type_options", lambda: {"types_mapper": options["types_mapper"]})


@pytest.mark.slow
@pytest.mark.parametrize("plant", [whole_numbers_with_nulls_become_floats, nested_whole_numbers_become_floats])
def test_a_planted_fault_is_found_by_the_first_table(
    plant: Callable[[pytest.MonkeyPatch], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    found = find_difference(0, tmp_path)
    assert found is not None and "to_pandas" in found
