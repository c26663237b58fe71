"""The changed rows as they were and as they are, over random histories, beside a model in Python."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import nova_assets as nova
from nova_assets.model.merge import MergeModel
from nova_assets_tests.effort import examples

DDL = "day string, k int, v int, w string"
Rows = dict[Any, dict[str, Any]]


def model(order: bool, partitioned: bool) -> MergeModel:
    return nova.Upsert(("day", "k") if partitioned else "k", order_by="v" if order else None)


@pytest.mark.spark
@pytest.mark.parametrize("order", [False, True])
@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("seed", range(examples(1, 4)))
def test_rows_before_and_after_a_change(spark: Any, tmp_path: Path, seed: int, order: bool, partitioned: bool) -> None:
    rng = random.Random(seed * 4 + order * 2 + partitioned)
    days = nova.static("day", ["a", "b"])
    channel = nova.Channel("rows", schema=DDL, merge=model(order, partitioned), partitions=days if partitioned else ())
    seen = nova.Channel("seen", merge=nova.Append(), schema="n int")
    known: dict[str, list[dict[str, Any]]] = {}

    @nova.task(consumes=nova.changes(channel), produces=nova.delta(seen))
    def look(rows: nova.View, ctx: nova.Context) -> Any:
        for mode in ("before", "after"):
            found = rows.rows(mode, {"w"} if seed % 2 else None)
            is_table = isinstance(found, pa.Table)
            known[mode] = found.to_pylist() if is_table else [r.asDict() for r in found.collect()]
        return ctx.frame([], seen.schema)

    project = nova.Project([nova.bind(nova.Workflowette("look", [look]))], channels=[channel])
    now: Rows = {}
    before: Rows = {}
    with nova.open(project, f"sqlite:///{tmp_path}/c.db", tmp_path / "wh", spark) as store:
        store.register(project)
        for step in range(24):
            action = rng.choice(["insert", "insert", "insert", "base", "compact", "look", "look"]) if step else "insert"
            if action in ("insert", "base"):
                rows = [
                    {"day": rng.choice("ab"), "k": k, "v": rng.randrange(5), "w": str(step), "_deleted": False}
                    for k in rng.sample(range(12), rng.randrange(1, 6))
                ]
                scope: dict[str, Any] = {}
                if partitioned:
                    day = rng.choice("ab")
                    rows, scope = [{**r, "day": day} for r in rows], {"partition": day}
                if action == "insert":
                    rows = [{**r, "_deleted": rng.random() < 0.3} for r in rows]
                    store.insert("rows", rows, **scope)
                else:
                    rows = [{n: v for n, v in r.items() if n != "_deleted"} for r in rows]
                    store.insert("rows", rows, kind="base", **scope)
                    gone = [key for key, r in now.items() if not partitioned or r["day"] == scope["partition"]]
                    now = {key: r for key, r in now.items() if key not in gone}
                apply(now, rows, order=order, partitioned=partitioned)
            elif action == "compact":
                store.compact("rows", chained=rng.random() < 0.5)
            else:
                known.clear()
                store.run("look")
                check(known["before"], known["after"], before, now)
                before = dict(now)


def apply(now: Rows, rows: list[dict[str, Any]], *, order: bool, partitioned: bool) -> None:
    for row in rows:
        key = (row["day"] if partitioned else "", row["k"])
        earlier = now.get(key)
        if row.get("_deleted"):
            now.pop(key, None)
        elif not (order and earlier is not None and earlier["v"] > row["v"]):
            now[key] = {n: v for n, v in row.items() if n != "_deleted"}


def check(was: list[dict[str, Any]], now: list[dict[str, Any]], rows_before: Rows, rows_now: Rows) -> None:
    """The changed rows add and remove what the change does. Rows that stay as they are may be in both."""
    columns = [*was, *now][0].keys() if was or now else {"w"}

    def count(rows: Iterable[dict[str, Any]]) -> Counter[Any]:
        return Counter(tuple(sorted((n, v) for n, v in r.items() if n in columns)) for r in rows)

    before, after, expected_before, expected_after = map(count, (was, now, rows_before.values(), rows_now.values()))
    assert after - before == expected_after - expected_before
    assert before - after == expected_before - expected_after
    assert before <= expected_before and after <= expected_after
