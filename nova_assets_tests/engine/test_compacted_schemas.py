"""R18 under compaction (R9, R14): a compacted block keeps the schema of its number, so no answer changes.

The judge is the same channel in a second deployment, which is never compacted.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import nova_assets as nova
from nova_assets.settings import load_settings
from nova_assets.store.store import Store

pytestmark = pytest.mark.slow

STEPS = int(os.environ.get("NOVA_FUZZ_STEPS", "20"))
TYPES = {"int": pa.int32(), "bigint": pa.int64(), "string": pa.string()}


def opened(root: Path, strategy: str, spark: Any) -> Store:
    root.mkdir()
    settings = load_settings(start_folder=root, catalog=f"sqlite:///{root}/c.db", warehouse=str(root / "wh"))
    return nova.open(spark=spark, settings=replace(settings, strategy=strategy))


def answers(store: Store, at: int | None = None, since: int | None = None) -> list[str]:
    table = store.read("c", at=at, since=since).to_arrow()
    return [str(table.schema), *sorted(map(str, table.to_pylist()))]


def test_the_columns_of_a_number_outlive_compaction(tmp_path: Path) -> None:
    store = nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh")
    store.register(nova.Channel("c", nova.Upsert(key="id"), "id int, v int", retain="30d"))
    store.insert("c", [{"id": 1, "v": 10}])
    store.insert("c", [{"id": 2, "v": 20}])
    store.register(nova.Channel("c", nova.Upsert(key="id"), "id int", retain="30d"), replace=True)
    assert store.compact("c") is not None
    store.insert("c", [{"id": 3}])
    assert [r["v"] for r in store.read("c", at=2).to_arrow().to_pylist()] == [10, 20]
    assert store.read("c").to_arrow().to_pylist() == [{"id": 1}, {"id": 2}, {"id": 3}]


def test_a_partition_keeps_its_types_when_another_one_widens_the_channel(tmp_path: Path) -> None:
    store = nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh")
    parts = nova.dynamic("p")
    store.register(
        nova.Channel("c", nova.Upsert(key=["p", "id"]), "p string, id int, v int", parts, on_schema_change="evolve")
    )
    store.insert("c", [{"p": "a", "id": 1, "v": 1}])
    store.insert("c", [{"p": "a", "id": 2, "v": 2}])
    store.insert("c", pa.table({"p": ["b"], "id": pa.array([1], pa.int32()), "v": pa.array([2**40], pa.int64())}))
    assert store.compact("c", partitions=["p=a"]) is not None
    table = store.read("c", at=2).to_arrow()
    assert str(table.schema.field("v").type) == "int32" and sorted(table["v"].to_pylist()) == [1, 2]
    assert sorted(store.read("c").to_arrow()["v"].to_pylist()) == [1, 2, 2**40]


class History:
    """Random changes of one channel, done alike to two deployments.

    Columns have a first name each, by which the model remembers what they are called and of which type now.
    """

    def __init__(self, random_: random.Random, partitioned: bool, merge: str) -> None:
        self.random = random_
        self.partitioned = partitioned
        self.merge = merge
        self.columns: dict[str, str] = {"v": "int", "w": "int"}
        self.names = 0

    def channel(self, renamed: dict[str, str] | None = None) -> nova.Channel:
        key = ["p", "k"] if self.partitioned else ["k"]
        merge = {"append": nova.Append(), "upsert": nova.Upsert(key=key), "chain": nova.Keyed(key=key, combine={})}
        ddl = ", ".join(["p string", "k int", *(f"{n} {t}" for n, t in self.columns.items())])
        parts = nova.dynamic("p") if self.partitioned else ()
        return nova.Channel("c", merge[self.merge], ddl, parts, "evolve", renamed=renamed, retain="30d")

    def redeclared(self) -> nova.Channel:
        name = self.random.choice(list(self.columns)) if self.columns else None
        self.names += 1
        what = self.random.choice(["drop", "add", "rename", "widen", "again"])
        if what == "add" or name is None or (what == "drop" and len(self.columns) == 1):
            self.columns[f"n{self.names}"] = self.random.choice(["int", "string"])
        elif what == "drop":
            del self.columns[name]
        elif what == "again":  # then there is another column of a name that was dropped
            if "v" not in self.columns:
                self.columns["v"] = "int"
            elif len(self.columns) > 1:
                del self.columns["v"]
        elif what == "rename":
            new = f"r{self.names}"
            self.columns = {new if n == name else n: t for n, t in self.columns.items()}
            return self.channel({new: name})
        else:
            self.columns[name] = "bigint" if self.columns[name] == "int" else self.columns[name]
        return self.channel()

    def rows(self) -> pa.Table:
        count = self.random.randint(1, 4)
        keys = self.random.sample(range(8), count)
        part = self.random.choice("ab")
        if self.random.random() < 0.15 and self.columns:  # the data widens a column
            name = self.random.choice(list(self.columns))
            self.columns[name] = "bigint" if self.columns[name] == "int" else self.columns[name]
        values = {n: [self._value(t) for _ in keys] for n, t in self.columns.items()}
        columns = {n: pa.array(v, TYPES[self.columns[n]]) for n, v in values.items()}
        return pa.table({"p": [part] * count, "k": pa.array(keys, pa.int32()), **columns})

    def _value(self, type_: str) -> object:
        if self.random.random() < 0.1:
            return None
        number = self.random.randrange(100) + (2**40 if type_ == "bigint" else 0)
        return str(number) if type_ == "string" else number


CASES = [("auto", merge, parted) for merge in ("append", "upsert", "chain") for parted in (False, True)]
BY_SPARK = [("spark", "upsert", True)] if "NOVA_FUZZ_STEPS" not in os.environ else [("spark", *c[1:]) for c in CASES]


@pytest.mark.parametrize(
    ("strategy", "merge", "partitioned"), [*CASES, *(pytest.param(*c, marks=pytest.mark.spark) for c in BY_SPARK)]
)
def test_no_answer_changes_by_compaction(
    strategy: str, merge: str, partitioned: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    spark = request.getfixturevalue("spark") if strategy == "spark" else None
    steps = STEPS if strategy == "auto" else STEPS // 4
    chance = random.Random(f"{strategy} {merge} {partitioned} {os.environ.get('NOVA_FUZZ_SEED', 0)}")
    history = History(chance, partitioned, merge)
    with opened(tmp_path / "a", strategy, spark) as store, opened(tmp_path / "b", "auto", None) as judge:
        for each in (store, judge):
            each.register(history.channel())
        for step in range(steps):
            what = chance.choice(["insert", "insert", "register", "compact", "chain"])
            if what == "insert":
                rows = history.rows()
                for each in (store, judge):
                    each.insert("c", rows)
            elif what == "register":
                channel = history.redeclared()
                for each in (store, judge):
                    each.register(channel, replace=True)
            else:
                partitions = ["p=" + chance.choice("ab")] if partitioned and chance.random() < 0.5 else None
                store.compact("c", chained=what == "chain", partitions=partitions)
            head = store.catalog.definitions.channel("c").head
            for at in {chance.randint(0, head), head} if what in ("compact", "chain") else {head}:
                assert answers(store, at=at) == answers(judge, at=at), f"step {step}: at={at} after {what}"
                assert answers(store, since=at) == answers(judge, since=at), f"step {step}: since={at} after {what}"
        for at in range(head + 1):
            assert answers(store, at=at) == answers(judge, at=at), f"at={at}"


def test_columns_of_the_merge_model_keep_their_names_while_rows_are_read_by_it(tmp_path: Path) -> None:
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh") as store:
        store.register(nova.Channel("c", nova.Keyed(key="id", combine={"v": "sum"}), "id int, v int, w int"))
        store.insert("c", [{"id": 1, "v": 1, "w": 0}])
        store.insert("c", [{"id": 1, "v": 2, "w": 1}])
        renamed = nova.Channel(
            "c", nova.Keyed(key="id", combine={"x": "sum"}), "id int, x int, w int", renamed={"x": "v"}
        )
        for changed in (renamed, nova.Channel("c", nova.Upsert(key="id"), "id int, w int")):
            with pytest.raises(
                nova.DefinitionError, match="column v takes part in the merge model of the existing data"
            ):
                store.register(changed, replace=True)
        assert store.read("c").to_arrow().to_pylist() == [{"id": 1, "v": 3, "w": 1}]

        other = nova.Channel("c", nova.Upsert(key="id"), "id int, v int, w int")
        store.register(other, replace=True)
        store.insert("c", [{"id": 1, "v": 9, "w": 2}], kind="base")
        store.register(nova.Channel("c", nova.Upsert(key="id"), "id int, x int", renamed={"x": "v"}), replace=True)
        assert store.read("c").to_arrow().to_pylist() == [{"id": 1, "x": 9}]
        assert store.read("c", at=2).to_arrow().to_pylist() == [{"id": 1, "v": 3, "w": 1}]
