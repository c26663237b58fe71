"""Statements that are no SQL: each is refused with its file, line and a caret, soon, and never by another exception.

``NOVA_FUZZ_STEPS`` is the number of statements, ``NOVA_FUZZ_SEED`` begins elsewhere.
"""

from __future__ import annotations

import os
import random
import re
import resource
import time
from collections.abc import Iterator

import pytest

import nova_assets as nova
from nova_assets.errors import SqlError
from nova_assets.sql.datasets.graph_builder import build_graph
from nova_assets.sql.text import SqlText
from nova_assets_tests.effort import examples
from nova_assets_tests.sql.rig import NOW

COUNT = examples(100, 400)
SEED = int(os.environ.get("NOVA_FUZZ_SEED", "25"))

CHANNELS = [
    nova.Channel(
        "sales",
        schema="day string, store string, product string, pieces int, price decimal(10,2), sold_at timestamp",
        partitions=[nova.daily("day", start="2022-03-28"), nova.static("store", ["Detroit", "Paris"])],
    ),
    nova.Channel("visits", schema="day date, visitors int, source string"),
]

GOOD = (
    "SELECT store, SUM(pieces) AS n FROM sales WHERE day = '2022-03-31' GROUP BY store HAVING SUM(pieces) > 3",
    "SELECT s.day, v.visitors FROM sales s LEFT JOIN visits v ON v.day = CAST(s.day AS DATE) WHERE s.store LIKE 'P%'",
    "WITH c AS (SELECT day, COUNT(*) AS n FROM sales GROUP BY day), d AS (SELECT * FROM c) "
    "SELECT c.day, d.n FROM c JOIN d USING (day)",
    "FOR t IN TIMESERIES('2022-03-28', '2022-03-31'), store IN ('Detroit', 'Paris')\n"
    "LET d = DATE_FORMAT(t, 'yyyy-MM-dd')\nINSERT OVERWRITE x PARTITION (day = d, store)\n"
    "SELECT product, SUM(price) AS price FROM sales WHERE day = :d AND sales.store = :store GROUP BY product",
    "SELECT day, product, RANK() OVER (PARTITION BY day ORDER BY pieces DESC) AS r "
    "FROM sales /* a comment */ -- another",
    "SELECT day FROM sales UNION ALL SELECT CAST(day AS STRING) FROM visits ORDER BY day LIMIT 10",
    "CREATE EXTERNAL TABLE x (n INT, day STRING) USING parquet PARTITIONED BY (day) LOCATION '/x' "
    "TBLPROPERTIES ('done' = '_SUCCESS')",
    "SELECT CASE WHEN pieces IN (1, 2) THEN 'few' ELSE \"many\" END AS how, array(1, 2)[0] AS a, "
    "pieces BETWEEN 1 AND 3 AS b FROM NEW(sales) WHERE EXISTS (SELECT 1 FROM visits v WHERE v.day > DATE '2022-03-01')",
)

BY_NAME = (
    "",
    "  \n",
    ";",
    "SELECT",
    "SELECT a, , b FROM sales",
    "SELECT day FROM sales WHERE day IN",
    "SELECT day, day FROM sales",
    "SELECT store FROM sales GROUP BY store HAVING COUNT(*) > *",
    "WITH a AS (SELECT 1 AS n), a AS (SELECT 2 AS n) SELECT n FROM a",
    "SELECT day FROM sales WHERE COUNT(*) > 1",
    "SELECT SUM(true) AS n FROM sales",
    "SELECT LEAST('a', 1) AS n FROM sales",
    'SELECT day AS "d" FROM sales',
    "SELECT day + 5 days AS d FROM visits",
    "SELECT 'a FROM sales",
    "SELECT day /* FROM sales",
    "SELECT `day FROM sales",
    "CREATE EXTERNAL TABLE x (n int) USING parquet LOCATION TBLPROPERTIES ('done' = '_SUCCESS')",
    "SELECT " + "(" * 3000 + "1" + ")" * 3000 + " AS n",
    "SELECT " + "NOT " * 5000 + "true AS n",
    "SELECT -" * 50,
    "SELECT 1" + " + 1" * 5000 + " AS n",
    "SELECT 1" + " + 1" * 1500 + " FROM sales",
    "SELECT " + "NOT (pieces IS NULL) AND " * 1000 + "true FROM sales",
    "FOR a IN ('x', 'y') INSERT OVERWRITE x PARTITION (p = 'z') SELECT 1 AS n",
    "FOR t IN TIMESERIES(last => 9) INSERT INTO x PARTITION (m = DATE_FORMAT(t, 'yyyy-MM')) SELECT 1 AS n",
    "SELECT CAST(day AS DECIMAL(99,99)) AS n FROM sales",
    "SELECT 1e999999999999 AS n",
    "SELECT 0x AS n",
    "SELECT \x00 AS n",
    "SELECT '\\ud800' AS n FROM",
    "SELECT day FROM sales WHERE LPAD(day, 2000000000, 'x') = 'x' AND",
    "\ufeffSELECT",
    "{{ x }}",
    "SELECT day FROM sales JOIN",
    "SELECT * FROM",
    "SELECT ** FROM sales",
    "FOR",
    "LET a = 1",
    "INSERT OVERWRITE x",
    "SELECT DATE '9' AS d FROM visits",
    "SELECT DATE 1200 AS d FROM visits",
    "SELECT pieces FROM sales WHERE pieces BETWEEN 1 3",
    "SELECT pieces FROM sales WHERE pieces BETWEEN NOT 1 AND 3",
    "SELECT CASE WHEN pieces > 1 pieces END AS n FROM sales",
    "SELECT day FROM sales LIMIT 3 WHERE store = 'Paris'",
    "SELECT day FROM sales HAVING COUNT(*) > 1, visits",
    "SELECT day FROM sales GROUP BY ORDER BY day",
    "SELECT day FROM sales GROUP BY ALL store",
    "SELECT day FROM sales WHERE store IN LEFT (SELECT 'x')",
    "SELECT day FROM sales WHERE store IN ('a', SELECT 'x')",
    "SELECT day FROM sales WHERE pieces IS 0",
    "SELECT day FROM sales WHERE store IN ('a') < 'b'",
    "SELECT day FROM sales WHERE store ! LIKE 'a'",
    "SELECT day FROM sales WHERE pieces NOT NULL",
    "SELECT day FROM sales WHERE pieces < < 3",
    "SELECT day FROM sales WHERE pieces = . 5",
    "SELECT day FROM sales WHERE day -> store",
    "SELECT day FROM sales WHERE sold_at + INTERVAL 5 > sold_at",
    "SELECT day FROM sales WHERE pieces = +",
    "SELECT day FROM sales ORDER BY $ DESC",
    "SELECT day FROM sales WHERE pieces = ?",
    "SELECT (day store) AS d FROM sales",
    "SELECT day 'd' FROM sales",
    "SELECT day FROM sales 's', visits",
    "SELECT day AS => , store FROM sales",
    "SELECT (SUM(pieces)) OVER (PARTITION BY day) AS n FROM sales",
    "SELECT SUM(pieces) OVER AS n FROM sales",
    "SELECT SUM(pieces) OVER (PARTITION BY ORDER BY day) AS n FROM sales",
    "SELECT SUM(pieces) OVER (ORDER BY day ROWS BETWEEN UNBOUNDED AND CURRENT ROW) AS n FROM sales",
    "SELECT SUBSTRING(day, 1, 2 d FROM sales",
    "SELECT CAST(day AS DECIMAL(7, 2 DESC)) AS n FROM sales",
    "SELECT day FROM * sales",
    "SELECT day FROM sales * WHERE pieces = 1",
    "SELECT day FROM sales LIMIT 10 %",
    "SELECT day FROM sales WHERE pieces > ALL (SELECT 1)",
    "SELECT ABS(ORDER BY pieces) AS n FROM sales",
    "SELECT pieces FROM sales WHERE pieces (SELECT 1)",
    "SELECT SUBSTRING(day FROM FOR 2) AS d FROM sales",
    "SELECT day FROM sales ! WHERE pieces = 1",
    "SELECT COALESCE(day, DISTINCT '') AS d FROM sales",
    "SELECT day FROM sales WHERE sold_at > INTERVAL 'soon'",
    "SELECT day FROM sales WHERE pieces IS NOT NULL = store IS NULL",
    "SELECT day FROM sales WHERE store LIKE 'a' IS NULL",
    "SELECT day FROM sales WHERE pieces IS NULL IS NULL",
    "SELECT day FROM sales WHERE pieces IS NULL BETWEEN true AND false",
    "SELECT day FROM sales WHERE pieces IS DISTINCT FROM 1 IS NULL",
    "SELECT SUM(pieces) OVER (ORDER BY day ROWS UNBOUNDED PRECEDING AND CURRENT ROW) AS n FROM sales",
    "SELECT LENGTH(day).LENGTH(store) AS n FROM sales",
    "SELECT CAST(day AS UNION) AS n FROM sales",
    "SELECT CAST(day AS JSON) AS n FROM sales",
    "SELECT s.day FROM visits, . sales s",
    "SELECT s.day FROM sales * s",
)

CONDITIONS_AS_VALUES = (
    "(pieces IS NULL) = (store IS NOT NULL)",
    "(store LIKE 'a') IS NULL",
    "pieces = 1 IS NOT NULL",
    "NOT pieces IS NULL",
    "pieces IS NOT DISTINCT FROM 1",
)


def mutated(rng: random.Random) -> str:
    """A good statement with a few characters or words changed."""
    text = rng.choice(GOOD)
    for _ in range(rng.choice((1, 1, 2, 3))):
        words = re.findall(r"\s+|\w+|.", text)
        n = rng.randrange(len(words))
        kind = rng.choice(("drop", "twice", "swap", "cut", "other", "character"))
        if kind == "drop":
            del words[n]
        elif kind == "twice":
            words.insert(n, words[n])
        elif kind == "swap":
            m = rng.randrange(len(words))
            words[n], words[m] = words[m], words[n]
        elif kind == "cut":
            words = words[: max(1, n)]
        elif kind == "other":
            words[n] = rng.choice(
                ("(", ")", ",", "'", '"', "`", "*", "SELECT", "FROM", "NULL", "x", "1", ":", "=>", "/*", "--", "[", ".")
            )
        else:
            words[n] = chr(rng.choice((0, 34, 39, 40, 92, 96, 233, 0x1F600, 0xFEFF)))
        text = "".join(words) or " "
    return text


def statements() -> Iterator[str]:
    yield from BY_NAME
    rng = random.Random(SEED)
    yield from (mutated(rng) for _ in range(COUNT))


@pytest.mark.slow
@pytest.mark.timeout(max(300, COUNT))
def test_what_is_no_sql_is_refused_with_its_place(caplog: pytest.LogCaptureFixture) -> None:
    refused, wrong = 0, []
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for sql in statements():
        begun = time.process_time()
        try:
            found = build_graph([SqlText("x.sql", sql)], CHANNELS)
            for name in found.datasets:
                for partition in list(found.scopes_by_partition(name, NOW))[:2]:
                    found.required_reads(name, partition, NOW)
        except SqlError as error:
            refused += 1
            if not (re.search(r"x\.sql:\d+:\d+: ", str(error)) and "^" in str(error)):
                wrong.append(f"{sql[:200]!r}: no place: {str(error)[:200]}")
        except Exception as error:
            wrong.append(f"{sql[:200]!r}: {type(error).__name__}: {str(error)[:200]}")
        if time.process_time() - begun > 20:  # the work grows with the text, not faster, also on a slow machine
            wrong.append(f"{sql[:200]!r}: took {time.process_time() - begun:.1f} s")
    assert wrong == [], f"{len(wrong)}:\n" + "\n".join(wrong)
    assert refused > COUNT / 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024, "KiB more than before"
    assert caplog.records == []


@pytest.mark.parametrize("sql", [s for s in BY_NAME if s != "SELECT 1" + " + 1" * 5000 + " AS n"])
def test_by_name(sql: str) -> None:
    with pytest.raises(SqlError, match=r"x\.sql:\d+:\d+: "):
        found = build_graph([SqlText("x.sql", sql)], CHANNELS)
        for name in found.datasets:
            found.scopes_by_partition(name, NOW)


@pytest.mark.parametrize("condition", CONDITIONS_AS_VALUES)
def test_conditions_in_parentheses_are_values(condition: str) -> None:
    build_graph([SqlText("x.sql", f"SELECT day FROM sales WHERE {condition}")], CHANNELS)
