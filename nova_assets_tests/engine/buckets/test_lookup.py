"""Keys of every type that blocks are laid out by are found, through bases and deltas, and without Spark."""

from __future__ import annotations

import random
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import nova_assets as nova
from nova_assets.engine.buckets import file_writer, spark_jobs
from nova_assets.model.arrow_types import arrow_type
from nova_assets.model.declared_schema import schema_from_declaration
from nova_assets.model.key_layout import HASHED_TYPES
from nova_assets.plan import merge_units

pytestmark = pytest.mark.slow

VALUES: dict[str, list[Any]] = {
    "boolean": [True, False],
    "tinyint": list(range(-100, 100)),
    "smallint": list(range(-300, 300)),
    "int": list(range(-300, 300)),
    "bigint": [n * 10**12 for n in range(-300, 300)],
    "date": [date(1900, 1, 1) + timedelta(days=37 * n) for n in range(600)],
    "timestamp": [
        datetime(1950, 1, 1, tzinfo=UTC) + timedelta(seconds=9876 * n, microseconds=n % 3) for n in range(600)
    ],
    "timestamp_ntz": [datetime(1950, 1, 1) + timedelta(seconds=9876 * n, microseconds=n % 3) for n in range(600)],
    "string": [f"é{n:04d}" * (1 + n % 3) for n in range(500)] + ["x" * 5000, "", "日本"],
    "binary": [bytes([n % 256, n // 256]) for n in range(500)],
}
CLUSTERED = HASHED_TYPES - {"boolean", "binary"}


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_writer, "MAX_ROW_GROUP_ROWS", 50)
    monkeypatch.setattr(file_writer, "MIN_ROW_GROUP_ROWS", 20)
    monkeypatch.setattr(spark_jobs, "TARGET_BUCKET_ROWS_OF_RUN", 8)
    monkeypatch.setattr(merge_units, "BUCKET_BYTES", 3000)
    monkeypatch.setattr(merge_units, "MAX_BUCKET_BYTES", 3000)


@pytest.mark.parametrize(
    ("type_", "by"), [*((t, ()) for t in sorted(HASHED_TYPES)), *((t, ("k",)) for t in sorted(CLUSTERED))]
)
def test_keys_of_each_type_are_found(type_: str, by: tuple[str, ...], tmp_path: Path) -> None:
    assert VALUES.keys() == HASHED_TYPES
    rng = random.Random(type_)
    channel = nova.Channel(
        "c", merge=nova.Upsert(key=["k", "j"]), schema=f"k {type_}, j bigint, v bigint", cluster_by=by
    )
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh") as store:
        store.register(channel)
        store.insert("c", table(type_, given(rng, type_, 400)), kind="base")
        for _ in range(3):
            rows = [{**r, "_deleted": rng.random() < 0.3} for r in given(rng, type_, 60)]
            store.insert("c", table(type_, rows))
        there = {(r["k"], r["j"]): r["v"] for r in store.read("c").to_arrow().to_pylist()}
        some = rng.sample(sorted(there, key=str), min(50, len(there)))
        asked = table(type_, [{"k": k, "j": j, "v": 0} for k, j in [*some, (VALUES[type_][0], 99)]]).select(["k", "j"])
        found = store.read("c", keys=asked).to_arrow().to_pylist()
        assert {(r["k"], r["j"]): r["v"] for r in found} == {k: there[k] for k in some} and len(found) == len(some)


@pytest.mark.parametrize("type_", sorted(HASHED_TYPES))
def test_keys_of_one_column_are_found(type_: str, tmp_path: Path) -> None:
    """Also where several buckets share a row group, whose keys are then in no order."""
    rng = random.Random(type_)
    channel = nova.Channel("c", merge=nova.Upsert(key="k"), schema=f"k {type_}, j bigint, v bigint")
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh") as store:
        store.register(channel)
        for count in (400, 60, 60):
            by_key = {r["k"]: r for r in given(rng, type_, count)}
            store.insert("c", table(type_, list(by_key.values())))
        there = {r["k"]: r["v"] for r in store.read("c").to_arrow().to_pylist()}
        some = rng.sample(sorted(there, key=str), min(50, len(there)))
        asked = table(type_, [{"k": k, "j": 0, "v": 0} for k in some]).select(["k"])
        assert {r["k"]: r["v"] for r in store.read("c", keys=asked).to_arrow().to_pylist()} == {
            k: there[k] for k in some
        }


def test_dates_that_python_does_not_have(tmp_path: Path) -> None:
    days = pa.array([0, 1, 4_000_000, -2_000_000], pa.int32()).cast(pa.date32())
    for by in ((), ("k",)):
        channel = nova.Channel(f"c{len(by)}", merge=nova.Upsert(key="k"), schema="k date, v bigint", cluster_by=by)
        with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh") as store:
            store.register(channel)
            store.insert(channel, pa.table({"k": days, "v": pa.array([0, 1, 2, 3], pa.int64())}), kind="base")
            store.insert(channel, pa.table({"k": days.slice(2), "v": pa.array([4, 5], pa.int64())}))
            assert sorted(store.read(channel.name).to_arrow()["v"].to_pylist()) == [0, 1, 4, 5]
            store.compact(channel.name)
            assert sorted(store.read(channel.name).to_arrow()["v"].to_pylist()) == [0, 1, 4, 5]
            if not by:
                found = store.read(channel.name, keys=pa.table({"k": days.slice(1, 2)})).to_arrow()
                assert sorted(found["v"].to_pylist()) == [1, 4]


def test_it_takes_no_spark(tmp_path: Path) -> None:
    code = f"""
import sys, pyarrow as pa, nova_assets as nova
with nova.open(catalog="sqlite:///{tmp_path}/c.db", warehouse="{tmp_path}/wh") as store:
    store.register(nova.Channel("c", merge=nova.Upsert(key="k")))
    store.insert("c", pa.table({{"k": [1, 2], "v": [1, 2]}}), kind="base")
    store.insert("c", pa.table({{"k": [2, 3], "v": [3, 4]}}))
    store.compact("c")
    assert store.read("c", keys=pa.table({{"k": [2, 9]}})).to_arrow().to_pylist() == [{{"k": 2, "v": 3}}]
    assert store.read("c", since=1).to_arrow().num_rows == 2 and store.read("c").to_arrow().num_rows == 3
assert "pyspark" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def given(rng: random.Random, type_: str, count: int) -> list[dict[str, Any]]:
    keys = {(rng.choice(VALUES[type_]), rng.randrange(3)) for _ in range(count)}
    return [{"k": k, "j": j, "v": rng.randrange(1000)} for k, j in sorted(keys, key=str)]


def table(type_: str, rows: list[dict[str, Any]]) -> pa.Table:
    marks = [("_deleted", pa.bool_())] if "_deleted" in rows[0] else []
    key = arrow_type(schema_from_declaration(f"k {type_}").field("k").type)
    return pa.Table.from_pylist(rows, schema=pa.schema([("k", key), ("j", pa.int64()), ("v", pa.int64()), *marks]))


def opened(tmp_path: Path, *channels: nova.Channel) -> nova.Store:
    store = nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh")
    for channel in channels:
        store.register(channel)
    return store


def test_columns_that_may_not_be_null(tmp_path: Path) -> None:
    channel = nova.Channel("c", merge=nova.Upsert(key="k"), schema="k bigint NOT NULL, v bigint NOT NULL")
    empty = nova.Channel("e", merge=nova.Append(), schema="k bigint NOT NULL")
    with opened(tmp_path, channel, empty) as store:
        assert store.read("c").to_arrow().num_rows == store.read("e").to_arrow().num_rows == 0
        store.insert("c", [{"k": 1, "v": 1}])
        store.insert("c", [{"k": 2, "v": 2}])
        assert store.read("c").to_arrow().num_rows == 2 and store.read("c", keys=[{"k": 2}]).to_arrow().num_rows == 1
        store.compact("c")
        assert store.read("c", keys=[{"k": 2}]).to_arrow().to_pylist() == [{"k": 2, "v": 2}]
        store.insert("c", [{"k": 2, "v": 3}], kind="base")
        assert store.read("c", since=2).to_arrow().num_rows == 2, "one gone, one changed"


@pytest.mark.spark
def test_keys_after_the_key_was_changed(tmp_path: Path, spark: Any) -> None:
    ddl = "a bigint, b bigint"
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh", spark=spark) as store:
        store.register(nova.Channel("c", merge=nova.Upsert(key="a"), schema=ddl))
        store.insert("c", [{"a": 1, "b": 1}])
        store.register(nova.Channel("c", merge=nova.Upsert(key=["a", "b"]), schema=ddl), replace=True)
        assert store.read("c", keys=[{"a": 1, "b": 99}]).to_arrow().num_rows == 0
        store.register(nova.Channel("c", merge=nova.Upsert(key="b"), schema=ddl), replace=True)
        assert store.read("c", keys=[{"b": 1}]).to_arrow().num_rows == 1


@pytest.mark.core
def test_a_column_that_is_called_like_a_field_of_another(tmp_path: Path) -> None:
    channel = nova.Channel("c", merge=nova.Upsert(key="a.b"), schema="a struct<b: bigint>, `a.b` bigint")
    with opened(tmp_path, channel) as store:
        store.insert("c", [{"a": {"b": 1000 + n}, "a.b": n} for n in range(200)], kind="base")
        found = store.read("c", keys=[{"a.b": 7}]).to_arrow().to_pylist()
        assert found == [{"a": {"b": 1007}, "a.b": 7}]


@pytest.mark.core
def test_a_base_in_which_a_key_comes_twice_is_refused_wherever_files_end(tmp_path: Path) -> None:
    channel = nova.Channel("c", merge=nova.Upsert(key="k"), schema="k bigint, v string", cluster_by="k")
    rows = [{"k": n // 2, "v": f"{n * 7919 % 10007:08d}" * 5} for n in range(400)]
    with opened(tmp_path, channel) as store:
        with pytest.raises(nova.BadKey, match="200 keys"):
            store.insert("c", rows, kind="base")
        store.insert("c", rows[::2], kind="base")
        [base] = store.catalog.histories.of("c").blocks
        assert len(base.manifest.files) > 1


@pytest.mark.core
def test_keys_of_another_type_are_left_to_spark() -> None:
    from nova_assets.engine.read.merge_unit_reader import _is_lossless_cast

    zone = pa.timestamp("us", "Europe/Rome")
    assert _is_lossless_cast(pa.int32(), pa.int64()) and _is_lossless_cast(pa.timestamp("ns", "UTC"), zone)
    assert not _is_lossless_cast(pa.timestamp("us"), pa.date32()) and not _is_lossless_cast(pa.string(), pa.int64())
    assert not _is_lossless_cast(pa.timestamp("us"), pa.timestamp("us", "UTC")) and not _is_lossless_cast(
        pa.float64(), pa.int64()
    )
