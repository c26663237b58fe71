"""Rounded results in a ``Multiset``: stored rows are removed by a key, because each computation may round otherwise."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import nova_assets as nova
from nova_assets.catalog.history import Histories
from nova_assets.sql.incremental import operator_sql
from nova_assets_tests.effort import long_except
from nova_assets_tests.sql.incremental.spark_recompute import create_views, stored_rows

pytestmark = pytest.mark.spark

ORDERS = nova.Channel("orders", merge=nova.Upsert(key="id"), schema="id int, user int, amount double")
RESULT = nova.Channel("result", merge=nova.Multiset())
QUERIES = {
    "by user": "SELECT user, SUM(amount) AS total, AVG(amount) AS mean FROM orders GROUP BY user",
    "all": "SELECT COUNT(*) AS n, SUM(amount) AS total FROM orders",
    "two keys": "SELECT user, id % 2 AS side, SUM(amount) / 3 AS total FROM orders GROUP BY user, id % 2",
    "joined": "SELECT o.id, t.total FROM orders o JOIN (SELECT user, SUM(amount) AS total FROM orders GROUP BY user) t "
    "ON o.user = t.user",
}


@pytest.fixture
def store(spark: Any, tmp_path: Path, request: Any) -> Iterator[nova.Store]:
    keep = nova.incremental("keep", QUERIES[request.param], produces=nova.delta(RESULT))
    project = nova.Project([nova.bind(nova.Workflowette("keep", [keep]))], channels=[ORDERS])
    with nova.open(project, f"sqlite:///{tmp_path}/catalog.db", tmp_path / "warehouse", spark) as opened:
        opened.register(project)
        opened.sql = QUERIES[request.param]  # type: ignore[attr-defined]
        yield opened


def run(store: nova.Store) -> str:
    """Run the binding, compare the result with Spark's, and return the strategy."""
    execution = store.run("keep")
    spark = store.engine.session
    create_views(spark, store, ["orders"])
    expected = sorted(map(tuple, spark.sql(store.sql).collect()), key=str)  # type: ignore[attr-defined]
    rows = sorted(stored_rows(store, "result"), key=str)
    assert len(rows) == len(expected)
    for row, wanted in zip(rows, expected, strict=True):
        for a, b in zip(row, wanted, strict=True):
            assert a == b or (a is not None and b is not None and math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9))
    return str(execution.tasks[0].facts["maintenance"]["strategy"])


@pytest.mark.parametrize("store", long_except(QUERIES, "all", "joined"), indirect=True)
def test_rounded_results_are_maintained(store: nova.Store) -> None:
    rng = random.Random(7)
    users: list[int | None] = [1, 2, None]
    amount = lambda: rng.choice([None, 0.1, 0.2, 0.3, 1e16, -1e16, 2.5])  # noqa: E731
    store.insert("orders", [{"id": n, "user": users[n % 3], "amount": amount()} for n in range(12)])
    run(store)
    for step in range(4):
        ids = rng.sample(range(14), 3)
        rows = [{"id": i, "user": rng.choice(users), "amount": amount(), "_deleted": i % 5 == step} for i in ids]
        store.insert("orders", rows)
        assert run(store) in ("changes", "no change")


@pytest.mark.parametrize("store", long_except(QUERIES, "by user"), indirect=True)
def test_other_digits_in_the_stored_rows(store: nova.Store) -> None:
    """The stored rows differ in the last digit from what is computed again, as after another order of additions."""
    store.insert("orders", [{"id": n, "user": 1, "amount": 0.1} for n in range(3)])
    run(store)
    stored = store.read("result").to_arrow().to_pylist()
    store.insert("result", [r | {"_deleted": True} for r in stored])
    shifted = [r | {"total": math.nextafter(r["total"], 1), "_deleted": False} for r in stored]
    store.insert("result", shifted)
    store.insert("orders", [{"id": 2, "user": 1, "amount": 0.7}])
    with mock.patch.object(Histories, "is_written_by_others", lambda *_: False):
        assert run(store) == "changes"


@pytest.mark.parametrize("merge", [nova.Multiset(), nova.Upsert(key="id")], ids=["multiset", "upsert"])
def test_rows_whose_digits_differ_each_time(spark: Any, tmp_path: Path, merge: Any, monkeypatch: Any) -> None:
    """Both sides of a join change, and each computation of a sum has other last digits. No old row stays."""
    plain = operator_sql.to_sql
    noisy = lambda e: re.sub(r"(SUM\([^()]*\))", r"(\1 + RAND() * 1e-12)", plain(e))  # noqa: E731
    monkeypatch.setattr(operator_sql, "to_sql", noisy)
    shares = nova.Channel("shares", merge=merge)
    sql = (
        "SELECT f.id, f.amount / s.total AS share FROM orders f "
        "JOIN (SELECT user, SUM(amount) AS total FROM orders GROUP BY user) s ON f.user = s.user"
    )
    keep = nova.incremental("keep", sql, produces=nova.delta(shares))
    project = nova.Project([nova.bind(nova.Workflowette("keep", [keep]))], channels=[ORDERS])
    with nova.open(project, f"sqlite:///{tmp_path}/catalog.db", tmp_path / "warehouse", spark) as store:
        store.register(project)
        rows = {1: 0.1, 2: 0.2, 3: 0.7}
        for change in ({}, {2: None}, {3: 0.6}, {4: 1.5, 1: None}):
            rows |= change
            given = change or rows
            store.insert("orders", [{"id": i, "user": 1, "amount": a, "_deleted": a is None} for i, a in given.items()])
            execution = store.run("keep")
            assert execution.tasks[0].facts["maintenance"]["strategy"] in ("first rows", "changes")
            rows = {i: a for i, a in rows.items() if a is not None}
            found = {r["id"]: r["share"] for r in store.read("shares").to_arrow().to_pylist()}
            total = sum(rows.values())
            assert found.keys() == rows.keys()
            assert all(math.isclose(found[i], a / total, rel_tol=1e-9) for i, a in rows.items())
            assert store.read("shares").to_arrow().num_rows == len(rows)


@pytest.mark.core
@pytest.mark.parametrize("store", long_except(QUERIES, "two keys"), indirect=True)
def test_a_stored_row_that_is_missing(store: nova.Store) -> None:
    store.insert("orders", [{"id": n, "user": 1, "amount": 0.1} for n in range(3)])
    run(store)
    stored = store.read("result").to_arrow().to_pylist()
    store.insert("result", [r | {"_deleted": True} for r in stored if r.get("side", 0) == 0])
    store.insert("orders", [{"id": 2, "user": 1, "amount": 0.7}])
    with mock.patch.object(Histories, "is_written_by_others", lambda *_: False):
        assert run(store) == "changes", "the rows with changed keys are written whatever is stored"
