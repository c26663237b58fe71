"""Statements that Spark would plan for longer than it computes the whole query."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.sql.incremental import maintenance_sql
from nova_assets.sql.incremental.operator_sql import expanded_size


def test_relations_count_as_often_as_they_are_read() -> None:
    relations = {
        "nova_0_new": "SELECT * FROM {a}",
        "nova_1_keys": "SELECT x AS nova_key_0 FROM nova_0_new",
        "nova_1_new": "SELECT * FROM nova_0_new LEFT SEMI JOIN nova_1_keys ON x <=> nova_1_keys.nova_key_0",
    }
    assert expanded_size("SELECT * FROM nova_1_new UNION ALL SELECT * FROM nova_0_new", relations) == 5


@pytest.mark.spark
def test_the_whole_query_is_computed_instead(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = nova.Channel("a", merge=nova.Upsert(key="id"), schema="id int, g int")
    sql = "SELECT a.id, b.g FROM a LEFT JOIN a AS b ON a.id = b.g"
    keep = nova.incremental("keep", sql, produces=nova.delta(nova.Channel("kept", merge=nova.Multiset())))
    project = nova.Project([nova.bind(nova.Workflowette("keep", [keep]))], channels=[rows])
    with nova.open(project, f"sqlite:///{tmp_path}/c.db", tmp_path / "w", spark) as store:
        store.register(project)
        store.insert("a", [{"id": n, "g": n % 3} for n in range(6)])
        store.run("keep")
        monkeypatch.setattr(maintenance_sql, "MAX_EXPANDED_RELATIONS", 3)
        store.insert("a", [{"id": 1, "g": 5}])
        facts = store.run("keep").tasks[0].facts["maintenance"]
        assert (facts["strategy"], "Spark would plan" in facts["reason"]) == ("comparison", True)
        found = {tuple(r.values()) for r in store.read("kept").to_arrow().to_pylist()}
        g = {n: n % 3 for n in range(6)} | {1: 5}
        assert found == {(n, n if n in g.values() else None) for n in g}
