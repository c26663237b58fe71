"""Columns that nobody has declared: their types are inferred, and each value arrives exactly or is refused."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import nova_assets as nova
from nova_assets.engine.inputs.insert_data import convert_insert_data

VALUES: tuple[Any, ...] = (
    True,
    0,
    7,
    2**53 + 1,
    2**63 - 1,
    2**64,
    0.5,
    1e300,
    float("inf"),
    Decimal("1.50"),
    Decimal("9007199254740993"),
    "x",
    "007",
    "",
    b"\x00",
    date(2024, 1, 1),
    datetime(2024, 1, 1),
    datetime(2024, 1, 1, 12, 30, 0, 5),
    datetime(2024, 1, 1, 12, tzinfo=UTC),
    datetime(2024, 1, 1, 12, tzinfo=timezone(timedelta(hours=2))),
    datetime(9999, 12, 31, 23, 59, 59),
    pd.Timestamp("2024-01-01T00:00:00.123456789"),
    pd.Timestamp("2024-01-01T00:00:00.123456789+02:00"),
    pd.Timestamp("2024-01-01"),
    np.datetime64("2024-01-01T00:00:00.123456789"),
    np.int32(5),
    np.float32(0.1),
    [1, 2],
    [pd.Timestamp("2024-01-01T00:00:00.123456789")],
    {"a": 1},
    {"a": 0.5, "b": "t"},
    {"a": pd.Timestamp("2024-01-01T00:00:00.123456789")},
    None,
)

FIELDS = (
    "9007199254740993",
    "1.5",
    "1e400",
    "1e-400",
    "92233720368547758081",
    "92233720368547758080",
    "007",
    "0x10",
    "-0",
    "+5",
    "1",
    "true",
    "TRUE",
    "2024-01-01",
    "2024-01-01T10:00:00.5",
    "2024-01-01T10:00:00.123456789",
    "2024-01-01T10:00:00+02:00",
    "2024-01-01T10:00:00Z",
    "x",
    "",
    "nan",
    "inf",
    "1_000",
    " 7 ",
    "0.1",
    "123456789012345678.5",
    "20240101",
    "00",
    "0",
)


def is_exactly(arrived: Any, given: Any) -> bool:
    """Whether a value that arrived means what was given."""
    if given is None or arrived is None:
        return given is None and arrived is None
    if isinstance(given, list):
        return len(arrived) == len(given) and all(map(is_exactly, arrived, given))
    if isinstance(given, dict):
        return all(is_exactly(v, given.get(k)) for k, v in arrived.items()) and given.keys() <= arrived.keys()
    if isinstance(given, np.generic):
        given = pd.Timestamp(given) if isinstance(given, np.datetime64) else given.item()
    if isinstance(given, datetime):
        if isinstance(arrived, datetime):
            return (arrived.tzinfo is None) == (given.tzinfo is None) and pd.Timestamp(arrived) == pd.Timestamp(given)
        return type(arrived) is date and given.tzinfo is None and pd.Timestamp(arrived) == pd.Timestamp(given)
    if isinstance(given, date):
        return arrived == given or arrived == datetime(given.year, given.month, given.day)
    if isinstance(given, bool | str | bytes) or isinstance(arrived, bool | str | bytes):
        return type(arrived) is type(given) and bool(arrived == given)
    return bool(Decimal(arrived) == Decimal(given))


def says(arrived: Any, field: str) -> bool:
    """Whether a value that arrived is what a field of a CSV file says."""
    if arrived is None or field == "":
        return arrived is None and field == ""
    if isinstance(arrived, str):
        return arrived == field
    if isinstance(arrived, bool):
        return field.lower() == str(arrived).lower()
    if isinstance(arrived, datetime):
        said = pd.Timestamp(field)
        return (said.tzinfo is None) == (arrived.tzinfo is None) and pd.Timestamp(arrived) == said
    if isinstance(arrived, date):
        return arrived.isoformat() == field
    return str(arrived) == field or abs(Decimal(arrived) - Decimal(field.strip())) < Decimal("0.5")


def arrived(data: Any) -> list[Any] | None:
    """The values of the one column; None where the data is refused."""
    try:
        table = convert_insert_data(data, None)
    except nova.NovaError:
        return None
    return list(table.column("v").to_pylist())


def pairs() -> Iterator[list[Any]]:
    yield from ([v] for v in VALUES)
    yield from (list(pair) for pair in product(VALUES, repeat=2))


@pytest.mark.parametrize("kind", ["dicts", "pandas"])
def test_values_arrive_exactly_or_are_refused(kind: str) -> None:
    wrong, taken = [], 0
    for values in pairs():
        data: Any = [{"v": v} for v in values]
        if kind == "pandas":
            column = pd.Series([None] * len(values), dtype=object)
            for n, v in enumerate(values):
                column[n] = v
            data = pd.DataFrame({"v": column})
        found = arrived(data)
        taken += found is not None
        if found is not None and not all(map(is_exactly, found, values)):
            wrong.append(f"{values!r}: {found!r}")
    assert wrong == []
    assert taken > len(VALUES)


@pytest.mark.slow
def test_fields_of_csv_arrive_as_they_are_written_or_are_refused(tmp_path: Path) -> None:
    rng, wrong, taken = random.Random(24), [], 0
    for n in range(600):
        fields = [rng.choice(FIELDS) for _ in range(rng.choice((1, 2, 3)))]
        path = tmp_path / f"{n}.csv"
        path.write_text("k,v\n" + "".join(f"1,{f}\n" for f in fields))
        found = arrived(path)
        taken += found is not None
        if found is not None and not all(map(says, found, fields)):
            wrong.append(f"{fields!r}: {found!r}")
    assert wrong == []
    assert taken > 100


@pytest.mark.parametrize(
    "values", [[pd.Timestamp("2024-01-01T00:00:00.5000001")], [date(2024, 1, 1), datetime(2024, 1, 1, 1)]]
)
def test_a_new_column_of_a_channel_that_evolves(values: list[Any], tmp_path: Path) -> None:
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh") as store:
        store.register(nova.Channel("c", schema="k int", on_schema_change="evolve"))
        with pytest.raises(nova.SchemaMismatch, match="column 'v'"):
            store.insert("c", [{"k": 1, "v": v} for v in values])
        assert store.timeline("c") == []
