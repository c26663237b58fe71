"""Results that depend on the order in which rows are read, such as one of several latest rows. All rows of a changed
group are replaced together, so a result is always one that a recompute can give.

DuckDB judges many random histories, in which rows come in another order each time. Spark judges whole executions.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.errors import SqlError
from nova_assets.sql.incremental.maintenance_sql import RESULT, MaintenanceSql
from nova_assets.sql.incremental.result_delta import add_result_by_group
from nova_assets_tests.effort import examples
from nova_assets_tests.sql.incremental.test_equality import Rows, comparable, random_history
from nova_assets_tests.sql.incremental.test_equality_in_duckdb import (
    connect,
    in_duckdb,
    operators_of,
    recompute,
    register_frames,
    with_frames,
    with_values,
)

SEED = int(os.environ.get("NOVA_FUZZ_SEED", "27"))
STEPS = 6
NUMBERED = "SELECT {columns}, ROW_NUMBER() OVER (PARTITION BY g ORDER BY v) AS r FROM a"

WITH_ONE_RESULT = [
    f"SELECT g, v FROM ({NUMBERED.format(columns='g, v')}) AS q WHERE r <= 2",
    f"SELECT g, r, v FROM ({NUMBERED.format(columns='g, v')}) AS q",
    "SELECT g, v, LAG(v) OVER (PARTITION BY g ORDER BY v) AS p FROM a",
    "SELECT g, v FROM a QUALIFY ROW_NUMBER() OVER (PARTITION BY g ORDER BY v DESC) = 1",
    "SELECT g, MAX_BY(v, v) AS m, COUNT(*) AS n FROM a GROUP BY g",
    "SELECT g, COUNT(*) AS n FROM c GROUP BY g HAVING SUM(x) > 2",
    "SELECT q.g, q.v FROM (SELECT a.g, a.v, ROW_NUMBER() OVER (PARTITION BY a.g ORDER BY a.v) AS r "
    "FROM a JOIN d ON a.g = d.g WHERE d.n < 2) AS q WHERE r = 1",
]
"""Queries that depend on the order of rows, and have one result nevertheless."""

ONE_PER_GROUP = [
    f"SELECT g, id, v FROM ({NUMBERED.format(columns='g, id, v')}) AS q WHERE r = 1",
    "SELECT g, MAX_BY(id, -v) AS id, MIN(v) AS v FROM a WHERE v IS NOT NULL GROUP BY g",
]
"""Queries for any of the rows with the least value in each group."""


def history_with_ties(rng: random.Random) -> Iterator[tuple[Rows, Rows]]:
    """The rows of the tables, then the rows and the change of each step. Many rows of a group have equal values."""
    first, _ = next(random_history(rng, 0))
    rows = {**first, "a": [], "d": [{"g": 0, "s": "x", "n": 1}, {"g": 1, "s": "x", "n": 1}]}
    by_id: dict[int, dict[str, Any]] = {}
    for step in range(STEPS):
        changed, changes = (
            rng.sample(range(12), 10 if step == 0 else rng.choice([1, 2, 3])),
            {name: [] for name in rows},
        )
        for id in changed:
            is_removed = by_id.pop(id, None) is not None and rng.random() < 0.5
            row = {"id": id, "g": rng.randrange(2), "v": rng.choice([1, 1, 2, None]), "s": "x"}
            changes["a"].append(row)
            if not is_removed:
                by_id[id] = row
        added = [
            {"g": rng.randrange(2), "v": 1, "x": rng.choice([0.5, 1.5]), "l": None} for _ in range(rng.randrange(2))
        ]
        changes["c"] = added
        rows = {**rows, "a": list(by_id.values()), "c": [*rows["c"], *added]}
        yield rows, changes


class Stored:
    """The stored rows of a result, in DuckDB."""

    def __init__(self, sql: str, rng: random.Random) -> None:
        self.connection, self.rng = connect(), rng
        self.translated, self.operators = in_duckdb(sql), operators_of(sql)
        assert self.operators.unstable is not None

    def compute(self, rows: Rows) -> Counter[Any]:
        return recompute(self.connection, self.translated, self.shuffled(rows))

    def fill(self, rows: Rows) -> None:
        self.compute(rows)
        self.connection.execute(f"CREATE OR REPLACE TABLE stored AS {self.translated}")

    def rows(self) -> Counter[Any]:
        return Counter(comparable(r) for r in self.connection.execute("SELECT * FROM stored").fetchall())

    def maintain(self, before: Rows, after: Rows, changes: Rows) -> None:
        frames = register_frames(self.connection, self.operators, self.shuffled(before), self.shuffled(after), changes)
        maintenance = MaintenanceSql(self.operators, frames)
        if not maintenance.changed.is_changed(self.operators):
            return
        add_result_by_group(maintenance, "stored", {name: name for name in self.operators.columns})
        select = maintenance.with_relations(f"SELECT * FROM {RESULT}")
        delta = self.connection.execute(with_values(with_frames(select), maintenance.values)).fetchall()
        for *row, weight in delta:
            for _ in range(abs(weight)):
                if weight > 0:
                    self.connection.execute(f"INSERT INTO stored VALUES ({', '.join('?' * len(row))})", row)
                else:
                    is_same = " AND ".join(f"{name} IS NOT DISTINCT FROM ?" for name in self.operators.columns)
                    one = f"SELECT rowid FROM stored WHERE {is_same} LIMIT 1"
                    assert self.connection.execute(one, row).fetchall(), f"{row} is removed and not stored"
                    self.connection.execute(f"DELETE FROM stored WHERE rowid IN ({one})", row)

    def shuffled(self, rows: Rows) -> Rows:
        return {name: self.rng.sample(some, len(some)) for name, some in rows.items()}


@pytest.mark.slow
@pytest.mark.parametrize("sql", WITH_ONE_RESULT)
def test_the_result_is_that_of_a_recompute(sql: str) -> None:
    for number in range(examples(4, 60)):
        rng = random.Random(f"{SEED} {number}")
        stored, history = Stored(sql, rng), history_with_ties(rng)
        before, _ = next(history)
        stored.fill(before)
        for after, changes in history:
            stored.maintain(before, after, changes)
            assert stored.rows() == stored.compute(after), f"{sql}\nbefore {before}\nchanged {changes}"
            before = after


@pytest.mark.slow
@pytest.mark.parametrize("sql", ONE_PER_GROUP)
def test_each_group_has_one_of_its_rows(sql: str) -> None:
    for number in range(examples(4, 60)):
        rng = random.Random(f"{SEED} {number}")
        stored, history = Stored(sql, rng), history_with_ties(rng)
        before, _ = next(history)
        stored.fill(before)
        for after, changes in history:
            stored.maintain(before, after, changes)
            check_one_per_group(stored.connection.execute("SELECT * FROM stored").fetchall(), after["a"], sql)
            before = after


def check_one_per_group(found: list[Any], rows: list[dict[str, Any]], sql: str) -> None:
    """Check that each group has one of its rows with the least value. Null is the least, as in Spark."""
    if "IS NOT NULL" in sql:
        rows = [row for row in rows if row["v"] is not None]
    least: dict[Any, tuple[bool, int]] = {}
    for row in rows:
        value = (row["v"] is not None, row["v"] or 0)
        least[row["g"]] = min(least.get(row["g"], value), value)
    assert sorted(map(str, (g for g, _, _ in found))) == sorted(map(str, least)), sql
    by_id = {row["id"]: row for row in rows}
    for g, id, v in found:
        assert (by_id[id]["g"], by_id[id]["v"]) == (g, v), f"{sql}: row {id} is not there any more"
        assert (v is not None, v or 0) == least[g], sql


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        (
            "SELECT id FROM (SELECT id, v, ROW_NUMBER() OVER (PARTITION BY g ORDER BY v) AS r FROM a) WHERE r = 1",
            "group",
        ),
        ("SELECT COUNT(*) AS n FROM (SELECT g, FIRST(v) AS f FROM a GROUP BY g) WHERE f > 1", "a further step"),
        ("SELECT FIRST(v) AS f FROM a", "without the columns of its group"),
        ("SELECT id, NTILE(2) OVER (ORDER BY v) AS n FROM a", "without the columns of its group"),
    ],
)
def test_what_has_no_rule(sql: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "totals.sql").write_text(sql)
    rows = nova.Channel("a", merge=nova.Upsert(key="id"), schema="id int, g int, v int, s string")
    with pytest.raises(SqlError, match=reason) as error:
        nova.datasets(tmp_path, channels=[rows], refresh="incremental")
    assert "^" in str(error.value.snippet)


# whole executions

ROWS = nova.Channel("a", merge=nova.Upsert(key="id"), schema="id int, g int, v int")
LISTS = "SELECT g, COLLECT_LIST(v) AS l, COLLECT_SET(v) AS s, FIRST(v) AS f FROM a GROUP BY g"


@pytest.mark.spark
@pytest.mark.parametrize("merge", [nova.Multiset(), nova.Upsert(key="g")], ids=["multiset", "upsert"])
@pytest.mark.parametrize("number", range(2))
def test_executions_write_the_rows_of_changed_groups(merge: Any, number: int, spark: Any, tmp_path: Path) -> None:
    sql, rng = ONE_PER_GROUP[number], random.Random(SEED + number)
    picked = nova.Channel("picked", merge=merge)
    lists = nova.Channel("lists", merge=merge)
    tasks = {
        "picked": nova.incremental("pick", sql, produces=nova.delta(picked)),
        "lists": nova.incremental("list", LISTS, produces=nova.delta(lists)),
    }
    bindings = [nova.bind(nova.Workflowette(name, [task])) for name, task in tasks.items()]
    with nova.open(
        nova.Project(bindings, channels=[ROWS]), f"sqlite:///{tmp_path}/c.db", tmp_path / "w", spark
    ) as store:
        store.register(store.project)
        rows: dict[int, dict[str, Any]] = {}
        for step in range(examples(4, 12)):
            changed = []
            for id in rng.sample(range(30), 20 if step == 0 else rng.choice([1, 4])):
                if id in rows and rng.random() < 0.4:
                    changed.append({**rows.pop(id), "_deleted": True})
                    continue
                rows[id] = {"id": id, "g": rng.randrange(4), "v": rng.choice([1, 2, 2, 3])}
                changed.append({**rows[id], "_deleted": False})
            store.insert("a", changed)
            for name in tasks:
                facts = store.run(name).tasks[0].facts["maintenance"]
                assert facts["strategy"] == ("first rows" if step == 0 else "changes"), facts
            found = [(r["g"], r["id"], r["v"]) for r in store.read("picked").to_arrow().to_pylist()]
            check_one_per_group(found, list(rows.values()), sql)
            groups: dict[int, list[int]] = {}
            for row in rows.values():
                groups.setdefault(row["g"], []).append(row["v"])
            listed = {r["g"]: r for r in store.read("lists").to_arrow().to_pylist()}
            assert {g: sorted(r["l"]) for g, r in listed.items()} == {g: sorted(vs) for g, vs in groups.items()}
            assert all(r["f"] in groups[g] and set(r["s"]) == set(groups[g]) for g, r in listed.items())
