"""Results maintained from changes that reach Spark as files, from bags with equal rows, and by Spark alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nova_assets as nova
from nova_assets.engine.tasks import sql_query
from nova_assets.execution import input_view

pytestmark = pytest.mark.spark

ORDERS = "id int, user int, day date, amount decimal(10,2)"
USERS = nova.Channel("users", merge=nova.Upsert(key="uid"), schema="uid int, city string")

QUERIES: dict[str, tuple[str, str, Sequence[str]]] = {
    "joined": (
        "SELECT o.id, o.day, o.amount, u.city FROM orders o JOIN users u ON o.user = u.uid WHERE o.amount > 3",
        "id int, day date, amount decimal(10,2), city string",
        [],
    ),
    "added": (
        "SELECT u.city, COUNT(*) AS n, SUM(o.amount) AS total FROM orders o JOIN users u ON o.user = u.uid "
        "GROUP BY u.city",
        "city string, n bigint, total decimal(20,2)",
        ["city"],
    ),
    "numbered": (
        "SELECT id, day, ROW_NUMBER() OVER (PARTITION BY day ORDER BY id, amount, user) AS n FROM orders",
        "id int, day date, n int",
        [],
    ),
    "outer": (
        "SELECT u.uid, u.city, o.amount FROM users u LEFT JOIN orders o ON o.user = u.uid AND o.amount > 5",
        "uid int, city string, amount decimal(10,2)",
        [],
    ),
}


@pytest.mark.long
@pytest.mark.exhaustive
@pytest.mark.parametrize("max_rows", [100, 0])
@pytest.mark.parametrize("merge", [nova.Upsert(key="id"), nova.Multiset()], ids=lambda m: type(m).__name__)
def test_results_of_files_are_those_of_spark(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, merge: Any, max_rows: int
) -> None:
    monkeypatch.setattr(input_view, "MAX_LOCAL_ROWS", max_rows)
    orders, rng = nova.Channel("orders", merge=merge, schema=ORDERS), np.random.default_rng(1)
    bindings = []
    for name, (sql, schema, key) in QUERIES.items():
        result = nova.Channel(name, merge=nova.Upsert(key=key) if key else nova.Multiset(), schema=schema)
        keep = nova.incremental(f"keep_{name}", sql, produces=nova.delta(result))
        inputs = {n: c for n, c in (("orders", orders), ("users", USERS)) if n in sql}
        bindings.append(nova.bind(nova.Workflowette(name, [keep]), channels=inputs))
    project = nova.Project(bindings, channels=[orders, USERS])
    used = _count_files(monkeypatch)
    with nova.open(project, f"sqlite:///{tmp_path}/catalog.db", tmp_path / "warehouse", spark) as store:
        store.register(project)
        for step in range(3):
            store.insert("orders", _orders(rng, deletes=step > 0, is_bag=isinstance(merge, nova.Multiset)))
            if step != 1:
                store.insert(
                    "users", [{"uid": int(n), "city": f"c{rng.integers(3)}"} for n in rng.choice(9, 3, replace=False)]
                )
            frames = {name: store.read(name).to_spark() for name in ("orders", "users")}
            for name, (sql, _, _) in QUERIES.items():
                store.run(name)
                for view, frame in frames.items():
                    frame.createOrReplaceTempView(view)
                expected = Counter(map(tuple, spark.sql(sql).collect()))
                kept = Counter(tuple(r.values()) for r in store.read(name).to_arrow().to_pylist())
                assert kept == expected, f"{name} after step {step}"
    assert bool(used) == bool(max_rows), "few changes are handed over in files"


def _orders(rng: np.random.Generator, *, deletes: bool, is_bag: bool) -> list[dict[str, Any]]:
    """Some orders. In a bag, the rows of an order are equal, and only added."""
    numbers = [int(n) for n in (rng.integers(0, 12, 20) if is_bag else rng.choice(12, 8, replace=False))]
    rows = [{"id": n, "user": n % 7, "day": f"2024-01-0{1 + n % 3}", "amount": n} for n in numbers]
    if is_bag:
        return rows
    changed = [{**row, "amount": int(rng.integers(0, 9))} for row in rows]
    return [{**row, "_deleted": bool(rng.random() < 0.3)} for row in changed] if deletes else changed


def _count_files(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    paths: list[Path] = []
    monkeypatch.setattr(sql_query, "MIN_ROWS_OF_FILE", 1)
    write = sql_query._frame_of_file
    monkeypatch.setattr(sql_query, "_frame_of_file", lambda s, t, path: (paths.append(path), write(s, t, path))[1])
    return paths
