"""A table that others read keeps its format: each day is converted once, at its seal, into few files."""

from __future__ import annotations

import json
import os
from datetime import date
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.dataset as ds
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

import nova_assets as nova
from nova_assets.settings import Settings
from nova_assets.store.store import Store

DDL = "dt date NOT NULL, action string NOT NULL, id bigint NOT NULL, note string"
NOTES = ["plain", 'a "quoted", text', "", None, "ü\\n\tx"]


def opened(root: Path, spark: Any, format: str, **channel: Any) -> Store:
    declared = nova.Channel(
        "actions",
        **{"merge": nova.Append(), "seal": nova.seal("dt"), **channel},
        schema=DDL,
        partitions=[nova.daily("dt", start="2024-01-01"), nova.dynamic("action")],
        publish=nova.hive_table("exports/actions", format=format),
    )
    settings = Settings(f"sqlite:///{root}/c.db", str(root / "wh"), root=root)
    return nova.open(nova.Project(channels=[declared]), spark=spark, settings=settings)


def insert(store: Store, day: str, *ids: int, action: str = "view") -> None:
    rows = [{"dt": date.fromisoformat(day), "action": action, "id": n, "note": NOTES[n % len(NOTES)]} for n in ids]
    store.insert("actions", rows)


def files(root: Path) -> dict[str, int]:
    """Data files of the table, and their inodes."""
    folder = (root / "exports" / "actions").resolve()
    found = [p for p in folder.rglob("*") if p.is_file() and p.name[0] not in "._"]
    return {str(p.relative_to(folder)): p.stat().st_ino for p in found}


def days(root: Path) -> set[str]:
    return {name.split("/")[0] for name in files(root)}


def read(root: Path, format: str) -> list[tuple[int, str | None]]:
    """Rows by a reader that is neither Spark nor nova."""
    folder = (root / "exports" / "actions").resolve()
    paths = [folder / name for name in files(root)]
    if format == "csv":
        frames = [pd.read_csv(p, keep_default_na=False, na_values=[]) for p in paths]
        texts = [p.read_text() for p in paths]
        assert all('""' in t for t in texts if ",\n" in t or t), texts
        return sorted((int(i), n or None) for f in frames for i, n in zip(f["id"], f["note"], strict=True))
    if format == "json":
        rows = [json.loads(line) for p in paths for line in p.read_text().splitlines()]
    elif format == "orc":
        rows = [r for p in paths for r in orc.read_table(p).to_pylist()]
    else:
        rows = [r for p in paths for r in pq.ParquetFile(p).read().to_pylist()]
    assert all(set(r) == {"id", "note"} for r in rows), "partition columns are in the names of folders alone"
    return sorted((r["id"], r["note"]) for r in rows)


def expected(*ids: int) -> list[tuple[int, str | None]]:
    return sorted((n, NOTES[n % len(NOTES)]) for n in ids)


@pytest.mark.slow
def test_a_day_is_converted_once_at_its_seal(tmp_path: Path) -> None:
    def refuse() -> None:
        raise AssertionError("Spark was started")

    store = opened(tmp_path, refuse, "parquet")
    for n in range(10):
        insert(store, "2024-01-01", n)
        insert(store, "2024-01-02", 10 + n, action="buy")
    assert [e.rows for e in store.publish("actions")] == [0], "no day is sealed"
    assert files(tmp_path).keys() == {"no-rows.parquet"} and store.to_publish("actions") == []

    store.seal("actions")
    [edition] = store.publish("actions")
    assert edition.rows == 20 and days(tmp_path) == {"dt=2024-01-01", "dt=2024-01-02"}
    first = files(tmp_path)
    assert len(first) == 2, "one file for each partition, in place of ten"
    assert read(tmp_path, "parquet") == expected(*range(20))
    assert (tmp_path / "exports/actions/dt=2024-01-01/_SUCCESS").exists()

    insert(store, "2024-01-02", 20, action="buy")
    insert(store, "2024-01-03", 30)
    store.publish("actions")
    assert files(tmp_path).keys() == first.keys(), "late data waits for the next seal, and a new day for its first"
    assert not (tmp_path / "exports/actions/dt=2024-01-02/_SUCCESS").exists(), "but the day is open"
    assert read(tmp_path, "parquet") == expected(*range(20))

    store.compact("actions")
    store.seal("actions")
    store.publish("actions")
    assert read(tmp_path, "parquet") == expected(*range(21), 30)
    unchanged = [name for name in first if name.startswith("dt=2024-01-01")]
    assert {n: files(tmp_path)[n] for n in unchanged} == {n: first[n] for n in unchanged}, "it was converted once"
    assert store.publish("actions") == [] and store.to_publish("actions") == []


def test_a_keyed_channel_is_merged_first(tmp_path: Path) -> None:
    store = opened(tmp_path, None, "parquet", merge=nova.Upsert(key=["dt", "action", "id"]), seal=None)
    insert(store, "2024-01-01", 1, 2, 3)
    store.insert("actions", [{"dt": date(2024, 1, 1), "action": "view", "id": 2, "note": None, "_deleted": True}])
    assert [e.rows for e in store.publish("actions")] == [2]
    assert read(tmp_path, "parquet") == expected(1, 3)


def test_files_have_the_size_that_is_asked_for(tmp_path: Path) -> None:
    store = opened(tmp_path, None, "parquet", seal=None, compaction=nova.Compaction(target=200_000))
    rows = [{"dt": date(2024, 1, 1), "action": "view", "id": n, "note": os.urandom(30).hex()} for n in range(30_000)]
    store.insert("actions", rows)
    store.publish("actions")
    folder = (tmp_path / "exports" / "actions").resolve()
    assert ds.dataset(folder).count_rows() == 30_000


@pytest.mark.spark
@pytest.mark.parametrize("format", ["orc", "json", "csv"])
def test_formats_by_sparks_own_writers(format: str, spark: Any, tmp_path: Path) -> None:
    store = opened(tmp_path, spark, format)
    for n in range(5):
        insert(store, "2024-01-01", n)
        insert(store, "2024-01-02", 10 + n, action="buy/x")
    store.seal("actions")
    store.publish("actions")
    assert len(files(tmp_path)) == 2 and all(name.endswith(f".{format}") for name in files(tmp_path))
    assert "dt=2024-01-02/action=buy%2Fx" in {os.path.dirname(n) for n in files(tmp_path)}
    ids = [*range(5), *range(10, 15)]
    if format == "csv":
        assert read(tmp_path, format) == sorted((n, NOTES[n % len(NOTES)] or None) for n in ids)
    else:
        assert read(tmp_path, format) == expected(*ids)


@pytest.mark.spark
def test_an_existing_table_keeps_its_format(spark: Any, tmp_path: Path) -> None:
    def read_by_pandas() -> list[tuple[int, str]]:
        folder = (tmp_path / "exports" / "actions").resolve()
        frame = pd.concat([pd.read_csv(folder / name) for name in files(tmp_path)])
        assert list(frame.columns) == ["id", "note"]
        return sorted(zip(frame["id"], frame["note"], strict=True))

    for n in (1, 2):
        folder = tmp_path / f"exports/actions/dt=2024-01-0{n}/action=view"
        folder.mkdir(parents=True)
        pd.DataFrame({"id": [n, n + 5], "note": NOTES[:2]}).to_csv(folder / "000000.csv", index=False)
    existing = read_by_pandas()
    store = opened(tmp_path, spark, "csv")
    assert [e.rows for e in store.publish("actions", take_over=True)] == [4]
    assert read_by_pandas() == existing
    insert(store, "2024-01-03", 10)
    store.seal("actions")
    store.publish("actions")
    assert read_by_pandas() == [*existing, (10, NOTES[0])]
    assert days(tmp_path) == {f"dt=2024-01-0{n}" for n in (1, 2, 3)}
    assert all(name.endswith(".csv") for name in files(tmp_path)), files(tmp_path)


@pytest.mark.core
@pytest.mark.spark
def test_what_a_format_cannot_hold_is_refused(spark: Any, tmp_path: Path) -> None:
    listed = nova.Channel("listed", schema="id bigint, tags array<string>", publish=nova.hive_table("x", format="csv"))
    binary = nova.Channel("rc", schema="id bigint", publish=nova.hive_table("y", format="rcfile"))
    settings = Settings(f"sqlite:///{tmp_path}/c.db", str(tmp_path / "wh"), root=tmp_path)
    store = nova.open(nova.Project(channels=[listed, binary]), spark=spark, settings=settings)
    store.insert("listed", [{"id": 1, "tags": ["a"]}])
    with pytest.raises(nova.NotSupported, match="cannot be stored in the format csv"):
        store.publish("listed")
    store.insert("rc", [{"id": 1}])
    with pytest.raises(nova.NotSupported, match="no support for Hive"):
        store.publish("rc")
    with pytest.raises(nova.DefinitionError, match="parquet, orc, rcfile"):
        nova.hive_table("z", format="xml")  # type: ignore[arg-type]
    assert not (tmp_path / "x").exists() and not (tmp_path / "y").exists()
