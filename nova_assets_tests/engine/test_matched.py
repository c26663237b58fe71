"""Rows with certain keys, in this process: as SQL has it, and in their order."""

from __future__ import annotations

import datetime as d
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nova_assets.engine.read.read_executor import filter_rows_by_keys

VALUES: dict[str, Any] = {
    "int": (pa.int64(), st.integers(-2, 3)),
    "text": (pa.string(), st.sampled_from(["", "a", "b", "\u00e4"])),
    "day": (pa.date32(), st.sampled_from([d.date(2024, 1, 1), d.date(2024, 1, 2)])),
    "flag": (pa.bool_(), st.booleans()),
}


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_it_is_what_one_finds_by_looking(data: st.DataObject) -> None:
    on = data.draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=3, unique=True))
    key = st.tuples(*(st.none() | VALUES[c][1] for c in on))
    rows, keys = (data.draw(st.lists(key, max_size=8)) for _ in range(2))
    made = [
        pa.table({c: pa.array([k[n] for k in some], VALUES[c][0]) for n, c in enumerate(on)}) for some in (rows, keys)
    ]
    table = made[0].append_column("tags", pa.array([[n] for n in range(len(rows))], pa.list_(pa.int64())))
    found = filter_rows_by_keys(table, made[1], on)
    expected = [n for n, k in enumerate(rows) if None not in k and k in keys]
    assert found is not None and found.column("tags").to_pylist() == [[n] for n in expected]


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        (pa.array([1], pa.int8()), [1]),
        (pa.array([1], pa.int64()), [1]),
        (pa.array([2**40], pa.int64()), None),
        (pa.array([1.0]), None),
        (pa.array(["1"]), None),
    ],
)
def test_what_is_not_clear_is_for_spark_to_say(keys: pa.Array, found: list[int] | None) -> None:
    rows = pa.table({"k": pa.array([1, 2], pa.int32())})
    table = filter_rows_by_keys(rows, pa.table({"k": keys}), ["k"])
    assert (None if table is None else table.column("k").to_pylist()) == found
