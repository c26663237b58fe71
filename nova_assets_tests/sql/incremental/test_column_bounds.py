"""Bounds of changed keys, by which Spark may skip row groups: they hold every value, or there are none."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from nova_assets.sql.incremental.dataset_change import ColumnBounds, column_bounds


@pytest.mark.parametrize(
    ("values", "type_", "expected"),
    [
        ([3, None, -1], pa.int8(), ColumnBounds(-1, 3, True)),
        ([2**63 - 1, -(2**63)], pa.int64(), ColumnBounds(-(2**63), 2**63 - 1, False)),
        (["b", "", "ä"], pa.string(), ColumnBounds("", "ä", False)),
        ([dt.date(2024, 3, 1)], pa.date32(), ColumnBounds("2024-02-29", "2024-03-02", False, True)),
        ([dt.date(2024, 3, 1), dt.date(1582, 10, 10)], pa.date32(), None),
        ([dt.date(9999, 12, 31)], pa.date32(), None),
        ([None], pa.int32(), None),
        ([1.5], pa.float64(), None),
        ([], pa.string(), None),
    ],
)
def test_bounds_of_a_column(values: list[Any], type_: pa.DataType, expected: ColumnBounds | None) -> None:
    assert column_bounds(pa.table({"k": pa.array(values, type_)})).get("k") == expected


def test_values_that_python_does_not_have_give_no_bounds() -> None:
    days = pa.array([2**31 - 1], pa.int32()).view(pa.date32())
    text = pa.array([b"\xffA"], pa.binary()).view(pa.string())
    assert column_bounds(pa.table({"d": days, "t": text})) == {}
