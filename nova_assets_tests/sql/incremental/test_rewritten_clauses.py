"""Clauses that are rewritten to other operators: ``PIVOT``, ``GROUPING_ID``, ``GROUP BY ALL``, and ``EXISTS`` and
``IN`` under ``OR``. Spark recomputes the query as it was written."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import pytest

from nova_assets.sql.incremental.operators import NotMaintainable
from nova_assets_tests.effort import examples, long_except
from nova_assets_tests.sql.incremental.duckdb_judge import DuckdbJudge
from nova_assets_tests.sql.incremental.test_equality import Judge, check_changes
from nova_assets_tests.sql.incremental.test_equality_in_duckdb import check_changes as check_changes_in_duckdb
from nova_assets_tests.sql.incremental.test_equality_in_duckdb import in_duckdb, operators_of

SEED = int(os.environ.get("NOVA_FUZZ_SEED", "27"))

PIVOTS = [
    "SELECT * FROM (SELECT g, v, s FROM a) PIVOT (SUM(v) FOR s IN ('x', 'y'))",
    "SELECT p.g, p.one_n, p.one_m FROM (SELECT g, v, n FROM a JOIN d USING (g)) "
    "PIVOT (COUNT(*) AS n, MAX(v) AS m FOR n IN (1 AS one, 2 AS two)) AS p WHERE p.two_n IS NULL",
    "SELECT * FROM (SELECT v, g FROM a) PIVOT (COUNT(v) FOR g IN (0 AS zero, NULL AS none, 3 AS three))",
    "SELECT * FROM (SELECT g, s, n FROM d) PIVOT (SUM(n) AS k FOR (g, s) IN ((1, 'x') AS x, (2, 'y') AS y))",
    "SELECT * FROM (SELECT g, x, v FROM c) PIVOT (AVG(x) FOR v IN (1L AS one, 2L AS two))",
]
CLAUSES = [
    "SELECT g, v, GROUPING_ID() AS i, GROUPING_ID(g, v) AS j, COUNT(*) AS n FROM a GROUP BY CUBE (g, v)",
    "SELECT g, s, GROUPING_ID() + 1 AS i, SUM(n) AS n FROM d GROUP BY g, s WITH ROLLUP HAVING GROUPING_ID() < 3",
    "SELECT g, v, s, GROUPING_ID() AS i, COUNT(*) AS n FROM a GROUP BY GROUPING SETS ((v, s), (g), ())",
    "SELECT g, v, s, GROUPING_ID() AS i, COUNT(*) AS n FROM a GROUP BY GROUPING SETS ((g), (v)), s",
    "SELECT g, v, s, GROUPING_ID(g, v, s) AS i, COUNT(*) AS n FROM a GROUP BY GROUPING SETS ((g), (v)), CUBE (s)",
    "SELECT g, v % 2 AS odd, SUM(id) AS t, COUNT(*) + 1 AS n FROM a GROUP BY ALL",
    "SELECT SUM(id) AS t FROM a GROUP BY ALL",
    "SELECT id FROM a WHERE v > 1 OR EXISTS (SELECT 1 FROM b WHERE b.g = a.g AND b.w > 0)",
    "SELECT id, EXISTS (SELECT 1 FROM b WHERE b.g = a.g) AS e, NOT EXISTS (SELECT 1 FROM d) AS f FROM a",
    "SELECT id FROM a WHERE a.g IN (SELECT DISTINCT b.g FROM b) OR (v = 1 AND (a.g, a.s) IN (SELECT d.g, d.s FROM d))",
    "SELECT id FROM a WHERE v = 1 OR a.g IN (SELECT g FROM a WHERE a.v > 2) OR a.s IN (SELECT a.s FROM d AS a JOIN b "
    "USING (g) WHERE a.n = b.w)",
    "SELECT CONCAT('s', s) AS t, s || s AS u, COUNT(*) AS n FROM d GROUP BY ROLLUP (CONCAT('s', s), s || s)",
    "SELECT g, COUNT(*) AS n FROM a GROUP BY g HAVING COUNT(*) > 2 OR EXISTS (SELECT 1 FROM d WHERE d.g = a.g)",
]


@pytest.fixture(scope="module")
def duckdb_judge() -> Iterator[DuckdbJudge]:
    yield DuckdbJudge()


SHORT = (PIVOTS[1], PIVOTS[2], PIVOTS[3], CLAUSES[1], CLAUSES[4], CLAUSES[5], CLAUSES[9])


@pytest.mark.spark
@pytest.mark.parametrize("sql", long_except([*PIVOTS, *CLAUSES], *SHORT))
def test_changes_add_up_to_the_recomputed_result(spark: Any, duckdb_judge: DuckdbJudge, sql: str) -> None:
    for number in range(examples(3, 10)):
        rng = random.Random(f"{SEED} {sql} {number}")
        check_changes(Judge(spark, sql, rng), NoJudge() if sql in PIVOTS else duckdb_judge, rng)


@pytest.mark.slow
@pytest.mark.parametrize("sql", [sql for sql in CLAUSES if "WITH ROLLUP" not in sql])  # DuckDB writes ROLLUP (…)
def test_changes_add_up_in_duckdb(sql: str) -> None:
    histories = (random.Random(f"{SEED} {sql} {number}") for number in range(examples(4, 40)))
    check_changes_in_duckdb(sql, operators_of(sql), in_duckdb(sql), *histories)


class NoJudge(DuckdbJudge):
    """DuckDB counts 0, and not null, for a value without rows."""

    def differences(self, *_: Any) -> list[str]:
        return []


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT * FROM (SELECT g, s, v FROM a) PIVOT (COUNT(*) AS n, MAX(s) AS m FOR v IN (1, 2))", "to be a number"),
        ("SELECT * FROM (SELECT g, v FROM a) PIVOT (SUM(v) FOR g IN (1 AS x, 1 AS y))", "listed twice"),
        ("SELECT id FROM a WHERE v = 9 OR g IN ((SELECT n FROM d ORDER BY n) LIMIT 1)", "after its parentheses"),
        ("SELECT g, SUM(v) AS s FROM a GROUP BY ALL QUALIFY ROW_NUMBER() OVER (ORDER BY g) < 3", "GROUP BY ALL beside"),
        ("SELECT * FROM (SELECT x, v FROM c) PIVOT (SUM(v) FOR x IN (1, 2))", "a column of this type"),
        ("SELECT id, k, n FROM (SELECT id, g, v FROM a) UNPIVOT (n FOR k IN (g, v))", "UNPIVOT"),
    ],
)
def test_other_forms_have_no_rule(sql: str, reason: str) -> None:
    with pytest.raises(NotMaintainable) as error:
        operators_of(sql)
    assert reason in error.value.reason
