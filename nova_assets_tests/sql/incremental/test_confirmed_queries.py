"""Spark confirms how nova understands a query, whatever the session's settings are. Other queries are computed as a
whole, or refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

import nova_assets as nova
from nova_assets.engine.session.shared_settings import temporary_settings
from nova_assets_tests.sql.incremental.forced_strategy import force_strategy
from nova_assets_tests.sql.incremental.spark_recompute import create_views, stored_rows

pytestmark = pytest.mark.spark

SHORTENED = {"spark.sql.debug.maxToStringFields": "3", "spark.sql.maxPlanStringLength": "200"}
COLUMNS = [f"c{n}" for n in range(26)]
WIDE = nova.Channel("wide", merge=nova.Upsert(key="id"), schema=f"id int, {', '.join(f'{c} int' for c in COLUMNS)}")
OTHER = nova.Channel("other", merge=nova.Upsert(key="id"), schema="id int, v int")
TEXTS = {
    "rows": f"SELECT id, {', '.join(COLUMNS)} FROM wide WHERE c0 > 1",
    "sums": f"SELECT c0, SUM({' + '.join(COLUMNS)}), AVG(c1) FROM wide GROUP BY c0",
}
PAIRS = """
    SELECT a.v AS x, b.v AS y, (SELECT COUNT(e.v) FROM other e WHERE e.id = b.v) AS n
    FROM other a JOIN other b ON a.v = b.v
    WHERE (SELECT COUNT(*) FROM wide w WHERE b.v = w.c0) = 0"""


@contextmanager
def deployed(
    spark: Any,
    root: Path,
    refresh: Literal["auto", "incremental"],
    texts: dict[str, str],
    judged: dict[str, str] | None = None,
) -> Iterator[nova.Store]:
    """A store with datasets. In the end, Spark computes them, by the texts or by others that mean the same."""
    (root / "sql").mkdir()
    for name, sql in texts.items():
        (root / "sql" / f"{name}.sql").write_text(sql)
    datasets = nova.datasets(root / "sql", channels=[WIDE, OTHER], refresh=refresh)
    project = nova.Project(datasets, channels=[WIDE, OTHER])
    with nova.open(project, f"sqlite:///{root}/catalog.db", root / "warehouse", spark) as store:
        store.register(project)
        store.insert("wide", [row(n) for n in range(20)])
        store.insert("other", [{"id": n, "v": n % 3 or None} for n in range(6)])
        yield store
        create_views(spark, store, ["wide", "other"])
        for name, sql in (judged or texts).items():
            assert sorted(stored_rows(store, name), key=repr) == sorted(map(tuple, spark.sql(sql).collect()), key=repr)


def row(number: int, **values: int) -> dict[str, Any]:
    return {"id": number, **{c: number % (n + 2) for n, c in enumerate(COLUMNS)}, **values}


def strategy(execution: nova.Execution) -> str:
    facts = execution.tasks[0].facts
    assert facts is not None
    return str(facts["maintenance"]["strategy"])


def test_more_columns_than_spark_shows(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    force_strategy(monkeypatch, "changes")
    with temporary_settings(spark, SHORTENED), deployed(spark, tmp_path, "incremental", TEXTS) as store:
        for expected in ("first rows", "changes"):
            assert [strategy(store.run(name)) for name in TEXTS] == [expected, expected]
            store.insert("wide", [row(3, c0=7, c25=8), row(20)])
        for name in TEXTS:
            store.run(name)
        assert {name: spark.conf.get(name) for name in SHORTENED} == SHORTENED, "they are the user's"


def test_columns_without_names_and_the_first_of_equal_rows(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark may return any of the equal rows. The order of all columns decides here."""
    force_strategy(monkeypatch, "changes")
    half = "MAX(c3) / CAST(2 AS INT)"
    ordered = {
        "top": f"SELECT c2, COUNT(*), {half} FROM wide GROUP BY c2 ORDER BY COUNT(*) DESC, 1, 2, 3 LIMIT 2",
        "least": "SELECT v, v * 2 FROM other UNION ALL SELECT c1, c2 FROM wide ORDER BY 1, 2 LIMIT 9",
        "means": "SELECT c2, AVG(c3) FROM wide GROUP BY c2 ORDER BY c2 DESC LIMIT 2",
    }
    written = {
        "top": ordered["top"].replace(", 1, 2, 3 LIMIT", " LIMIT"),
        "least": ordered["least"].replace("ORDER BY 1, 2 LIMIT", "LIMIT"),
        "means": ordered["means"],
    }
    with deployed(spark, tmp_path, "incremental", written, ordered) as store:
        assert [strategy(store.run(name)) for name in written] == ["first rows"] * 3
        assert store.read("top").to_arrow().column_names == ["c2", "count(1)", "(max(c3) / CAST(2 AS INT))"]
        for change in ([row(30), row(31, c2=2), row(2, c2=1)], [{"id": n, "_deleted": True} for n in (0, 1, 3, 4, 30)]):
            store.insert("wide", change)
            store.insert("other", [{"id": 20 + len(change), "v": -len(change)}])
            assert [strategy(store.run(name)) for name in written] == ["changes"] * 3


def test_correlated_subqueries_are_compared_after_a_backfill(spark: Any, tmp_path: Path) -> None:
    with deployed(spark, tmp_path, "auto", {"pairs": PAIRS}) as store:
        assert strategy(store.run("pairs")) == "first rows"
        store.insert("other", [{"id": 1, "v": 7}, {"id": 7, "v": 7}, {"id": 9, "v": 7}])
        store.insert("pairs", [{"x": 8, "y": 8, "n": 8, "_deleted": False}])
        assert strategy(store.run("pairs")) == "comparison"


def test_changes_are_required_of_a_query_that_spark_does_not_confirm(spark: Any, tmp_path: Path) -> None:
    texts = {"doubled": "SELECT id, v + 1 AS x, x * 2 AS y FROM other"}
    with pytest.raises(nova.SqlError) as caught, deployed(spark, tmp_path, "incremental", texts) as store:
        store.run("doubled")
    assert "refresh is incremental, and no change of the result can be computed: Spark does not" in str(caught.value)
    assert 'expected: refresh="auto"' in str(caught.value)
