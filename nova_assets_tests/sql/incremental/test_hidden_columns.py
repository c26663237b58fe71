"""Groups are maintained from accumulators that the channel's files hold in hidden columns. Spark is the judge."""

from __future__ import annotations

import os
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import nova_assets as nova
from nova_assets_tests.effort import examples, long_except
from nova_assets_tests.sql.incremental.forced_strategy import force_strategy
from nova_assets_tests.sql.incremental.spark_recompute import create_views, stored_rows

pytestmark = pytest.mark.spark

ORDERS = nova.Channel(
    "orders", merge=nova.Upsert(key="id"), schema="id int, site string, a int, d decimal(10,2), t string"
)
VALUES = "SUM(a) AS s, AVG(d) AS m, AVG(a) AS mean, MIN(a) AS lo, MAX(t) AS hi, SUM(d) / COUNT(*) AS q"
QUERIES = (
    f"SELECT site, {VALUES} FROM orders GROUP BY site",
    f"SELECT site, {VALUES} FROM orders WHERE a > 1 GROUP BY site",
    f"SELECT site, {VALUES.replace('AVG(a)', 'AVG(2 * a)')} FROM orders GROUP BY site",
)
STEPS = examples(4, 6)
MERGES = {"multiset": nova.Multiset(), "upsert": nova.Upsert(key="site")}
SEED = int(os.environ.get("NOVA_FUZZ_SEED", "27"))


def project_of(query: str, merge: nova.MergeModel, **options: Any) -> nova.Project:
    result = nova.Channel("result", merge=merge, **options)
    keep = nova.incremental("keep", query, produces=nova.delta(result))
    return nova.Project([nova.bind(nova.Workflowette("keep", [keep]))], channels=[ORDERS])


class World:
    """A store whose result is compared with Spark's own."""

    def __init__(self, folder: Path, spark: Any, merge: nova.MergeModel, rng: random.Random) -> None:
        self.folder, self.spark, self.merge, self.rng = folder, spark, merge, rng
        self.query = QUERIES[0]
        self.rows: dict[int, dict[str, Any]] = {}

    def open(self) -> nova.Store:
        project = project_of(self.query, self.merge)
        store = nova.open(project, f"sqlite:///{self.folder}/catalog.db", self.folder / "warehouse", self.spark)
        store.register(project)
        return store

    def change(self, store: nova.Store, count: int) -> None:
        """Insert, update and delete rows."""
        rng, changed = self.rng, []
        for number in rng.sample(range(60), count):
            if number in self.rows and rng.random() < 0.4:
                changed.append({**self.rows.pop(number), "_deleted": True})
                continue
            self.rows[number] = {
                "id": number,
                "site": rng.choice(["a", "b", "c", "d", None]),
                "a": rng.choice([None, 1, 2, 3, 7, 100]),
                "d": rng.choice([None, Decimal("1.25"), Decimal("3.33"), Decimal("-0.01")]),
                "t": rng.choice([None, "x", "yy", "zzz"]),
            }
            if isinstance(self.merge, nova.Upsert) and self.rows[number]["site"] is None:
                self.rows[number]["site"] = "e"  # a key is never null
            changed.append({**self.rows[number], "_deleted": False})
        store.insert("orders", changed)

    def run(self, store: nova.Store) -> dict[str, Any]:
        """Run the binding, compare the result with Spark's, and return what the task reported."""
        store.run("keep")
        create_views(self.spark, store, ["orders"])
        expected = self.spark.sql(self.query)
        found = stored_rows(store, "result", expected.columns)
        assert sorted(map(str, found)) == sorted(str(tuple(row)) for row in expected.collect()), self.query
        facts: dict[str, Any] = store.timeline("result")[-1].details["tasks"][0]["facts"]
        return facts


@pytest.fixture(params=MERGES)
def world(request: pytest.FixtureRequest, tmp_path: Path, spark: Any) -> World:
    return World(tmp_path, spark, MERGES[request.param], random.Random(SEED))


def stored_names(store: nova.Store) -> set[str]:
    """Columns of the newest file of the result."""
    block = store.timeline("result")[-1].blocks[-1]
    return set(pq.read_schema(Path(store.engine.warehouse.address) / block.manifest.files[0].path).names)


def test_nobody_sees_hidden_columns(world: World) -> None:
    with world.open() as store:
        world.change(store, 40)
        world.run(store)
        world.change(store, 5)
        world.run(store)
        assert any(name.startswith("_nova_hidden_") for name in stored_names(store))
        columns = ["site", "s", "m", "mean", "lo", "hi", "q"]
        assert store.read("result").to_arrow().column_names == columns
        schema = store.catalog.definitions.channel("result").schema
        assert schema is not None and list(schema.of_files.names) == columns
        changes = store.read("result", since=1).to_arrow()
        assert set(changes.column_names) == {*columns, "_deleted"}
        hidden = stored_names(store)
        store.compact("result")
        assert stored_names(store) == hidden - {"_deleted"}, "a base of the same rows"
        world.change(store, 5)
        assert world.run(store)["result"]["hidden"]["is_complete"]


@pytest.mark.core
def test_a_row_of_a_user_has_no_hidden_columns(world: World) -> None:
    with world.open() as store:
        with pytest.raises(nova.SchemaMismatch, match="'_nova_hidden_x' has a reserved name"):
            store.insert("orders", [{"id": 1, "site": "a", "a": 1, "d": None, "t": "x", "_nova_hidden_x": 1}])
        assert store.catalog.definitions.channel("orders").head == 0


@pytest.mark.long
@pytest.mark.parametrize("number", range(2 if os.environ.get("NOVA_FUZZ_STEPS") else 1))
def test_the_result_is_right_whatever_happens_to_the_stored_rows(world: World, number: int) -> None:
    rng = world.rng = random.Random(SEED * 1009 + number)
    store = world.open()
    try:
        world.change(store, 40)
        world.run(store)
        for _ in range(STEPS):
            event = rng.choice(["change", "change", "change", "compact", "query", "insert", "restore", "backfill"])
            if event == "compact":
                store.compact("result")
            elif event == "query":
                store.close()
                world.query = rng.choice(QUERIES)
                store = world.open()
            elif event == "insert":
                site, nothing = rng.choice("abz"), {"s": None, "m": None, "lo": None, "hi": None, "q": None}
                store.insert("result", [{"site": site, **nothing, "mean": 5.0}])
            elif event == "restore" and store.catalog.definitions.channel("result").head > 2:
                store.restore("result", at=store.catalog.definitions.channel("result").head - 1)
            world.change(store, rng.choice([1, 5, 20]))
            world.run(store)
    finally:
        store.close()


@pytest.mark.parametrize("is_counted", [True, False])
def test_a_published_result_has_no_hidden_columns(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, is_counted: bool
) -> None:
    values = "COUNT(*) AS n, SUM(a) AS s" if is_counted else "SUM(a) AS s"
    query = f"SELECT site, {values} FROM orders GROUP BY site"
    monkeypatch.chdir(tmp_path)
    project = project_of(query, nova.Upsert(key="site"), publish=nova.hive("shown"))
    rows = [{"id": n, "site": "ab"[n % 2], "a": n if n < 4 else None, "d": None, "t": None} for n in range(8)]
    with nova.open(project, f"sqlite:///{tmp_path}/catalog.db", tmp_path / "warehouse", spark) as store:
        store.register(project)
        for changed in (rows, [{**rows[0], "a": 9}], [{**r, "a": None} for r in rows[1::2]], [{**rows[2], "a": 7}]):
            store.insert("orders", changed)
            store.run("keep")
            assert not any(name.startswith("_nova_hidden_") for name in stored_names(store))
        found = {r["site"]: r["s"] for r in store.read("result").to_arrow().to_pylist()}
        assert found == {"a": 16, "b": None}
        store.publish("result")
        columns = {"site", "n", "s"} if is_counted else {"site", "s"}
        assert set(spark.read.parquet(str(tmp_path / "shown")).columns) == columns


@pytest.mark.long
@pytest.mark.parametrize("before", long_except(["deltas", "compacted base", "base"], "deltas"))
def test_a_result_that_is_published_later_loses_its_hidden_columns(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    monkeypatch.chdir(tmp_path)
    query, key = "SELECT site, AVG(a) AS mean FROM orders GROUP BY site", nova.Upsert(key="site")
    where = f"sqlite:///{tmp_path}/catalog.db", tmp_path / "warehouse", spark
    rows = [{"id": n, "site": "ab"[n % 2], "a": n, "d": None, "t": None} for n in range(8)]
    with nova.open(project_of(query, key), *where) as store:
        store.register(store.project)
        for changed in (rows, [{**rows[0], "a": 10}]):
            store.insert("orders", changed)
            store.run("keep")
        if before == "compacted base":
            store.compact("result")
        elif before == "base":
            store.insert("orders", [{**rows[0], "id": 8, "site": "c"}])
            with monkeypatch.context() as patched:
                force_strategy(patched, "replacement")
                store.run("keep")
            assert store.timeline("result")[-1].blocks[-1].kind == "base"
        assert any(name.startswith("_nova_hidden_") for name in stored_names(store))
    tables = [nova.hive("shown"), nova.iceberg("lake.shown")]
    project = project_of(query, key, publish=tables)
    with nova.open(project, *where) as store:
        store.register(project, replace=True)
        for a in (10, 4):
            store.insert("orders", [{**rows[0], "a": a}])
            store.run("keep")
            store.publish("result")
            shown = spark.read.parquet(str(tmp_path / "shown"))
            assert shown.columns == ["site", "mean"]
            found = {r["site"]: r["mean"] for r in shown.collect() if r["site"] != "c"}
            assert found == {"a": (a + 2 + 4 + 6) / 4, "b": 4.0}
