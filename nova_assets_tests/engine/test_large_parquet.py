"""Parquet files that are too big for memory: what is inserted of them, or said of them, is what is of small ones."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import nova_assets as nova
from nova_assets.engine.inputs import insert_data
from nova_assets_tests.effort import EXHAUSTIVE

pytestmark = pytest.mark.spark

VALUES: dict[pa.DataType, Sequence[Any]] = {
    pa.int32(): (1, -7, None),
    pa.int64(): (2, 2**40, None),
    pa.uint32(): (2**32 - 1,),
    pa.float64(): (1.0, 0.5, float("nan")),
    pa.string(): ("x", "", None),
    pa.decimal128(5, 2): (Decimal("1.50"), None),
    pa.timestamp("us"): (datetime(2024, 1, 1, 12), datetime(9999, 12, 31)),
    pa.timestamp("ns"): (datetime(2024, 1, 1), None),
    pa.timestamp("us", "UTC"): (datetime(2024, 1, 1), None),
    pa.list_(pa.int32()): ([1, None], [], None),
    pa.struct([("b", pa.int32())]): ({"b": 1}, {"b": None}, None),
    pa.dictionary(pa.int8(), pa.string()): ("x", None),
    pa.null(): (None,),
}
DECLARED = ("int", "bigint", "double", "string", "timestamp", "timestamp_ntz", "array<int>", "struct<b int, c string>")
SOME_CASES = (13, 15, 19, 24, 28)
"""Several files, files of several row groups, a file of deletions, and a refusal."""

MORE_CASES = [n for n in range(30) if n not in SOME_CASES]


def write(table: pa.Table, path: Path, rng: random.Random | None = None) -> Path:
    few = 10 if rng is None else rng.choice((1, 2, 10))
    pq.write_table(table, path, row_group_size=few, store_schema=rng is None or rng.random() < 0.5)
    return path


def random_files(rng: random.Random, folder: Path) -> list[Path]:
    likely = {name: rng.choice(list(VALUES)) for name in "vw"}

    def table() -> pa.Table:
        rows = rng.choice((0, 1, 5))
        columns = {"k": pa.array([rng.randrange(100) for _ in range(rows)], pa.int64())}
        for name in rng.sample("vw", rng.choice((0, 1, 2, 2))):
            kind = likely[name] if rng.random() < 0.9 else rng.choice(list(VALUES))
            columns[name] = pa.array([rng.choice(VALUES[kind]) for _ in range(rows)], kind)
        if rng.random() < 0.2:
            share = rng.choice((0.5, 1.0))
            columns["_deleted"] = pa.array([rng.random() < share for _ in range(rows)])
        return pa.table(columns)

    return [write(table(), folder / f"{n}.parquet", rng) for n in range(rng.choice((1, 2, 3)))]


def random_channel(rng: random.Random) -> nova.Channel:
    declared = f"k bigint, v {rng.choice(DECLARED)}" + (f", w {rng.choice(DECLARED)}" if rng.random() < 0.7 else "")
    merge = rng.choice((nova.Append(), nova.Upsert(key="k")))
    change: Any = rng.choice(("freeze", "evolve"))
    return nova.Channel("c", merge=merge, schema=rng.choice((declared, None)), on_schema_change=change)


def inserted(
    channel: nova.Channel, files: Sequence[Path], large: int, folder: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> object:
    """The channel's schema and rows after the insert, or the code of the refusal."""
    monkeypatch.setattr(insert_data, "LARGE_PARQUET_BYTES", large)
    folder.mkdir()
    with nova.open(catalog=f"sqlite:///{folder}/c.db", warehouse=folder / "wh", spark=spark) as store:
        store.register(channel)
        try:
            store.insert("c", list(files))
        except nova.NovaError as error:
            assert store.timeline("c") == []
            return error.code  # of two mistakes in one file, either may be told first
        input_rows = store.engine.inputs.convert(list(files), channel.schema)
        assert isinstance(input_rows, pa.Table) == (large > 0), "large files are never in the memory of this process"
        rows = store.read("c").to_arrow().to_pylist()
        return str(store.channels()[0].schema), sorted(map(str, rows))


@pytest.mark.parametrize("cases", [SOME_CASES, pytest.param(MORE_CASES, marks=EXHAUSTIVE)], ids=["some", "more"])
def test_large_files_are_taken_as_small_ones_are(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, cases: Sequence[int], seed: int = 24
) -> None:
    arrived = 0
    for n in cases:
        rng = random.Random(f"{seed} {n}")
        folder = tmp_path / str(n)
        folder.mkdir()
        files, channel = random_files(rng, folder), random_channel(rng)
        small = inserted(channel, files, 2**40, folder / "small", spark, monkeypatch)
        large = inserted(channel, files, -1, folder / "large", spark, monkeypatch)
        arrived += isinstance(small, tuple)
        if any(pa.types.is_null(f.type) for p in files for f in pq.read_schema(p)):
            assert large in (small, "NOVA-SCHEMA-MISMATCH"), n  # nothing but nulls: it does not wait for a value
        else:
            assert large == small, n
    assert arrived > len(cases) // 4


def test_a_refused_value_is_named_with_its_row_in_the_file(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(insert_data, "LARGE_PARQUET_BYTES", 0)
    table = pa.table({"v": pa.array([*range(499), 2**40], pa.int64())})
    pq.write_table(table, tmp_path / "f.parquet", row_group_size=100)
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh", spark=spark) as store:
        store.register(nova.Channel("c", schema="v int"))
        with pytest.raises(nova.SchemaMismatch, match=r"(?s)f.parquet: row 500 .* column 'v'.*1099511627776 is no int"):
            store.insert("c", tmp_path / "f.parquet")
        assert store.timeline("c") == []


@pytest.mark.core
def test_a_damaged_page_is_told_by_the_files_name(tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(insert_data, "LARGE_PARQUET_BYTES", 0)
    path = write(pa.table({"v": [f"text {n}" for n in range(1000)]}), tmp_path / "f.parquet")
    data = bytearray(path.read_bytes())
    data[100:4000] = bytes(3900)
    path.write_bytes(data)
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh", spark=spark) as store:
        store.register(nova.Channel("c", schema="v string"))
        with pytest.raises(nova.BadRecord, match=r"f.parquet: the Parquet file is damaged"):
            store.insert("c", path)
        assert store.timeline("c") == []
