"""Deltas that this process computes are those that their SQL selects."""

from __future__ import annotations

import random
from collections import Counter
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import nova_assets as nova
from nova_assets.model.merge import MergeModel
from nova_assets.sql.incremental.dataset_change import has_single_rows
from nova_assets.sql.incremental.maintenance import delta_rows
from nova_assets.sql.incremental.maintenance_sql import RESULT
from nova_assets.sql.incremental.operator_sql import WEIGHT
from nova_assets.sql.incremental.result_delta import select_delta, select_delta_once
from nova_assets_tests.sql.incremental.duckdb_judge import translate
from nova_assets_tests.sql.incremental.test_equality_in_duckdb import connect

NAMES = {"k": "Key", "part": "part", "v": "value", "items": "items"}
SCHEMA = pa.schema(
    {"k": pa.int32(), "part": pa.string(), "v": pa.decimal128(10, 2), "items": pa.list_(pa.int32())}
    | {"nova_weight": pa.int64()}
)
KEYED_OR_MULTISET: list[MergeModel] = [nova.Multiset(), nova.Upsert(key="key"), nova.Upsert(key=["Key", "part"])]
MODELS: list[MergeModel] = [*KEYED_OR_MULTISET, nova.Append()]


def random_changes(rng: random.Random, *, has_removals: bool, weights: list[int]) -> pa.Table:
    rows: dict[tuple[Any, ...], int] = {}
    for _ in range(rng.randrange(8)):
        value = rng.choice([None, Decimal("1.50"), Decimal("-2.00")])
        row = (rng.randrange(3), rng.choice("xy"), value, rng.choice([(), (1, None), None]))
        rows[row] = rng.choice(weights) * (-1 if has_removals and rng.random() < 0.5 else 1)
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, (*row, w), strict=True)) for row, w in rows.items()], SCHEMA)


def counted(rows: list[dict[str, Any]]) -> Counter[Any]:
    return Counter(str(sorted(row.items())) for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("merge", "select"),
    [*((merge, select_delta) for merge in MODELS), *((merge, select_delta_once) for merge in KEYED_OR_MULTISET)],
)
def test_rows_are_those_of_the_statement(merge: MergeModel, select: Any) -> None:
    rng = random.Random(5)
    with connect() as connection:
        for _ in range(60):
            weights = [1] if merge.key else [1, 2, 3]
            change = random_changes(rng, has_removals=not isinstance(merge, nova.Append), weights=weights)
            found = delta_rows(merge, NAMES, change)
            assert found is not None
            connection.register(RESULT, change)
            expected = connection.sql(translate(select(merge, NAMES))).to_arrow_table()
            assert counted(found.to_pylist()) == counted(expected.to_pylist()), change.to_pylist()
            assert found.column_names == expected.column_names


def test_what_spark_has_to_decide() -> None:
    removal = pa.Table.from_pylist([{"k": 1, "part": "x", "nova_weight": -1}], SCHEMA)
    assert delta_rows(nova.Append(), NAMES, removal) is None, "the statement raises an error"
    keyless = pa.Table.from_pylist([{"k": None, "part": "x", "nova_weight": 1}], SCHEMA)
    assert delta_rows(nova.Upsert(key="key"), NAMES, keyless) is None
    rounded = pa.table({"k": [0.0, -0.0], "nova_weight": [1, -1]})
    assert delta_rows(nova.Upsert(key="k"), {"k": "k"}, rounded) is None


def test_large_types_keep_their_values() -> None:
    change = pa.table(
        {"k": pa.array([1, 2], pa.int64()), "t": pa.array(["a", "b"], pa.large_string()), "nova_weight": [-2, 1]}
    )
    found = delta_rows(nova.Multiset(), {"k": "k", "t": "t"}, change)
    assert found is not None
    assert found.to_pylist() == [
        {"k": 1, "t": "a", "_deleted": True},
        {"k": 1, "t": "a", "_deleted": True},
        {"k": 2, "t": "b", "_deleted": False},
    ]


def test_rows_that_stand_for_several_rows() -> None:
    once = pa.table({"a": [1, 2], WEIGHT: pa.array([1, -1], pa.int64())})
    twice = pa.table({"a": [1, 2], WEIGHT: pa.array([1, -2], pa.int64())})
    assert [has_single_rows(c) for c in (once, twice, twice.slice(0, 0))] == [True, False, True]
