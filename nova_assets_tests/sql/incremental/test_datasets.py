"""Datasets that are maintained from changes: ticks, backfills, chains, refusals. Spark's recompute decides."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.errors import DefinitionError, SqlError
from nova_assets_tests.sql.incremental.spark_recompute import create_views, stored_rows

ORDERS = nova.Channel("orders", merge=nova.Upsert(key="id"), schema="id int, user int, amount int")
VISITS = nova.Channel(
    "visits", schema="day date, user int", partitions=[nova.daily("day", start="2024-01-01")], merge=nova.Append()
)
WIDE = nova.Channel(
    "wide", merge=nova.Upsert(key="id"), schema="id int, w decimal(38,18), x decimal(20,8), y decimal(27,10)"
)
CHANNELS = [ORDERS, VISITS, WIDE]
TOTALS = "SELECT user, COUNT(*) AS n, SUM(amount) AS total FROM orders GROUP BY user"
LARGE = "INSERT OVERWRITE TABLE large SELECT user, total FROM totals WHERE total > 5"
ACTIVE = """-- Users and their visits.
-- owner: web@example.com
SELECT t.user, t.total, COUNT(v.day) AS visits
FROM totals t LEFT JOIN visits v ON v.user = t.user
GROUP BY t.user, t.total"""


def folder_of(root: Path, **texts: str) -> Path:
    folder = root / "sql"
    folder.mkdir(exist_ok=True)
    for name, sql in texts.items():
        (folder / f"{name}.sql").write_text(sql)
    return folder


class Deployment:
    """A store with SQL datasets."""

    def __init__(self, spark: Any, root: Path, refresh: Any, replace: bool, **texts: str) -> None:
        self.spark, self.texts = spark, texts
        self.datasets = nova.datasets(folder_of(root, **texts), channels=CHANNELS, refresh=refresh)
        self.project = nova.Project(bindings=self.datasets, channels=CHANNELS)
        self.store = nova.open(self.project, f"sqlite:///{root}/catalog.db", root / "warehouse", spark)
        self.store.register(self.project, replace=replace)

    def tick(self) -> list[str]:
        """Tick until nothing is to do. Returns the datasets that were computed."""
        computed: list[str] = []
        for _ in range(10):
            tick = self.store.next_tick()
            if not tick.run:
                return computed
            outcomes = self.store.tick(tick)
            assert all(o.error is None for o in outcomes), outcomes
            computed += [o.dataset for o in outcomes]
        raise AssertionError(f"ticks do not come to an end: {computed}")

    def check(self) -> None:
        """Compare every dataset with its query over the inputs as they are."""
        names = (*(c.name for c in CHANNELS), *self.texts)
        create_views(self.spark, self.store, [n for n in names if any(n in sql for sql in self.texts.values())])
        for name, sql in self.texts.items():
            recomputed = self.spark.sql(sql.partition("TABLE large ")[2] or sql)
            expected = sorted(str(tuple(row.values())) for row in recomputed.toArrow().to_pylist())
            assert self.store.read(name).to_arrow().column_names == recomputed.columns
            assert sorted(map(str, stored_rows(self.store, name))) == expected, name

    def head(self, name: str) -> int:
        return next(c.head for c in self.store.channels() if c.channel.name == name)


@pytest.fixture
def deploy(spark: Any, tmp_path: Path) -> Iterator[Any]:
    opened: list[Deployment] = []

    def make(refresh: Any, replace: bool = False, **texts: str) -> Deployment:
        opened.append(Deployment(spark, tmp_path, refresh, replace, **texts))
        return opened[-1]

    yield make
    for one in opened:
        one.store.close()


def order(id: int, user: int | None, amount: int | None = 1, *, deleted: bool = False) -> dict[str, Any]:
    return {"id": id, "user": user, "amount": amount, "_deleted": deleted}


@pytest.mark.spark
def test_a_chain_of_datasets_is_maintained_from_end_to_end(deploy: Any) -> None:
    one = deploy("incremental", totals=TOTALS, large=LARGE, active=ACTIVE)
    one.store.insert("orders", [order(n, n % 3 or None, n) for n in range(9)])
    one.store.insert("visits", [{"day": dt.date(2024, 1, d), "user": d % 3} for d in range(1, 6)])
    assert one.tick() == ["totals", "active", "large"]
    one.check()
    one.store.insert("orders", [order(0, 1, 50), order(5, 2, deleted=True)])
    assert one.tick() == ["totals", "active", "large"]
    one.check()
    changes = one.store.read("totals", since=1).to_arrow().to_pylist()
    assert {r["user"] for r in changes} <= {None, 1, 2}, "the unchanged group is not written"
    one.store.insert("visits", [{"day": dt.date(2024, 1, 9), "user": 1}])
    assert one.tick() == ["active"]
    one.check()


def maintenances(one: Deployment, name: str) -> list[tuple[str, str]]:
    """How each commit of a dataset came about: the strategy, and the kind of its block."""
    commits = [i for i in one.store.timeline(name) if i.action == "commit"]
    return [(i.details["tasks"][0]["facts"]["maintenance"]["strategy"], i.blocks[0].kind) for i in commits]


@pytest.mark.spark
def test_a_change_of_most_rows_replaces_the_result_and_its_readers_get_the_difference(deploy: Any) -> None:
    one = deploy({"totals": "auto", "large": "incremental"}, totals=TOTALS, large=LARGE)
    one.store.insert("orders", [order(n, n % 7, n) for n in range(40)])
    one.tick()
    one.store.insert("orders", one.spark.range(400_000).selectExpr("int(id)", "int(id % 7) user", "int(id % 3) amount"))
    assert one.tick() == ["totals", "large"]
    one.check()
    assert maintenances(one, "totals")[-1] == ("replacement", "base")
    assert maintenances(one, "large")[-1][1] == "delta"
    one.store.insert("orders", [order(1, 2, 1000)])
    one.tick()
    one.check()


@pytest.mark.spark
@pytest.mark.long
def test_a_replacement_does_not_remove_what_came_from_dropped_partitions(deploy: Any) -> None:
    one = deploy("auto", per_user="SELECT user, COUNT(*) AS n FROM visits GROUP BY user")
    one.store.insert("visits", [{"day": dt.date(2024, 1, 1), "user": 1}])
    one.tick()
    one.store.drop("visits", "day=2024-01-01")
    later = one.spark.range(400_000).selectExpr("date'2024-01-02' day", "int(2 + id % 5) user")
    one.store.insert("visits", later)
    one.tick()
    assert {"user": 1, "n": 1} in one.store.read("per_user").to_arrow().to_pylist()
    assert maintenances(one, "per_user")[-1] == ("changes", "delta")


@pytest.mark.spark
def test_a_change_of_nothing_ends_the_tick(deploy: Any) -> None:
    one = deploy("incremental", totals=TOTALS)
    one.store.insert("orders", [order(1, 1), order(2, 1)])
    assert one.tick() == ["totals"]
    one.store.insert("orders", [order(1, 1)])
    assert one.tick() == ["totals"], "it reads the change"
    assert one.head("totals") == 1, "and takes no number"
    assert one.tick() == []


@pytest.mark.spark
def test_an_empty_result_exists(deploy: Any) -> None:
    one = deploy("auto", totals=TOTALS, large=LARGE)
    one.store.insert("orders", [order(1, 1, 2)])
    assert one.tick() == ["totals", "large"]
    assert one.tick() == []
    assert one.store.read("large").to_arrow().num_rows == 0
    one.store.insert("orders", [order(2, 1, 20)])
    assert one.tick() == ["totals", "large"]
    one.check()


@pytest.mark.spark
def test_a_backfill_computes_the_whole_query_and_ends(deploy: Any) -> None:
    one = deploy("incremental", totals=TOTALS)
    one.store.insert("orders", [order(1, 1), order(2, 2)])
    one.tick()
    backfill = one.store.backfill("totals")
    assert one.tick() == ["totals"]
    assert one.head("totals") == 1, "nothing differs"
    assert one.store.backfills()[0].partition_counts == {"made": 1}, backfill


@pytest.mark.spark
def test_rows_that_another_writer_changes_are_computed_again(deploy: Any) -> None:
    one = deploy("incremental", totals=TOTALS)
    one.store.insert("orders", [order(n, n % 2, n) for n in range(4)])
    one.tick()
    one.store.insert("totals", [{"user": 1, "n": 2, "total": 4, "_deleted": True}, {"user": 9, "n": 9, "total": 9}])
    assert one.tick() == ["totals"]
    one.check()
    one.store.insert("orders", [order(7, 7, 7)])
    one.tick()
    one.store.restore("totals", 1)
    assert one.tick() == ["totals"], "the cursor is after the restored version"
    one.check()
    assert one.tick() == []


@pytest.mark.spark
def test_a_changed_query_is_computed_again(deploy: Any) -> None:
    one = deploy("incremental", totals=TOTALS)
    one.store.insert("orders", [order(n, n % 2, n) for n in range(4)])
    one.tick()
    one.store.close()
    two = deploy("incremental", totals=TOTALS.replace("SUM(amount)", "MAX(amount) * 1L"))
    assert two.tick() == ["totals"]
    two.check()
    assert two.tick() == []


@pytest.mark.spark
def test_a_dataset_that_was_full_becomes_incremental_and_full_again(deploy: Any) -> None:
    full = deploy("full", totals=TOTALS)
    full.store.insert("orders", [order(n, n % 2, n) for n in range(4)])
    full.tick()
    full.store.close()
    with pytest.raises(nova.DefinitionConflict):
        deploy("incremental", totals=TOTALS)
    one = deploy("incremental", replace=True, totals=TOTALS)
    one.store.insert("orders", [order(9, 9, 9)])
    one.tick()
    one.check()
    [block] = one.store.timeline("totals")[-1].blocks
    assert block.kind == "base", "a changed merge model begins with a base (R18)"
    one.store.insert("orders", [order(8, 9, 9)])
    one.tick()
    one.check()
    one.store.close()
    full = deploy("full", replace=True, totals=TOTALS)
    full.store.insert("orders", [order(10, 1, 1)])
    full.tick()
    full.store.close()
    again = deploy("incremental", replace=True, totals=TOTALS)
    again.store.insert("orders", [order(11, 1, 1)])
    again.store.run("totals")
    again.check()


@pytest.mark.spark
def test_full_and_incremental_datasets_read_each_other(deploy: Any) -> None:
    one = deploy({"active": "incremental"}, totals=TOTALS, active=ACTIVE)
    one.store.insert("orders", [order(n, n % 3, n) for n in range(6)])
    one.store.insert("visits", [{"day": dt.date(2024, 1, 2), "user": 1}])
    one.tick()
    one.store.insert("orders", [order(1, 1, 100)])
    one.tick()
    one.check()


REFUSED = [
    ("SELECT id, RAND() AS r FROM orders", "rand"),
    ("SELECT COLLECT_LIST(amount) AS a FROM orders GROUP BY user", "depends on the order of rows"),
    ("SELECT id FROM (SELECT id FROM orders LIMIT 5)", "LIMIT"),
    ("SELECT user FROM NEW(visits)", r"NEW reads a part of the changes itself"),
    ("SELECT id, MAP(id, amount) AS m FROM orders", "column 'm' of the result is a map"),
    ("INSERT INTO TABLE t SELECT id FROM orders", "INSERT INTO adds"),
    (
        "FOR d IN ('2024-01-01') INSERT OVERWRITE t PARTITION (d) SELECT COLLECT_LIST(user) AS users FROM visits v "
        "WHERE v.day = DATE(:d)",
        "depends on the order of rows",
    ),
]


def test_new_rows_of_a_channel_from_which_rows_are_removed_are_refused(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, t="SELECT id FROM NEW(orders)")
    with pytest.raises(SqlError, match=r"would also read the rows that were removed from 'orders'"):
        nova.datasets(folder, channels=CHANNELS)


def test_datasets_that_only_add_rows_stay_as_they_are(tmp_path: Path) -> None:
    folder = folder_of(
        tmp_path,
        clean="INSERT INTO clean SELECT user FROM NEW(visits)",
        tagged="INSERT INTO tagged SELECT user FROM NEW(clean)",
        sizes="SELECT user, COUNT(*) AS n FROM clean GROUP BY user",
    )
    made = nova.datasets(folder, channels=CHANNELS, refresh="auto")
    assert [made.channel(n).merge.kind for n in ("clean", "tagged", "sizes")] == ["append", "append", "multiset"]


def test_a_dataset_of_which_new_rows_are_read_is_not_maintained(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, t="INSERT INTO log SELECT user FROM NEW(totals)", totals=TOTALS)
    with pytest.raises(SqlError, match=r"dataset 'log' reads NEW\(totals\), and rows of 'totals' can be removed"):
        nova.datasets(folder, channels=CHANNELS, refresh={"totals": "incremental"})
    assert nova.datasets(folder, channels=CHANNELS, refresh="auto").channel("totals").merge == nova.Append()


@pytest.mark.parametrize(("sql", "reason"), REFUSED)
def test_what_cannot_be_maintained_is_refused_with_its_place(sql: str, reason: str, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, t=sql)
    with pytest.raises(SqlError, match=f"(?i){reason}") as caught:
        nova.datasets(folder, channels=CHANNELS, refresh="incremental")
    assert str(folder / "t.sql:1:") in str(caught.value)
    decision = nova.datasets(folder, channels=CHANNELS, refresh="auto").refresh_decisions["t"]
    assert decision.operators is None
    assert decision.reason
    assert nova.datasets(folder, channels=CHANNELS).channel("t").merge == nova.Append()


def test_a_policy_that_is_none(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, totals=TOTALS)
    with pytest.raises(DefinitionError, match="refresh='incremental ' is not a policy"):
        nova.datasets(folder, channels=CHANNELS, refresh="incremental ")  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="no dataset is called 'total'"):
        nova.datasets(folder, channels=CHANNELS, refresh={"total": "auto"})


def test_the_channel_of_a_maintained_dataset_is_a_multiset(tmp_path: Path) -> None:
    made = nova.datasets(folder_of(tmp_path, totals=TOTALS), channels=CHANNELS, refresh="auto")
    assert made.channel("totals").merge == nova.Multiset()
    keyed = nova.Channel("totals", merge=nova.Upsert(key="user"))
    made = nova.datasets(folder_of(tmp_path, totals=TOTALS), channels=[*CHANNELS, keyed], refresh="auto")
    assert made.channel("totals").merge == keyed.merge


@pytest.mark.spark
def test_sums_of_decimals_keep_their_digits(deploy: Any) -> None:
    one = deploy(
        "incremental",
        **{c: f"SELECT COUNT(*) AS n, SUM({c}) AS s, id % 2 AS g FROM wide GROUP BY id % 2" for c in "wxy"},
    )
    for n in range(5):
        rows = [{"id": n, "w": "0.000000000000000004", "x": "0.00000004", "y": "0.0000000004"}]
        one.store.insert("wide", rows)
        one.tick()
    one.check()


@pytest.mark.spark
@pytest.mark.long
def test_rows_that_another_binding_writes_are_computed_again(deploy: Any) -> None:
    one = deploy("incremental", totals=TOTALS)
    one.store.insert("orders", [order(n, 1, n) for n in range(3)])
    one.tick()

    @nova.task(consumes=nova.all(ORDERS), produces=nova.base(one.datasets.channel("totals")))
    def count(orders: Any) -> Any:
        return orders.groupBy("user").agg({"id": "count", "amount": "sum"}).toDF("user", "n", "total")

    one.store.insert("orders", [order(10, 1, 5)])
    other = nova.Project([nova.bind(nova.Workflowette("python", [count]))])
    with nova.open(other, one.store.settings.catalog, one.store.settings.warehouse, one.spark) as store:
        store.register(other)
        store.run("python")
    assert one.tick() == ["totals"]
    one.check()


@pytest.mark.spark
@pytest.mark.long
def test_a_mark_stays_until_the_inputs_are_computed_again(deploy: Any) -> None:
    one = deploy("incremental", totals=TOTALS, large=LARGE)
    one.store.insert("orders", [order(n, 1, 9) for n in range(3)])
    one.tick()
    one.store.insert("totals", [{"user": 9, "n": 99, "total": 99}])
    one.store.backfill("totals")
    one.store.run("large")
    one.tick()
    one.check()
    assert one.tick() == []


@pytest.mark.spark
def test_readers_of_an_empty_dataset_run(deploy: Any) -> None:
    one = deploy("auto", totals=TOTALS + " HAVING COUNT(*) > 5", large=LARGE)
    one.store.insert("orders", [order(1, 1, 2)])
    assert one.tick() == ["totals", "large"]
    assert one.tick() == []
    one.check()


@pytest.mark.spark
@pytest.mark.long
def test_an_input_whose_partitions_were_dropped(deploy: Any) -> None:
    one = deploy("incremental", totals=TOTALS, active=ACTIVE)
    one.store.insert("orders", [order(1, 1, 2)])
    one.store.insert("visits", [{"day": dt.date(2024, 1, 1), "user": 1}])
    one.tick()
    one.store.drop("visits", "day=2024-01-01")
    one.store.insert("orders", [order(2, 2, 2)])
    assert one.tick() == ["totals", "active"]


@pytest.mark.spark
@pytest.mark.long
def test_an_input_with_equal_rows_gets_a_key(spark: Any, tmp_path: Path) -> None:
    bag, sql = nova.Channel("orders", merge=nova.Multiset(), schema="id int, user int, amount int"), TOTALS
    folder = folder_of(tmp_path, totals=sql)

    def opened(channel: nova.Channel) -> Any:
        project = nova.Project(nova.datasets(folder, channels=[channel], refresh="incremental"), channels=[channel])
        store = nova.open(project, f"sqlite:///{tmp_path}/catalog.db", tmp_path / "warehouse", spark)
        store.register(project, replace=True)
        return store

    with opened(bag) as store:
        store.insert("orders", [{"id": 1, "user": 1, "amount": 1}] * 2)
        store.tick()
    with opened(ORDERS) as store:
        store.insert("orders", [{"id": 1, "user": 1, "amount": 1}], kind="base")
        store.tick()
        assert store.read("totals").to_arrow().to_pylist() == [{"user": 1, "n": 1, "total": 1}]
