"""A read as a pandas DataFrame: Arrow's values, exactly, also if the frame is inserted and read again."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import nova_assets as nova
from nova_assets.client.rows import RemoteSelection
from nova_assets.formats.pandas_frame import to_pandas_frame
from nova_assets.model.arrow_types import arrow_type
from nova_assets.model.schema import parse_type
from nova_assets_tests.fuzz.values import TYPES

BIG = 2**53 + 1
ARRAY, STRUCT = pa.list_(pa.int64()), pa.struct([("n", pa.int64()), ("b", pa.bool_())])
COLUMNS = {
    **{f"c{n}": pa.array([*t.values, None], t.arrow) for n, t in enumerate(TYPES.values())},
    "big": pa.array([BIG, None, -BIG]),
    "list": pa.array([[BIG, None], [BIG], [], None], ARRAY),
    "times": pa.array([[0, None, -62135596800000000], [253402300799999999], None], pa.list_(pa.timestamp("us", "UTC"))),
    "days": pa.array([[0, None, -719162], [2932896], None], pa.list_(pa.date32())),
    "flags": pa.array([[True, None], [False], None], pa.list_(pa.bool_())),
    "struct": pa.array([{"n": BIG, "b": None}, {"n": None, "b": True}, None], STRUCT),
    "map": pa.array([[("k", BIG), ("j", None)], [], None], pa.map_(pa.string(), pa.int64())),
    "deep": pa.array([[{"n": BIG, "b": None}, {"n": None, "b": False}, None], None], pa.list_(STRUCT)),
    "keys": pa.array([[(BIG, [BIG, None])], None], pa.map_(pa.int64(), ARRAY)),
    "holder": pa.array([{"l": [BIG, None], "m": [("k", None)]}, {"l": None, "m": [("j", BIG)]}],
                       pa.struct([("l", ARRAY), ("m", pa.map_(pa.string(), pa.int64()))])),
}  # fmt: skip


def column_table(name: str) -> pa.Table:
    return pa.table({"v": COLUMNS[name]})


def nan_as_null(value: Any) -> Any:
    """NaN is null in pandas."""
    if isinstance(value, float):
        return None if math.isnan(value) else repr(value)
    if isinstance(value, list | tuple):
        return [nan_as_null(v) for v in value]
    return {k: nan_as_null(v) for k, v in value.items()} if isinstance(value, dict) else value


def test_values_arrive_exactly_and_survive_an_insert(tmp_path: Path) -> None:
    height = max(map(len, COLUMNS.values()))
    padded = {n: pa.concat_arrays([c, pa.nulls(height - len(c), c.type)]) for n, c in COLUMNS.items()}
    table = pa.table({"row": range(height), **padded})
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh") as store:
        for channel in "ab":
            store.register(nova.Channel(channel, schema=table.schema))
        store.insert("a", table)
        store.insert("b", store.read("a").to_pandas())
        first, second = (store.read(channel).to_arrow().sort_by("row") for channel in "ab")
        with pytest.raises(nova.NovaError, match=r"(?s)types=.*'arrow'.*'nullable' or 'numpy'"):
            store.read("a").to_pandas(types="arrow")  # type: ignore[arg-type]
    assert first.schema == second.schema
    for name in table.column_names:
        inserted, read, again = (t.column(name).to_pylist() for t in (table, first, second))
        assert repr(read) == repr(inserted), name
        assert nan_as_null(again) == nan_as_null(read), name


@pytest.mark.parametrize(
    ("ddl", "expected"),
    [("boolean", "boolean"), ("tinyint", "Int8"), ("smallint", "Int16"), ("int", "Int32"), ("bigint", "Int64")],
)
def test_types_of_pandas_follow_from_the_type_of_the_column(ddl: str, expected: str) -> None:
    type_ = arrow_type(parse_type(ddl))
    for values in ([], [None], [1], [1, None]):
        array = pa.array([None if v is None else bool(v) for v in values]).cast(type_) if values else []
        frame = to_pandas_frame(pa.table({"v": pa.array(array, type_)}))
        assert str(frame["v"].dtype) == expected


NUMPY = {"big", "list", "struct", "map", "deep", "keys", "holder"}


@pytest.mark.parametrize("name", COLUMNS)
def test_numpy_types_are_those_of_arrow_or_refused_by_column(name: str) -> None:
    table = column_table(name)
    if name in NUMPY or pa.types.is_int64(COLUMNS[name].type):
        with pytest.raises(nova.NovaError, match=r"(?s)column 'v' has nulls.*found: +-?9\d+") as caught:
            to_pandas_frame(table, "numpy")
        assert caught.value.fields["column"] == "v"
        return
    pd.testing.assert_frame_equal(to_pandas_frame(table, "numpy"), table.to_pandas())


def test_numpy_types_without_nulls_and_with_exact_floats() -> None:
    for values in ([BIG, -BIG], [2**53, None, -(2**63)], [2**60, None]):
        frame = to_pandas_frame(pa.table({"v": pa.array(values, pa.int64())}), "numpy")
        assert [None if pd.isna(v) else int(v) for v in frame["v"]] == values
    nested = pa.table({"v": pa.array([[BIG], None, [BIG, BIG]], ARRAY)})
    assert [None if v is None else v.tolist() for v in to_pandas_frame(nested, "numpy")["v"]] == [
        [BIG],
        None,
        [BIG, BIG],
    ]


def test_rows_of_a_service_arrive_exactly() -> None:
    table = column_table("big")
    read = RemoteSelection(lambda path, body: contextlib.nullcontext(table.to_reader()), "/v1/channels/c/read", {})
    assert list(read.to_pandas()["v"]) == [BIG, pd.NA, -BIG]
    with pytest.raises(nova.NovaError, match="column 'v' has nulls"):
        read.to_pandas(types="numpy")
