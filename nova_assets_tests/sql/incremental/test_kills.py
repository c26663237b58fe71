"""SIGKILL at every named point of an execution of maintained queries. Nothing is counted twice, and nothing is lost."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.crash_points import CRASH_POINTS
from nova_assets_tests.effort import long_except
from nova_assets_tests.forked import run_python
from nova_assets_tests.sql.incremental.kill_worker import open_store

pytestmark = [pytest.mark.spark, pytest.mark.slow]

OTHERS = ("sweep", "publish", "collect", "repair", "fire", "receive", "seal", "edition", "notify")
POINTS = [point for point in CRASH_POINTS if not point.startswith(OTHERS)]


def check(store: nova.Store, orders: dict[int, tuple[int, int]]) -> None:
    """Compare both results with those of a loop over the orders."""
    amounts: dict[int, list[int]] = defaultdict(list)
    for user, amount in orders.values():
        amounts[user].append(amount)
    totals = {(user, len(values), sum(values)) for user, values in amounts.items()}
    assert {tuple(r.values()) for r in store.read("totals").to_arrow().to_pylist()} == totals
    sizes = sorted(("large" if total > 10 else "small", user, total) for user, _, total in totals)
    assert sorted(tuple(r.values()) for r in store.read("sizes").to_arrow().to_pylist()) == sizes


@pytest.mark.crash
@pytest.mark.parametrize("point", long_except(POINTS, "commit.after"))
def test_an_execution_killed_at_each_point(spark: Any, tmp_path: Path, point: str) -> None:
    catalog, warehouse = f"sqlite:///{tmp_path}/catalog.db", str(tmp_path / "warehouse")
    orders = {n: (n % 3, n) for n in range(9)}
    with open_store(catalog, warehouse, spark) as store:
        store.register(store.project)
        store.insert("orders", [{"id": i, "user": u, "amount": a} for i, (u, a) in orders.items()])
        store.run("totals")
        store.run("sizes")
        orders |= {0: (1, 100), 20: (5, 7)}
        del orders[2]
        rows = [{"id": i, "user": u, "amount": a, "_deleted": False} for i, (u, a) in orders.items() if i in (0, 20)]
        store.insert("orders", [*rows, {"id": 2, "user": None, "amount": None, "_deleted": True}])
        worker = "nova_assets_tests.sql.incremental.kill_worker"
        killed = run_python(["-m", worker, catalog, warehouse], {"NOVA_CRASH_AT": point})
        assert killed.returncode == -9, killed.stderr[-3000:]
        store.run("totals")
        store.run("sizes")
        check(store, orders)
        for binding in ("totals", "sizes"):
            assert store.run(binding).tasks[0].facts["maintenance"]["strategy"] == "no change"
        orders[1] = (1, 3)
        store.insert("orders", [{"id": 1, "user": 1, "amount": 3}])
        for binding in ("totals", "sizes"):
            assert store.run(binding).tasks[0].facts["maintenance"]["strategy"] == "changes"
        check(store, orders)
