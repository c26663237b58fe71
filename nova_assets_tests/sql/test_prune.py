"""Which partitions a query reads, told from the query alone."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

import nova_assets as nova
from nova_assets.errors import SqlError
from nova_assets.sql.datasets.graph_builder import build_graph
from nova_assets.sql.pruning.prune import PartitionPruner
from nova_assets.sql.text import SqlText
from nova_assets_tests.sql.rig import PARTITIONS, STORES, days, query, reads

ALL = days(28, 32, *STORES)


@pytest.mark.parametrize("side", ["RIGHT", "FULL"])
@pytest.mark.parametrize("read", ["({}) JOIN sales b USING (store)", "{} JOIN sales b USING (store)"])
def test_a_column_of_either_side_says_nothing_of_the_one(read: str, side: str) -> None:
    """After such a join the column is that of a store without sales, too."""
    first = f"(SELECT * FROM sales WHERE store = 'Paris') s {side} JOIN stores t USING (store)"
    assert reads(f"SELECT b.product FROM {read.format(first)}")[2] == days(28, 32, "Detroit", "Paris")


def test_joins_in_parentheses_are_joins() -> None:
    sql = "SELECT a.product FROM sales a {} (visits b JOIN stores c ON b.source = c.city) ON a.store = c.store {}"
    first, second = days(30, 30, "Detroit", "Paris"), days(30, 30)
    inner = sql.format("JOIN", "WHERE b.day = DATE '2022-03-30' AND a.day = '2022-03-30'")
    assert reads(inner) == [first, second, {""}]
    assert reads(sql.format("LEFT JOIN", "AND b.day = DATE '2022-03-30' WHERE a.day = '2022-03-30'")) == [
        first,
        second,
        {""},
    ]
    assert reads(sql.format("FULL JOIN", "AND b.day = DATE '2022-03-30'"))[1] == days(28, 32), "its other rows stay"


@pytest.mark.parametrize(
    ("condition", "read"),
    [
        ("day = '2022-03-31'", days(31, 31, *STORES)),
        ("day = :p", days(30, 30, *STORES)),
        ("day = p", days(30, 30, *STORES)),
        ("'2022-03-31' = day AND store = 'Paris'", days(31, 31, "Paris")),
        ("day <> '2022-03-31'", days(28, 30, *STORES) | days(32, 32, *STORES)),
        ("day IN ('2022-03-29', '2022-03-31', '1999-01-01')", days(29, 29, *STORES) | days(31, 31, *STORES)),
        ("day NOT IN ('2022-03-29', '2022-03-31')", ALL - days(29, 29, *STORES) - days(31, 31, *STORES)),
        ("day BETWEEN DATE_SUB(p, 1) AND p", days(29, 30, *STORES)),
        ("day NOT BETWEEN '2022-03-29' AND '2022-03-31'", days(28, 28, *STORES) | days(32, 32, *STORES)),
        ("day >= DATE_ADD(p, 1) AND day < '2022-04-01'", days(31, 31, *STORES)),
        ("day > p - INTERVAL 1 DAY", days(30, 32, *STORES)),
        ("DATE(day) = LAST_DAY(p)", days(31, 31, *STORES)),
        ("MONTH(day) = 4", days(32, 32, *STORES)),
        ("DATE_FORMAT(day, 'yyyy-MM') = '2022-03'", days(28, 31, *STORES)),
        ("TRUNC(day, 'MM') = DATE '2022-04-01'", days(32, 32, *STORES)),
        ("SUBSTRING(day, 9, 2) = '29'", days(29, 29, *STORES)),
        ("store LIKE 'P%'", days(28, 32, "Paris")),
        ("UPPER(store) = 'PARIS'", days(28, 32, "Paris")),
        ("store || '/' || day = 'Paris/2022-03-31'", days(31, 31, "Paris")),
        ("day IS NULL", set()),
        ("day IS NOT NULL", ALL),
        ("day = NULL", set()),
        ("day <=> '2022-03-31'", days(31, 31, *STORES)),
        ("NOT (day = '2022-03-31' OR store = 'Paris')", days(28, 30, "Detroit") | days(32, 32, "Detroit")),
        ("(day, store) = ('2022-03-31', 'Paris') OR FALSE", ALL),
        (
            "CASE WHEN store = 'Paris' THEN day = p ELSE day = '2022-03-28' END",
            {"2022-03-30/Paris", "2022-03-28/Detroit"},
        ),
        ("COALESCE(day, '2022-03-31') = p", days(30, 30, *STORES)),
        ("day = '2022-03-31' OR pieces > 3", ALL),
        ("day = '2022-03-31' AND pieces > 3", days(31, 31, *STORES)),
        ("day = '2022-03-31' OR (store = 'Paris' AND pieces > 3)", days(31, 31, *STORES) | days(28, 32, "Paris")),
        ("day = '2022-03-31' AND RAND() < 0.5", days(31, 31, *STORES)),
        ("day = CAST(sold_at AS DATE)", ALL),
        ("TRUE", ALL),
        ("FALSE", set()),
    ],
)
def test_a_condition_takes_away_what_it_would_drop(condition: str, read: set[str]) -> None:
    assert reads(f"SELECT product FROM sales WHERE {condition}", p="2022-03-30") == [read]


@pytest.mark.parametrize(
    ("sql", "read"),
    [
        (
            "SELECT 1 AS x FROM sales s JOIN visits v ON v.day = s.day WHERE s.day = :p",
            [days(30, 30, *STORES), days(30, 30)],
        ),
        (
            "SELECT 1 AS x FROM sales s, visits v WHERE v.day = DATE_SUB(s.day, 1) AND s.day = :p",
            [days(30, 30, *STORES), days(29, 29)],
        ),
        (
            "SELECT 1 AS x FROM sales s JOIN sales t ON (t.day, 1) = (s.day, 1) WHERE s.day = :p",
            [days(30, 30, *STORES), ALL],
        ),
        (
            "SELECT 1 AS x FROM sales s JOIN sales t USING (day, store) WHERE s.day = :p AND t.store = 'Paris'",
            [days(30, 30, "Paris"), days(30, 30, "Paris")],
        ),
        (
            "SELECT 1 AS x FROM sales s LEFT JOIN visits v ON v.day = s.day AND s.store = 'Paris' WHERE s.day >= :p",
            [days(30, 32, *STORES), days(30, 32)],
        ),
        (  # a visit of that day decides that there is no null
            "SELECT 1 AS x FROM sales s LEFT JOIN visits v ON v.day = s.day WHERE s.day = :p AND v.day IS NULL",
            [days(30, 30, *STORES), days(30, 30)],
        ),
        (  # nulls would be dropped, so it is as good as inner
            "SELECT 1 AS x FROM sales s LEFT JOIN visits v ON v.day = s.day WHERE v.day = :p",
            [days(30, 30, *STORES), days(30, 30)],
        ),
        (
            "SELECT 1 AS x FROM visits v RIGHT JOIN sales s ON v.day = s.day AND s.day = :p",
            [days(30, 30), days(28, 32, *STORES)],
        ),
        (
            "SELECT 1 AS x FROM visits v FULL JOIN sales s ON v.day = s.day AND s.day = :p",
            [days(28, 32), days(28, 32, *STORES)],
        ),
        (
            "SELECT 1 AS x FROM sales s LEFT SEMI JOIN visits v ON v.day = s.day AND v.day = :p",
            [days(30, 30, *STORES), days(30, 30)],
        ),
        (
            "SELECT 1 AS x FROM sales s LEFT ANTI JOIN visits v ON v.day = s.day AND v.day = :p",
            [ALL, days(30, 30)],
        ),
        (
            "SELECT 1 AS x FROM sales s LEFT JOIN visits v ON v.day = s.day LEFT JOIN sales t ON t.day = v.day "
            "WHERE s.day = :p",
            [days(30, 30, *STORES), days(30, 30), days(30, 30, *STORES)],
        ),
        (
            "SELECT 1 AS x FROM sales s JOIN stores t ON t.store = s.store WHERE s.day = :p AND t.city = 'Paris'",
            [days(30, 30, *STORES), {""}],
        ),
    ],
)
def test_a_join_hands_on_what_it_compares(sql: str, read: list[set[str]]) -> None:
    assert reads(sql, p="2022-03-30") == read


@pytest.mark.parametrize(
    ("sql", "read"),
    [
        ("WITH c AS (SELECT * FROM sales) SELECT product FROM c WHERE c.day = :p", [days(30, 30, *STORES)]),
        (
            "SELECT q.d FROM (SELECT day AS d, slug(store) AS s FROM sales) q "
            "WHERE q.d = '2022-03-30' OR (q.d = '2022-03-31' AND q.s = 'y')",
            [days(30, 31, *STORES)],
        ),
        (
            "WITH c AS (SELECT day AS d, store AS s FROM sales), e AS (SELECT d, s FROM c WHERE s = 'Paris') "
            "SELECT 1 AS x FROM e JOIN visits v ON v.day = e.d WHERE v.day = :p",
            [days(30, 30, "Paris"), days(30, 30)],
        ),
        (
            "SELECT 1 AS x FROM "
            "(SELECT day, store, SUM(pieces) n FROM sales GROUP BY day, store HAVING store = 'Paris') g "
            "WHERE g.day = :p AND g.n > 3",
            [days(30, 30, "Paris")],
        ),
        ("SELECT 1 AS x FROM (SELECT store, MAX(day) AS day FROM sales GROUP BY store) g WHERE g.day = :p", [ALL]),
        (
            "SELECT 1 AS x FROM (SELECT day, SUM(pieces) n FROM sales GROUP BY ROLLUP (day)) g WHERE g.day = :p",
            [ALL],
        ),
        (
            "SELECT 1 AS x FROM (SELECT *, RANK() OVER (PARTITION BY day ORDER BY pieces) r FROM sales) g "
            "WHERE g.day = :p AND g.store = 'Paris'",
            [days(30, 30, *STORES)],
        ),
        ("SELECT 1 AS x FROM (SELECT * FROM sales ORDER BY pieces LIMIT 3) g WHERE g.day = :p", [ALL]),
        ("SELECT 1 AS x FROM (SELECT DISTINCT day FROM sales) g WHERE g.day = :p", [days(30, 30, *STORES)]),
        (
            "SELECT d FROM (SELECT day AS d FROM sales UNION ALL SELECT CAST(day AS STRING) FROM visits) u "
            "WHERE u.d = :p",
            [days(30, 30, *STORES), days(30, 30)],
        ),
        (  # both become dates, and as dates more may be equal
            "SELECT day FROM (SELECT day FROM sales UNION ALL SELECT day FROM visits) u WHERE u.day = :p",
            [ALL, days(28, 32)],
        ),
        (
            "SELECT 1 AS x FROM visits WHERE day IN (SELECT day FROM visits INTERSECT SELECT day FROM sales)",
            [days(28, 32), days(28, 32), ALL],
        ),
        (
            "WITH RECURSIVE c AS (SELECT DATE'2022-03-28' AS d UNION ALL SELECT DATE_ADD(d, 1) AS d FROM c "
            "WHERE d < DATE'2022-03-31') SELECT 1 AS x FROM visits JOIN c ON visits.day = c.d",
            [days(28, 32)],
        ),
        ("SELECT 1 AS x FROM ((SELECT * FROM sales) ORDER BY pieces LIMIT 3) t WHERE t.day = :p", [ALL]),
        ("WITH t AS ((SELECT * FROM sales) LIMIT 3) SELECT 1 AS x FROM t WHERE t.day = :p", [ALL]),
        ("SELECT 1 AS x FROM sales TABLESAMPLE (3 ROWS) s WHERE s.day = :p", [ALL]),
        (
            "SELECT 1 AS x FROM (visits v LEFT JOIN sales s ON s.day = v.day) WHERE s.day IS NULL",
            [days(28, 32), ALL],
        ),
        (
            "SELECT 1 AS x FROM visits v LEFT JOIN (sales s JOIN stores t ON t.store = s.store) ON s.day = v.day "
            "WHERE s.day IS NULL",
            [days(28, 32), ALL, {""}],
        ),
        (
            "SELECT day, (SELECT SUM(visitors) FROM visits v WHERE v.day <> DATE'2022-03-31' OR s.day IS NULL) AS n "
            "FROM sales s GROUP BY ROLLUP (day)",
            [days(28, 32), ALL],
        ),
        (
            "SELECT day FROM sales WHERE day = :p EXCEPT SELECT CAST(day AS STRING) FROM visits WHERE day < :p",
            [days(30, 30, *STORES), days(28, 29)],
        ),
        (
            "SELECT product FROM sales s WHERE s.day = :p AND EXISTS (SELECT 1 FROM visits v WHERE v.day = s.day)",
            [days(30, 30, *STORES), days(30, 30)],
        ),
        (
            "SELECT product FROM sales s WHERE s.day = :p AND NOT EXISTS (SELECT 1 FROM visits v WHERE v.day > s.day)",
            [days(30, 30, *STORES), days(31, 32)],
        ),
        (
            "SELECT product FROM sales s WHERE s.day IN (SELECT CAST(day AS STRING) FROM visits WHERE day >= :p)",
            [days(30, 32, *STORES), days(30, 32)],
        ),
        (
            "SELECT product, (SELECT MAX(v.visitors) FROM visits v WHERE v.day = s.day) AS m "
            "FROM sales s WHERE s.day = :p",
            [days(30, 30), days(30, 30, *STORES)],
        ),
        (
            "WITH c AS (SELECT day, store FROM sales) SELECT 1 AS x FROM c a JOIN c b ON a.store = b.store "
            "WHERE a.day = '2022-03-28' AND b.day = :p",
            [days(28, 28, *STORES) | days(30, 30, *STORES)],
        ),
        (
            "SELECT s.product, e FROM sales s LATERAL VIEW EXPLODE(ARRAY(1, 2)) t AS e WHERE s.day = :p AND e > 1",
            [days(30, 30, *STORES)],
        ),
    ],
)
def test_a_condition_is_followed_as_far_down_as_rows_may_be_dropped(sql: str, read: list[set[str]]) -> None:
    assert reads(sql, p="2022-03-30") == read


@pytest.mark.parametrize(
    ("read", "other"),
    [
        ("sales s JOIN stores t ON t.store = s.product WHERE s.day = '1999-01-01'", set()),
        ("stores t, sales s WHERE t.store = s.product AND s.day = '1999-01-01'", set()),
        ("sales s LEFT JOIN stores t ON t.store = s.product WHERE s.day = '1999-01-01'", set()),
        ("stores t LEFT JOIN sales s ON s.product = t.store AND s.day = '1999-01-01'", {""}),
        ("stores t LEFT JOIN sales s ON s.product = t.store WHERE s.day = '1999-01-01'", set()),
        ("stores t FULL JOIN sales s ON s.product = t.store AND s.day = '1999-01-01'", {""}),
        ("stores t LEFT ANTI JOIN sales s ON s.product = t.store AND s.day = '1999-01-01'", {""}),
    ],
)
def test_beside_nothing_nothing_else_is_read(read: str, other: set[str]) -> None:
    asked = query(f"SELECT 1 AS x FROM {read}")
    found = PartitionPruner(asked).required_partitions(PARTITIONS, {})
    [stores] = [s.number for s in asked.scans if s.dataset == "stores"]
    assert {""} - other == ({""} if not found[stores] else set())


def test_modes_and_all_of_it() -> None:
    read = reads(
        "SELECT n.product FROM NEW(sales) n JOIN OLD(sales) o ON o.day = n.day JOIN WHOLE(visits) v ON v.day = n.day "
        "WHERE n.day = :p AND v.day = :p",
        p="2022-03-30",
    )
    assert read == [days(30, 30, *STORES), days(30, 30, *STORES), days(28, 32)]


def test_a_date_beside_texts_and_moments() -> None:
    assert reads("SELECT 1 AS x FROM visits WHERE day = '2022-03-30'") == [days(30, 30)]
    assert reads("SELECT 1 AS x FROM visits WHERE day > TIMESTAMP '2022-03-30 00:00:00'") == [days(31, 32)]
    assert reads("SELECT 1 AS x FROM visits WHERE day = :p + 1", p=date(2022, 3, 30)) == [days(31, 31)]


@pytest.mark.parametrize(
    ("condition", "read"),
    [
        ("store NOT LIKE 'P%'", days(28, 32, "Detroit")),
        ("store LIKE 'x%%' ESCAPE 'x'", set()),
        ("store LIKE ANY ('P%', 'D%')", ALL),
        ("store RLIKE 'P.*'", ALL),
        ("CONCAT_WS('/', day, store) = '2022-03-31/Paris'", days(31, 31, "Paris")),
        ("TRUNC(day, 'Q') IS NULL", ALL),
        ("TRUNC(day, 'Q') IS NOT NULL", set()),
        ("day + INTERVAL 1 DAY > '2022-04-01'", days(31, 32, *STORES)),
        ("CAST(day + INTERVAL 24 HOURS AS STRING) = '2022-04-01 00:00:00'", days(31, 31, *STORES)),
        ("(day, store) IN (('2022-03-31', 'Paris'))", ALL),
        ("day NOT IN (SELECT CAST(day AS STRING) FROM visits)", ALL),
        ("day = (SELECT MAX(CAST(day AS STRING)) FROM visits)", ALL),
        ("store = 'Paris' AND day >= CURRENT_DATE()", days(28, 32, "Paris")),
        ("my_udf(day)", ALL),
        ("DATE_FORMAT(day, 'E') = 'Mon'", ALL),
        ("TRIM(LEADING 'P' FROM store) = 'aris'", days(28, 32, "Paris")),
        ("WEEKDAY(day) = 3", days(31, 31, *STORES)),
        ("COALESCE(day, DATE'2022-03-01') = '2022-3-31'", ALL),
        ("day IN ('2022-3-31', DATE'2022-03-30')", ALL),
        ("CAST(day AS BOOLEAN)", ALL),
        ("day > 5", ALL),
        ("NULLIF(store, 'Paris') IS NULL", days(28, 32, "Paris")),
        ("NVL2(store, day, 'x') = '2022-03-31'", days(31, 31, *STORES)),
        ("REPLACE(day, '-') = '20220331'", days(31, 31, *STORES)),
        ("LPAD(day, 2000000000, 'x') = 'x'", ALL),
        ("REPEAT(day, 2000000000) = 'x'", ALL),
    ],
)
def test_a_condition_is_understood_completely_or_prunes_nothing(condition: str, read: set[str]) -> None:
    assert reads(f"SELECT product FROM sales WHERE {condition}")[0] == read


@pytest.mark.parametrize("source", ["sales", "(SELECT day, product FROM sales)"])
def test_a_value_that_only_spark_decides_is_kept_beside_equal_ones(source: str) -> None:
    partitions = {"sales": [{"day": day, "store": "Paris"} for day in ("2022-03-29", "2022-03-30", "soon", None)]}
    asked = query(f"SELECT product FROM {source} s WHERE CAST(s.day AS DATE) = :d", d=date(2022, 3, 30))
    assert PartitionPruner(asked).required_partitions(partitions, {"d": date(2022, 3, 30)}) == {0: (1, 2)}


def test_columns_have_the_names_that_the_alias_gives() -> None:
    renamed = "FROM sales AS s(store, day, product, pieces, price, sold_at)"
    assert reads(f"SELECT s.product {renamed} WHERE s.store = '2022-03-31'") == [days(31, 31, *STORES)]
    assert reads(f"SELECT product {renamed} WHERE day = 'Paris'") == [days(28, 32, "Paris")]
    with pytest.raises(SqlError, match="s has aliases for 1 of 6 columns"):
        reads("SELECT s.x FROM sales AS s(x)")


def test_several_columns_of_one_source_are_put_to_another() -> None:
    sql = (
        "SELECT s.product FROM (SELECT * FROM sales) s JOIN (SELECT * FROM sales WHERE store = 'Paris' "
        "AND day = '2022-03-31') b ON CONCAT(s.store, s.day) = CONCAT(b.store, b.day)"
    )
    assert reads(sql) == [days(31, 31, "Paris"), days(31, 31, "Paris")]


@pytest.mark.parametrize(
    ("join", "where", "read"),
    [
        ("LEFT SEMI JOIN visits v ON v.visitors = s.pieces AND v.day IS NULL", "TRUE", (0, 0)),
        ("LEFT ANTI JOIN visits v ON v.visitors = s.pieces AND v.day IS NULL", "TRUE", (10, 0)),
        ("LEFT ANTI JOIN visits v ON v.visitors = s.pieces", "s.day IS NULL", (0, 0)),
        ("RIGHT JOIN visits v ON v.visitors = s.pieces", "v.day IS NULL", (0, 0)),
        ("FULL JOIN visits v ON v.visitors = s.pieces AND s.day IS NULL", "s.day IN ('2022-03-30')", (2, 0)),
        ("FULL JOIN visits v ON v.day = CAST(s.day AS DATE)", "s.day = '2022-03-30' OR s.day IS NULL", (10, 5)),
    ],
)
def test_a_side_without_rows_empties_the_other_where_it_is_needed(join: str, where: str, read: tuple[int, ...]) -> None:
    sql = f"SELECT s.day FROM (SELECT * FROM sales) s {join} WHERE {where}"
    assert tuple(len(partitions) for partitions in reads(sql)) == read


@pytest.mark.parametrize(
    ("tz", "start", "hour", "hours"),
    [
        ("Asia/Tokyo", "2022-10-29T00:00", 7, ["2022-10-29T07:00", "2022-10-30T07:00"]),
        ("Europe/Berlin", "2022-10-30T00:00", 2, ["2022-10-30T02:00", "2022-10-30T02:00+0100"]),  # it occurs twice
    ],
)
def test_r22_hours_without_a_zone_are_those_of_the_names(tz: str, start: str, hour: int, hours: list[str]) -> None:
    """Of an hourly dimension in a time zone, a ``timestamp_ntz`` column has the wall clock of the partition's name."""
    channel = nova.Channel(
        "hours", schema="n int, hour timestamp_ntz", partitions=[nova.hourly("hour", start=start, tz=tz)]
    )
    graph = build_graph([SqlText("result.sql", f"SELECT n FROM hours WHERE HOUR(hour) = {hour}")], [channel])
    [read] = graph.required_reads("result", "", datetime(2022, 10, 30, 12, tzinfo=UTC))
    assert read.partitions == tuple(f"hour={name}" for name in hours)
