"""What is computed bucket by bucket in Arrow is what Spark computes, for the same rows."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import nova_assets as nova
from nova_assets.engine.buckets import arrow_diff, arrow_merge
from nova_assets.engine.buckets.hashing import hash_keys
from nova_assets.engine.buckets.key_order import is_sorted_by_key, sort_by_key
from nova_assets.model.key_layout import KeyLayout
from nova_assets.model.merge import MergeModel
from nova_assets.model.schema import DELETED

pytestmark = pytest.mark.spark

CASES, KEYS, DELTAS = 150, 3, 4

SCHEMA = pa.schema(
    [
        ("case", pa.int64()),
        ("name", pa.string()),
        ("n", pa.int32()),
        ("long", pa.int64()),
        ("x", pa.float64()),
        ("price", pa.decimal128(12, 2)),
        ("ok", pa.bool_()),
        ("word", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("list", pa.list_(pa.field("element", pa.int32()))),
        ("pair", pa.struct([("a", pa.string()), ("b", pa.int64())])),
    ]
)
COMBINE = {"n": "sum", "long": "max", "x": "max", "price": "sum", "ok": "bool_and", "word": "min", "at": "max"}
MODELS: dict[str, MergeModel] = {
    "upsert": nova.Upsert(key=["case", "name"]),
    "upsert-order": nova.Upsert(key=["case", "name"], order_by=["x", "day"]),
    "keyed": nova.Keyed(key=["case", "name"], combine=COMBINE),
    "keyed-min": nova.Keyed(
        key=["case", "name"], combine={"x": "min", "at": "min", "day": "max", "ok": "bool_or", "long": "sum"}
    ),
    "keyed-order": nova.Keyed(key=["case", "name"], combine={"x": "sum", "price": "max"}, order_by="at"),
}


def random_row(rng: random.Random, case: int, key: int) -> dict[str, Any]:
    def maybe(value: Any) -> Any:
        return None if rng.random() < 0.2 else value

    return {
        "case": case,
        "name": f"k{key}" * (1 + case % 3),
        "n": maybe(rng.randint(-5, 5)),
        "long": maybe(rng.randint(-(2**40), 2**40)),
        "x": maybe(rng.choice([1.5, -2.0, 0.0, -0.0, float("nan"), float("inf")])),
        "price": maybe(Decimal(rng.randint(-999, 999)) / 100),
        "ok": maybe(rng.random() < 0.5),
        "word": maybe(rng.choice(["a", "b", "é", "日", "B", ""])),
        "at": maybe(datetime(2024, 1, 1, tzinfo=UTC) + timedelta(microseconds=rng.randint(0, 3))),
        "day": maybe(date(2024, 1, rng.randint(1, 3))),
        "list": maybe([rng.randint(0, 3), None]),
        "pair": maybe({"a": maybe("x"), "b": rng.randint(0, 9)}),
    }


def random_delta(rng: random.Random) -> pa.Table:
    rows = []
    for case in range(CASES):
        for key in rng.sample(range(KEYS), rng.randint(0, 2)):
            shape = rng.choice(["live", "live", "gone", "both"])
            rows += [{**random_row(rng, case, key), DELETED: True}] if shape in ("gone", "both") else []
            rows += [{**random_row(rng, case, key), DELETED: False}] if shape in ("live", "both") else []
    return pa.Table.from_pylist(rows, schema=SCHEMA.append(pa.field(DELETED, pa.bool_(), False)))


def random_base(rng: random.Random) -> pa.Table:
    rows = [random_row(rng, case, key) for case in range(CASES) for key in rng.sample(range(KEYS), rng.randint(0, 3))]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def counted(table: pa.Table) -> Counter[str]:
    """The rows as a bag; NaN and both zeros are what Spark takes them for."""
    return Counter(repr(sorted(r.items())).replace("-0.0", "0.0") for r in table.to_pylist())


@pytest.mark.parametrize("model", sorted(MODELS))
def test_chains_and_merges(model: str, spark: Any) -> None:
    from nova_assets.engine.read import spark_merge as by_spark
    from nova_assets.engine.rows.spark_versions import collect_to_arrow, frame_from_arrow

    rng, merge = random.Random(model), MODELS[model]
    base, deltas = random_base(rng), [random_delta(rng) for _ in range(DELTAS)]
    marked = [
        d.append_column(by_spark.DELTA_INDEX, pa.repeat(pa.scalar(n, pa.int32()), len(d))) for n, d in enumerate(deltas)
    ]
    frame = frame_from_arrow(spark, pa.concat_tables(marked))
    key = list(merge.key)

    changes = fold_of(deltas, merge)
    merged = arrow_merge.merge_changes(sort_by_key(base, key), changes, merge, key)

    assert counted(changes) == counted(collect_to_arrow(by_spark.compose_changes(frame, merge)))
    expected = collect_to_arrow(
        by_spark.merge_deltas(frame_from_arrow(spark, base), frame, merge, is_multi_delta=True, broadcast_keys=True)
    )
    assert counted(merged) == counted(expected)
    assert is_sorted_by_key(merged, key), "a base stays sorted"
    half = arrow_merge.merge_changes(sort_by_key(base, key), fold_of(deltas[:2], merge), merge, key)
    in_two = arrow_merge.merge_changes(half, fold_of(deltas[2:], merge), merge, key)
    assert counted(in_two) == counted(merged), "R10"


@pytest.mark.parametrize("model", sorted(MODELS))
def test_diffs(model: str, spark: Any) -> None:
    from nova_assets.engine.read import spark_diff as by_spark
    from nova_assets.engine.rows.spark_versions import collect_to_arrow, frame_from_arrow

    rng, merge = random.Random(model), MODELS[model]
    old = random_base(rng).drop_columns(["list"])  # Arrow compares none
    new = mostly(old, rng)
    order = KeyLayout(merge.key)

    found = arrow_diff.diff_tables(sort_by_key(old, merge.key), sort_by_key(new, merge.key), merge, order)

    assert counted(found) == counted(
        collect_to_arrow(by_spark.diff_snapshots(frame_from_arrow(spark, old), frame_from_arrow(spark, new), merge))
    )
    assert is_sorted_by_key(found, merge.key) and 50 < found.num_rows < new.num_rows
    same = arrow_diff.diff_tables(sort_by_key(old, merge.key), sort_by_key(old, merge.key), merge, order)
    assert same.num_rows == 0, "NaN is equal to itself, and so is null"


def mostly(rows: pa.Table, rng: random.Random) -> pa.Table:
    """The same rows, but for some: gone, new, or with another value in one column."""
    found = []
    for row in rows.to_pylist():
        other = random_row(rng, row["case"], rng.randrange(KEYS))
        change = rng.random()
        if change < 0.1:
            continue
        if change < 0.4:
            column = rng.choice([c for c in row if c not in ("case", "name")])
            row[column] = other[column]
        found.append(row)
    known = {(r["case"], r["name"]) for r in found}
    more = (random_row(rng, case, key) for case in range(CASES) for key in range(KEYS))
    found += [r for r in more if (r["case"], r["name"]) not in known and rng.random() < 0.2]
    for row in found:
        row.pop("list", None)
    return pa.Table.from_pylist(found, schema=rows.schema)


def fold_of(deltas: Sequence[pa.Table], merge: MergeModel) -> pa.Table:
    return arrow_merge.compose_deltas([sort_by_key(d, merge.key) for d in deltas], merge, merge.key)


@pytest.mark.core
def test_hashes(spark: Any) -> None:
    from pyspark.sql import functions as F

    from nova_assets.engine.rows.spark_versions import frame_from_arrow

    rng = random.Random(1)
    rows = [
        {
            "b": rng.random() < 0.5,
            "i8": rng.randint(-128, 127),
            "i16": rng.randint(-(2**15), 2**15 - 1),
            "i32": rng.randint(-(2**31), 2**31 - 1),
            "i64": rng.randint(-(2**63), 2**63 - 1),
            "s": "".join(rng.choice("aé日😀") for _ in range(rng.randint(0, 70))),
            "raw": rng.randbytes(rng.randint(0, 70)),
            "day": date(1960, 1, 1) + timedelta(days=rng.randint(0, 30000)),
            "at": datetime(1960, 1, 1, tzinfo=UTC) + timedelta(seconds=rng.randint(0, 2**31)),
        }
        for _ in range(500)
    ]
    types = [pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.string(), pa.binary(), pa.date32()]
    schema = pa.schema(list(zip(rows[0], [*types, pa.timestamp("us", "UTC")], strict=True)))
    table = pa.Table.from_pylist(rows, schema=schema)
    frame = frame_from_arrow(spark, table)
    for key in [*([c] for c in schema.names), schema.names, ["s", "i64"]]:
        expected = [r[0] for r in frame.select(F.xxhash64(*key)).collect()]
        assert hash_keys(table, key).view("int64").tolist() == expected, key


@pytest.mark.core
@pytest.mark.parametrize(
    ("type_", "values", "total"),
    [
        (pa.int64(), [2**62, 2**62 - 1], 2**63 - 1),
        (pa.int64(), [2**62, 2**62], None),
        (pa.int32(), [2**31 - 1, 1], None),
        (pa.decimal128(38, 2), [Decimal(9 * 10**35), Decimal(9 * 10**35)], None),
        (pa.decimal128(5, 2), [Decimal("500.5"), Decimal("400.25")], Decimal("900.75")),
        (pa.decimal128(5, 2), [Decimal(500), Decimal(500)], None),
    ],
)
def test_sums_are_exact_or_refused(type_: pa.DataType, values: list[Any], total: Any) -> None:
    model = nova.Keyed(key="k", combine={"v": "sum"})
    schema = pa.schema([("k", pa.int64()), ("v", type_), pa.field(DELETED, pa.bool_(), False)])
    deltas = [pa.table({"k": [1], "v": pa.array([v], type_), DELETED: [False]}, schema=schema) for v in values]
    if total is None:
        with pytest.raises(OverflowError):
            arrow_merge.compose_deltas(deltas, model, ["k"])
    else:
        assert arrow_merge.compose_deltas(deltas, model, ["k"])["v"].to_pylist() == [total]
