"""The laws of R10 and R11 on real Spark, for every merge model, against the naive model of the random histories.

Many random cases share one channel, told apart by a part of the key, so that each read judges all of them at once.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import nova_assets as nova
from nova_assets.engine.rows.spark_versions import frame_from_arrow
from nova_assets.store.store import Store
from nova_assets_tests.execution.test_histories import MODELS, apply, naive
from nova_assets_tests.stub_merge import Row

pytestmark = pytest.mark.spark

CASES, KEYS, VERSIONS = 60, 4, 5
DDL = "k bigint, v bigint"


def spark_merge(base: Any, delta: Any) -> Any:
    kept = base.join(delta.select("k"), "k", "left_anti")
    return kept.unionByName(delta.filter("v >= 0"))


def spark_chain(first: Any, then: Any) -> Any:
    return first.join(then.select("k"), "k", "left_anti").unionByName(then)


def spark_diff(old: Any, new: Any) -> Any:
    gone = old.join(new.select("k"), "k", "left_anti").withColumn("v", F.lit(-1).cast("bigint"))
    return gone.unionByName(new.exceptAll(old))


CUSTOM = nova.Custom(merge=spark_merge, chain=spark_chain, diff=spark_diff)
SPARK_MODELS = {**{name: MODELS[name] for name in MODELS if name != "absent"}, "custom": CUSTOM}
"""The models of the random histories, with functions over frames in place of those over lists."""


def random_delta(model: str, rng: random.Random) -> list[Row]:
    rows: list[Row] = []
    for case in range(CASES):
        for key in rng.sample(range(KEYS), rng.randint(0, 2)):
            row = {"k": case * 100 + key, "v": rng.randint(0, 9)}
            if model == "append":
                rows += [row] * rng.randint(1, 2)
            elif model == "custom":
                rows.append({**row, "v": rng.choice([-1, row["v"]])})
            else:
                shape = rng.choice(["live", "live", "gone", "both"])
                rows += [{**row, "_deleted": True}] if shape in ("gone", "both") else []
                rows += [{**row, "_deleted": False}] if shape in ("live", "both") else []
    rng.shuffle(rows)
    return rows


def rows_of(table: pa.Table) -> list[Row]:
    rows: list[Row] = table.to_pylist()
    return rows


@pytest.fixture
def store(tmp_path: Path, spark: Any) -> Any:
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "wh"), spark=spark) as opened:
        yield opened


@pytest.mark.parametrize("by", ["arrow", "spark"])
@pytest.mark.parametrize("model", sorted(SPARK_MODELS))
def test_r10_every_version_and_every_change_between_two(model: str, by: str, store: Store, spark: Any) -> None:
    rng = random.Random(f"{model}-{by}")
    store.register(nova.Channel("table", merge=SPARK_MODELS[model], schema=DDL))

    def given(rows: list[Row]) -> Any:
        table = pa.Table.from_pylist(rows)
        return table if by == "arrow" else frame_from_arrow(spark, table)

    states: list[Any] = [Counter() if model == "append" else {}]
    for version in range(1, VERSIONS + 1):
        if version == 4 and model != "append":
            base = [
                {"k": c * 100 + k, "v": rng.randint(0, 9)} for c in range(CASES) for k in rng.sample(range(KEYS), 2)
            ]
            store.insert("table", given(base), kind="base")
            states.append(naive(model, base))
            continue
        rows = random_delta(model, rng)
        store.insert("table", given(rows))
        states.append(apply(model, states[-1], rows))
    for at, state in enumerate(states):
        snapshot = rows_of(store.read("table", at=at).to_arrow())
        assert naive(model, snapshot) == state, f"snapshot at {at}"
        assert all("_deleted" not in r for r in snapshot)
    for i, j in [(0, 3), (1, 2), (1, 3), (2, 5), (3, 4), (4, 5), (5, 5)]:
        change = rows_of(store.read("table", since=i, at=j).to_arrow())
        assert apply(model, states[i], change) == states[j], f"changes {i} to {j}"
        if model in ("upsert", "ordered", "keyed"):
            assert all(isinstance(r["_deleted"], bool) for r in change)
            assert max(Counter((r["k"], r["_deleted"]) for r in change).values(), default=0) <= 1, "R11"


def test_r11_combined_columns_pass_over_nulls_and_others_take_the_later_row(store: Store) -> None:
    combine = {"n": "sum", "low": "min", "high": "max", "every": "bool_and", "some": "bool_or"}
    ddl = "k string, n decimal(10,2), low int, high timestamp, every boolean, some boolean, label string"
    store.register(nova.Channel("t", merge=nova.Keyed(key="k", combine=combine), schema=ddl))
    first = {"k": "a", "n": "1.50", "low": 5, "high": "2024-01-01", "every": True, "some": False, "label": "old"}
    later = {"k": "a", "n": "2.25", "low": None, "high": "2023-01-01", "every": False, "some": None, "label": None}
    store.insert("t", [first])
    store.insert("t", [later])
    (row,) = rows_of(store.read("t").to_arrow())
    shown = {**row, "n": str(row["n"]), "high": row["high"].isoformat()}
    assert shown == {
        "k": "a",
        "n": "3.75",
        "low": 5,
        "high": "2024-01-01T00:00:00+00:00",
        "every": False,
        "some": False,
        "label": None,
    }


def test_a_bag_is_compared_as_a_bag_whatever_its_columns_are(store: Store) -> None:
    ddl = "m map<string,int>, a array<struct<x:int,y:string>>, `Price/Earnings` double, b binary, `52 week low` date"
    store.register(nova.Channel("t", schema=ddl))
    row = {"m": {"p": 1, "q": 2}, "a": [{"x": 1, "y": None}], "b": b"\x00\xff", "52 week low": "2024-01-02"}
    row["Price/Earnings"] = float("nan")
    other = {**row, "m": None}
    store.insert("t", [row, row])
    store.insert("t", [row, row, row, other], kind="base")
    change = store.read("t", since=1).to_arrow()
    assert change.num_rows == 2 and sorted(r["m"] is None for r in rows_of(change)) == [False, True]
    assert store.read("t").to_arrow().column("b").to_pylist()[0] == b"\x00\xff"
    store.insert("t", [row], kind="base")
    with pytest.raises(nova.UnrepresentableChange, match="dropped 3 of its rows") as met:
        store.read("t", since=2).to_arrow()
    assert met.value.dropped == 3


def test_small_deltas_are_broadcast_and_the_base_is_not_shuffled(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    store.register(nova.Channel("t", merge=nova.Upsert(key="k"), schema=DDL))
    store.insert("t", [{"k": n, "v": n} for n in range(1000)], kind="base")
    store.insert("t", [{"k": 1, "v": 0}])
    store.read("t").to_spark().explain()
    plan = capsys.readouterr().out
    assert "BroadcastHashJoin" in plan and "LeftAnti" in plan and "SortMergeJoin" not in plan and "Window" not in plan


def test_an_evolved_channel_reads_its_old_blocks(store: Store) -> None:
    store.register(nova.Channel("t", schema="k int", on_schema_change="evolve"))
    store.insert("t", pa.table({"k": pa.array([1], pa.int32())}))
    store.insert("t", pa.table({"k": pa.array([2**40], pa.int64()), "extra": ["x"]}))
    assert sorted(map(str, rows_of(store.read("t").to_arrow()))) == [
        "{'k': 1, 'extra': None}",
        "{'k': 1099511627776, 'extra': 'x'}",
    ]
    assert str(store.catalog.definitions.channel("t").schema) == "k bigint, extra string"
    assert store.read("t", at=1).to_arrow().column_names == ["k"]


def test_r4_several_outputs_come_from_one_evaluation(tmp_path: Path, spark: Any) -> None:
    source, left, right = (nova.Channel(n) for n in ("source", "left", "right"))

    @nova.task(consumes=nova.new(source), produces=[nova.delta(left), nova.delta(right)])
    def draw(source: Any) -> dict[str, Any]:
        draw_one = F.udf(lambda key: str(random.random()))  # by value: workers need not import this module
        drawn = source.withColumn("u", draw_one("k"))
        return {"left": drawn.filter("k >= 0"), "right": drawn.select("u", "k").filter("k > 10")}

    project = nova.Project([nova.bind(nova.Workflowette("w", [draw]))])
    with nova.open(project, f"sqlite:///{tmp_path}/c.db", tmp_path / "wh", spark) as store:
        store.insert(source, [{"k": n} for n in range(50)])
        store.run("w")
        a, b = ({r["k"]: r["u"] for r in rows_of(store.read(c).to_arrow())} for c in ("left", "right"))
    assert len(a) == 50 and b == {k: u for k, u in a.items() if k > 10}


@pytest.mark.long
def test_r12_the_shipped_checks_tell_right_from_wrong(spark: Any) -> None:
    from nova_assets.testing import check_incremental, check_laws

    check_laws(nova.Upsert(key="k"), [[{"k": 1, "v": 1}], [{"k": 1, "v": 2}], [{"k": 2, "v": 3}]], DDL, spark)
    source, counts = nova.Channel("s", schema=DDL), nova.Channel("counts", merge=nova.Upsert(key="k"))

    def count(s: Any) -> Any:
        return s.groupBy("k").agg(F.count("*").alias("n"))

    batches = {"s": [[{"k": 1, "v": 1}], [{"k": 1, "v": 2}]]}
    wrong = nova.task(consumes=nova.new(source), produces=nova.delta(counts))(count)
    with pytest.raises(AssertionError, match="R12"):
        check_incremental(nova.bind(nova.Workflowette("w", [wrong])), batches, spark)
    added = nova.Channel("counts", merge=nova.Keyed(key="k", combine={"n": "sum"}))
    right = nova.task(consumes=nova.new(source), produces=nova.delta(added))(count)
    check_incremental(nova.bind(nova.Workflowette("w", [right])), batches, spark)


def test_r16_no_folder_is_listed_to_answer_a_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:

    store.register(nova.Channel("t", merge=nova.Upsert(key="k"), schema=DDL))
    for n in range(3):
        store.insert("t", [{"k": n, "v": n}])
    listed: list[Any] = []
    for name in ("listdir", "scandir"):
        monkeypatch.setattr(os, name, lambda *a, _n=name: listed.append((_n, a)) or [])
    frame = store.read("t").to_spark()
    assert listed == []
    assert all(path.endswith(".parquet") for path in frame.inputFiles()) and len(frame.inputFiles()) == 3
