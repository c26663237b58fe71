"""Degree of parallelism: limits as stated, and more parts of a shuffle for more bytes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.engine.session.core_limit import limited_settings
from nova_assets.model.block import DataFile, Manifest
from nova_assets.model.reads import Snapshot
from nova_assets.model.resources import NO_LIMITS
from nova_assets.plan.run_plan import MAX_SHUFFLE_PARTITIONS, SHUFFLE_PARTITION_BYTES, plan_parallelism
from nova_assets_tests.plan.histories import SCHEMA, block


def snapshot(*sizes: int) -> Any:
    manifests = [Manifest((DataFile(f"blocks/{n}/part-0", 1, size),), SCHEMA) for n, size in enumerate(sizes)]
    blocks = tuple(replace(block(f"d{n + 1}"), manifest=manifest) for n, manifest in enumerate(manifests))
    return Snapshot("c", len(sizes), (), blocks, SCHEMA, nova.Append())


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [
        ((), 1),
        ((0,), 1),
        ((1,), 1),
        ((SHUFFLE_PARTITION_BYTES,), 1),
        ((SHUFFLE_PARTITION_BYTES, 1), 2),
        ((100 * SHUFFLE_PARTITION_BYTES,), 100),
        ((10**15,), MAX_SHUFFLE_PARTITIONS),
    ],
)
def test_parts_grow_with_the_bytes(sizes: tuple[int, ...], parts: int) -> None:
    planned = plan_parallelism(NO_LIMITS, [snapshot(*sizes)])
    assert (planned.shuffle_partitions, planned.is_stated, planned.max_cores) == (parts, False, None)


def test_a_block_that_two_tasks_read_counts_once() -> None:
    read = snapshot(3 * SHUFFLE_PARTITION_BYTES)
    assert plan_parallelism(NO_LIMITS, [read, replace(read)]).shuffle_partitions == 3


def test_a_stated_number_is_taken() -> None:
    stated = nova.Resources(max_cores=4, shuffle_partitions=2)
    planned = plan_parallelism(stated, [snapshot(10**12)])
    assert (planned.shuffle_partitions, planned.is_stated, planned.max_cores) == (2, True, 4)


@pytest.mark.parametrize("value", [0, -1, 1.5, "4", True])
def test_other_numbers_are_refused(value: Any) -> None:
    for name in ("max_cores", "shuffle_partitions"):
        [problem] = nova.Resources(**{name: value}).problems()
        assert name in problem and repr(value) in problem and "at least 1" in problem


@pytest.mark.parametrize(
    ("settings", "cores", "limited"),
    [
        ({"spark.master": "local[*]"}, 3, {"spark.master": "local[3]"}),
        ({"spark.master": "local[*]"}, None, {"spark.master": "local[*]"}),
        ({"spark.master": "local"}, 3, {"spark.master": "local[1]"}),
        ({"spark.master": "local[2]"}, 3, {"spark.master": "local[2]"}),
        ({"spark.master": "local[8,4]"}, 3, {"spark.master": "local[3]"}),
        ({"spark.master": "local[*, 4]"}, 3, {"spark.master": "local[3]"}),
        ({"spark.master": "yarn"}, 3, {"spark.master": "yarn"}),
        ({"spark.master": "spark://m:7077"}, 3, {"spark.master": "spark://m:7077", "spark.cores.max": "3"}),
        (
            {"spark.master": "spark://m:7077", "spark.cores.max": "2", "spark.executor.cores": "8"},
            3,
            {"spark.master": "spark://m:7077", "spark.cores.max": "2", "spark.executor.cores": "3"},
        ),
    ],
)
def test_settings_of_a_limited_session(settings: dict[str, str], cores: int | None, limited: dict[str, str]) -> None:
    assert limited_settings(settings, cores) == limited
