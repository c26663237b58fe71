"""Damaged files of a maintained result, with the accumulators in its hidden columns, are noticed, and its rows are
computed again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova

pytestmark = pytest.mark.spark

ORDERS = nova.Channel("orders", merge=nova.Upsert(key="id"), schema="id int, site int, a int")
QUERY = "SELECT site, COUNT(*) AS n, AVG(a) AS mean, MIN(a) AS least FROM orders GROUP BY site"
DAMAGES = ("deleted", "truncated", "zeros", "flipped")


def open_store(folder: Path, spark: Any, *, frozen: str = "") -> nova.Store:
    (folder / "sql").mkdir(exist_ok=True)
    (folder / "sql" / "totals.sql").write_text(f"{frozen} {QUERY}")
    datasets = nova.datasets(folder / "sql", channels=[ORDERS], refresh="incremental")
    project = nova.Project(datasets, channels=[ORDERS])
    store = nova.open(project, f"sqlite:///{folder}/catalog.db", folder / "warehouse", spark)
    store.register(project)
    return store


def damage(store: nova.Store, kind: str) -> None:
    """Damage all files of the result."""
    blocks = [block for instant in store.timeline("totals") for block in instant.blocks]
    for path in (Path(store.engine.warehouse.address) / f.path for b in blocks for f in b.manifest.files):
        if not path.exists():
            continue
        data = path.read_bytes()
        if kind == "deleted":
            path.unlink()
        elif kind == "truncated":
            path.write_bytes(data[: len(data) // 2])
        elif kind == "zeros":
            path.write_bytes(data[:8] + b"\0" * (len(data) - 16) + data[-8:])
        else:
            changed = bytearray(data)
            changed[len(data) // 4] ^= 0xFF
            path.write_bytes(bytes(changed))


def check(store: nova.Store) -> None:
    values: dict[int, list[int]] = {}
    for row in store.read("orders").to_arrow().to_pylist():
        values.setdefault(row["site"], []).append(row["a"])
    expected = {(site, len(v), sum(v) / len(v), min(v)) for site, v in values.items()}
    assert {tuple(row.values()) for row in store.read("totals").to_arrow().to_pylist()} == expected


@pytest.mark.parametrize("kind", DAMAGES)
def test_damaged_rows_are_computed_again(kind: str, spark: Any, tmp_path: Path) -> None:
    with open_store(tmp_path, spark) as store:
        store.insert("orders", [{"id": n, "site": n % 3, "a": n} for n in range(30)])
        store.run("totals")
        damage(store, kind)
        store.insert("orders", [{"id": 0, "site": 1, "a": 100}])
        facts = store.run("totals").tasks[0].facts["maintenance"]
        assert facts["strategy"] == "replacement"
        assert facts["reason"].startswith("the file blocks/")
        check(store)
        store.insert("orders", [{"id": 1, "site": 7, "a": 9}])
        assert store.run("totals").tasks[0].facts["maintenance"]["strategy"] == "changes"
        check(store)
        damage(store, kind)
        store.backfill("totals")
        assert [outcome.error for outcome in store.tick()] == [None]
        check(store)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["truncated", "flipped"])
@pytest.mark.exhaustive
def test_damage_is_noticed_where_spark_reads_the_rows(kind: str, spark: Any, tmp_path: Path) -> None:
    with open_store(tmp_path, spark) as store:
        store.insert("orders", spark.range(900_000).selectExpr("int(id)", "int(id / 2) AS site", "int(id % 100) AS a"))
        store.run("totals")
        damage(store, kind)
        store.insert("orders", [{"id": 0, "site": 1, "a": 100}])
        assert store.run("totals").tasks[0].facts["maintenance"]["strategy"] == "replacement"
        check(store)


def test_rows_that_cannot_be_computed_again_are_not_made_up(spark: Any, tmp_path: Path) -> None:
    with open_store(tmp_path, spark, frozen="FROZEN WHERE site < 1") as store:
        store.insert("orders", [{"id": n, "site": n % 3, "a": n} for n in range(30)])
        store.run("totals")
        damage(store, "truncated")
        store.insert("orders", [{"id": 0, "site": 1, "a": 100}])
        head = store.catalog.definitions.channel("totals").head
        with pytest.raises(nova.FileMissing, match="was changed after it was committed"):
            store.run("totals")
        assert store.catalog.definitions.channel("totals").head == head
