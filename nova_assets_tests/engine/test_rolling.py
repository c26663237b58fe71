"""Small files of a channel that is only added to, rolled into larger ones: the same rows, whichever way leads there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.engine.write import block_rewriter
from nova_assets.settings import load_settings
from nova_assets.store.store import Store


def filled(root: Path, spark: Any = None, way: str = "auto") -> Store:
    """Two partitions, whose columns came one after the other and were renamed, and a deep one."""
    settings = replace(
        load_settings(start_folder=root, catalog=f"sqlite:///{root}/c.db", warehouse=str(root / "wh")), strategy=way
    )
    store = nova.open(spark=spark, settings=settings)
    parts = nova.dynamic("p")
    store.register(
        nova.Channel("c", schema="id bigint NOT NULL, p string", partitions=parts, on_schema_change="evolve")
    )
    for n in range(6):
        store.insert("c", [{"id": 10 * n + i, "p": "ab"[i % 2]} for i in range(7)])
    store.insert("c", [{"id": 100, "p": "a", "deep": {"x": [1, None]}, "t": None}, {"id": 101, "p": "b", "t": "é"}])
    ddl = "id bigint NOT NULL, p string, deep struct<x: array<bigint>>, text string"
    renamed = nova.Channel("c", schema=ddl, partitions=parts, on_schema_change="evolve", renamed={"text": "t"})
    store.register(renamed, replace=True)
    store.insert("c", [{"id": 102, "p": "a", "text": "new"}])
    return store


def rows(store: Store) -> list[dict[str, Any]]:
    return sorted(store.read("c").to_arrow().to_pylist(), key=lambda r: r["id"])


@pytest.mark.spark
def test_rolled_here_or_by_spark(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "spark").mkdir()
    here, by_spark = filled(tmp_path / "here"), filled(tmp_path / "spark", spark, "spark")
    before = rows(here)
    for store, way in ((here, "arrow"), (by_spark, "spark")):
        commit = store.compact("c")
        assert commit is not None and [w["way"] for w in commit.details["ways"]] == [way]
        bases = [b for b in store.catalog.histories.of("c").blocks if b.kind == "base"]
        assert {b.partition: b.rows for b in bases} == {"p=a": 26, "p=b": 19}
        # One file that is as its number has it is kept beside the one that all others make.
        assert {b.partition: len(b.manifest.files) for b in bases} == {"p=a": 2, "p=b": 2}
        assert {b.partition: b.manifest.schema.names[-1] for b in bases} == {"p=a": "text", "p=b": "t"}, "R18"
        assert rows(store) == before == rows(by_spark)


def test_row_groups_and_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_rewriter, "UNSORTED_ROW_GROUP_BYTES", 200)
    monkeypatch.setattr(block_rewriter, "TARGET_FILE_BYTES", 1000)
    store = filled(tmp_path)
    before = rows(store)
    assert store.compact("c") is not None
    [a] = [b for b in store.catalog.histories.of("c").blocks if b.kind == "base" and b.partition == "p=a"]
    assert len(a.manifest.files) > 1 and sum(f.rows for f in a.manifest.files) == a.rows
    assert all(f.bytes < 5000 for f in a.manifest.files)
    assert rows(store) == before
