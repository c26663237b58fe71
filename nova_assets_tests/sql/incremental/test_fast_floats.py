"""Sums of floating-point numbers to which changes are added (``float="fast"``)."""

from __future__ import annotations

import math
import os
import random
from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.sql.incremental.accumulation import accumulation_of
from nova_assets.sql.incremental.build_operators import SourceTable, build_operators
from nova_assets.sql.parse.dialect import parse_statement
from nova_assets.sql.query.resolved_query import resolve_query
from nova_assets.sql.text import SqlText
from nova_assets_tests.effort import examples
from nova_assets_tests.sql.incremental.random_queries import TABLES
from nova_assets_tests.sql.incremental.test_equality_in_duckdb import check_stored_groups

SEED = int(os.environ.get("NOVA_FUZZ_SEED", "27"))
QUERIES = [
    "SELECT g, SUM(v / 3) AS s, COUNT(*) AS n FROM a GROUP BY g",
    "SELECT g, AVG(v / 3) AS m FROM a WHERE id > 1 GROUP BY g",
    "SELECT SUM(v / 3) AS s, AVG(CAST(v AS DOUBLE)) AS m FROM a",
    "SELECT g, SUM(x) AS s, AVG(x) + 1 AS m FROM c GROUP BY g",
    "SELECT a.g, SUM(a.v / 3) AS s FROM a JOIN b ON a.g = b.g GROUP BY a.g",
]


def operators_of(sql: str, *, adds_floats: bool) -> Any:
    sources = {t.name: SourceTable(t.schema, t.key) for t in TABLES}
    text = SqlText("query", sql)
    tree: Any = parse_statement(text)
    query = resolve_query(text, tree, {n: s.schema for n, s in sources.items()})
    return build_operators(query, sources, adds_floats=adds_floats)


@pytest.mark.slow
@pytest.mark.parametrize("sql", QUERIES)
def test_changes_are_added_to_stored_sums(sql: str) -> None:
    assert accumulation_of(operators_of(sql, adds_floats=False)) is None
    accumulation = accumulation_of(operators_of(sql, adds_floats=True))
    assert accumulation is not None
    for number in range(examples(3, 80)):
        check_stored_groups(sql, accumulation, random.Random(f"{SEED} {number}"))


def test_an_unknown_policy_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.sql").write_text("SELECT 1 AS n FROM a")
    with pytest.raises(nova.DefinitionError, match="float='quick' is not a policy"):
        nova.datasets(tmp_path, channels=[nova.Channel("a", schema="id int")], float="quick")  # type: ignore[arg-type]
    with pytest.raises(nova.DefinitionError, match="float='quick' is not a policy"):
        nova.incremental("t", "SELECT id FROM a", produces=nova.delta("b"), float="quick")  # type: ignore[arg-type]


@pytest.mark.spark
def test_executions_add_to_stored_sums(spark: Any, tmp_path: Path) -> None:
    rows = nova.Channel("a", merge=nova.Upsert(key="id"), schema="id int, g int, x double")
    (tmp_path / "sql").mkdir()
    (tmp_path / "sql" / "sums.sql").write_text("SELECT g, SUM(x) AS s, AVG(x) AS m FROM a GROUP BY g")
    datasets = nova.datasets(tmp_path / "sql", channels=[rows], refresh="incremental", float={"sums": "fast"})
    project, rng = nova.Project(datasets, channels=[rows]), random.Random(SEED)
    values: dict[int, tuple[int, float]] = {}
    with nova.open(project, f"sqlite:///{tmp_path}/c.db", tmp_path / "w", spark) as store:
        store.register(project)
        for step in range(examples(5, 20)):
            changed = rng.sample(range(200), 150 if step == 0 else 12)
            values |= {id: (id % 5, rng.choice([0.1, -0.7, 1e6, 3e-5])) for id in changed}
            if step == 2:
                values[0] = (0, math.nan)
            if step == 3:
                values[0] = (0, 0.5)
            ids = {*changed, 0} & values.keys()
            store.insert("a", [{"id": id, "g": values[id][0], "x": values[id][1]} for id in sorted(ids)])
            facts = store.run("sums").tasks[0].facts["maintenance"]
            assert facts["strategy"] == ("first rows" if step == 0 else "changes")
            for row in store.read("sums").to_arrow().to_pylist():
                of_group = [x for g, x in values.values() if g == row["g"]]
                limit = 1e-9 * sum(map(abs, of_group))
                expected = math.fsum(of_group)
                assert row["s"] == pytest.approx(expected, abs=limit, nan_ok=True)
                assert row["m"] == pytest.approx(expected / len(of_group), abs=limit, nan_ok=True)
