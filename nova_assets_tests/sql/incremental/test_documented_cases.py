"""The cases and limits that two other projects document for views which they maintain from changes.

- pg_ivm (https://github.com/sraoss/pg_ivm) maintains views of PostgreSQL by triggers. Its README, its release notes
  and its issues name the supported queries, the restrictions, and past troubles: nulls in rows and in group keys,
  copies of rows, several tables changed at once, truncated tables, and groups that lose their extreme.
- OpenIVM (https://github.com/ila/openivm) compiles views of DuckDB to SQL that maintains them; its pages on operators
  and limits say what is maintained, what is computed again by group, and what as a whole.

Each case has a query of our own over three tables of our own. Most of their restrictions do not apply here, so most
cases are maintained. The others are computed again as a whole, or refused when they are defined; the reason is tested.
All queries go through one history, and Spark computes each result again after each step. ``make test`` runs a few of
the cases, ``make test-all`` runs more, and all run if ``NOVA_FUZZ_STEPS`` is set.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

import nova_assets as nova
from nova_assets.sql.incremental import maintenance_choice
from nova_assets.sql.incremental.operators import NotMaintainable
from nova_assets_tests.effort import EVERYTHING
from nova_assets_tests.sql.incremental.spark_recompute import create_views, stored_rows
from nova_assets_tests.sql.incremental.test_refusals import OUTPUT, operators

ITEMS = nova.Channel("items", merge=nova.Upsert(key="id"), schema="id int, shop int, price int, tags string")
SHOPS = nova.Channel("shops", merge=nova.Upsert(key="sid"), schema="sid int, town string, floor int")
VISITS = nova.Channel("visits", merge=nova.Multiset(), schema="shop int, who string")

EMPTY = {
    "items": pa.schema({"id": pa.int32(), "shop": pa.int32(), "price": pa.int32(), "tags": pa.string()}),
    "shops": pa.schema({"sid": pa.int32(), "town": pa.string(), "floor": pa.int32()}),
    "visits": pa.schema({"shop": pa.int32(), "who": pa.string()}),
}

MAINTAINED = {
    # rows, copies and DISTINCT
    "rows with nulls": "SELECT id, shop, price FROM items",
    "copies are kept": "SELECT who FROM visits",
    "distinct rows of copies": "SELECT DISTINCT shop, who FROM visits",
    "distinct rows of a join": "SELECT DISTINCT town FROM items JOIN shops ON shop = sid",
    "the order of rows has no meaning": "SELECT id, price FROM items ORDER BY price",
    # aggregates
    "groups with nulls and extremes": "SELECT shop, COUNT(*) AS n, COUNT(price) AS c, SUM(price) AS s, "
    "AVG(price) AS a, MIN(price) AS lo, MAX(price) AS hi FROM items GROUP BY shop",
    "aggregates of all rows": "SELECT COUNT(*) AS n, COUNT(price) AS c, SUM(price) AS s, AVG(price) AS a FROM items",
    "extremes of all rows": "SELECT MIN(price) AS lo, MAX(price) AS hi FROM items",
    "groups of copies": "SELECT who, COUNT(*) AS n, MAX(shop) AS hi FROM visits GROUP BY who",
    "a condition that holds for no row at first": "SELECT shop, SUM(price) AS s FROM items WHERE price > 80 "
    "GROUP BY shop",
    "a group key that is not in the result": "SELECT COUNT(*) AS n FROM items GROUP BY shop",
    "groups without an aggregate": "SELECT shop, price FROM items GROUP BY shop, price",
    "expressions of aggregates": "SELECT shop, SUM(price) / COUNT(*) AS q, CASE WHEN SUM(price) > 40 THEN 'big' "
    "ELSE 'small' END AS size FROM items GROUP BY shop",
    "HAVING": "SELECT shop, COUNT(*) AS n FROM items GROUP BY shop HAVING MAX(price) IS NULL OR SUM(price) > 40",
    "distinct values and FILTER": "SELECT shop, COUNT(DISTINCT who) AS d, COUNT(DISTINCT who) FILTER (WHERE who > 'b') "
    "AS e, COUNT(*) FILTER (WHERE who > 'b') AS f FROM visits GROUP BY shop",
    "ROLLUP": "SELECT shop, price, COUNT(*) AS n, GROUPING(price) AS g FROM items GROUP BY ROLLUP (shop, price)",
    "sorted lists": "SELECT shop, SORT_ARRAY(COLLECT_LIST(who)) AS l FROM visits GROUP BY shop",
    "aggregates without an inverse": "SELECT shop, BOOL_AND(price > 10) AS b, MEDIAN(price) AS m FROM items "
    "GROUP BY shop",
    "distinct aggregates": "SELECT DISTINCT n FROM (SELECT shop, COUNT(*) AS n FROM items GROUP BY shop)",
    # joins and subqueries in FROM
    "a self-join": "SELECT a.id AS a, b.id AS b FROM items a JOIN items b ON a.shop = b.shop AND a.price >= b.price",
    "three tables changed at once": "SELECT i.id, s.town, v.who FROM items i JOIN shops s ON i.shop = s.sid "
    "JOIN visits v ON v.shop = s.sid",
    "a cross join": "SELECT id, sid FROM items CROSS JOIN shops",
    "nested subqueries in FROM": "SELECT t.id, t.town FROM (SELECT i.id, s.town, s.floor FROM items i "
    "JOIN (SELECT * FROM shops) s ON i.shop = s.sid) t WHERE t.floor > 0",
    "an aggregate in FROM": "SELECT i.id, t.n FROM items i JOIN (SELECT shop, COUNT(*) AS n FROM visits GROUP BY shop) "
    "t ON i.shop = t.shop",
    "a nested CTE, and one that is not used": "WITH s AS (WITH u AS (SELECT * FROM shops WHERE floor > 0) "
    "SELECT sid, town FROM u), none AS (SELECT who FROM visits) SELECT i.id, s.town FROM items i, s "
    "WHERE i.shop = s.sid",
    "a CTE used twice": "WITH t AS (SELECT shop, SUM(price) AS s FROM items GROUP BY shop) "
    "SELECT a.shop, b.shop AS other FROM t a JOIN t b ON a.s < b.s",
    # subqueries elsewhere
    "EXISTS with AND": "SELECT price FROM items i WHERE EXISTS (SELECT 1 FROM visits v WHERE v.shop = i.shop) "
    "AND price > 5",
    "EXISTS with OR": "SELECT id FROM items i WHERE EXISTS (SELECT 1 FROM visits v WHERE v.shop = i.shop) "
    "OR price > 20",
    "NOT EXISTS": "SELECT id FROM items i WHERE NOT EXISTS (SELECT 1 FROM visits v WHERE v.shop = i.shop "
    "AND v.who > 'b')",
    "nested EXISTS": "SELECT sid FROM shops s WHERE EXISTS (SELECT 1 FROM items i WHERE i.shop = s.sid AND EXISTS "
    "(SELECT 1 FROM visits v WHERE v.shop = i.shop))",
    "groups over EXISTS": "SELECT shop, COUNT(*) AS n FROM items i WHERE EXISTS (SELECT 1 FROM visits v "
    "WHERE v.shop = i.shop) GROUP BY shop",
    "NOT IN with nulls": "SELECT sid FROM shops WHERE sid NOT IN (SELECT shop FROM visits)",
    "subqueries in SELECT": "SELECT sid, (SELECT COUNT(*) FROM visits v WHERE v.shop = s.sid) AS n, "
    "(SELECT MAX(price) FROM items) AS m FROM shops s",
    "a semi-join": "SELECT sid FROM shops LEFT SEMI JOIN visits ON sid = shop",
    # outer joins
    "USING": "SELECT shop, i.id, v.who FROM items i FULL JOIN visits v USING (shop) WHERE shop IS NULL OR shop > 1",
    "two full joins": "SELECT i.id, s.sid, v.who FROM items i FULL JOIN shops s ON i.shop = s.sid "
    "FULL JOIN visits v ON s.sid = v.shop",
    "an outer join with filters that keep nulls": "SELECT i.id, COALESCE(s.town, 'none') AS town FROM items i "
    "LEFT JOIN shops s ON i.shop = s.sid AND s.floor > 0 WHERE s.sid IS NULL OR s.town > 'b'",
    "an outer join by an inequality": "SELECT s.town, i.id FROM items i RIGHT JOIN shops s ON i.price > s.floor * 10",
    "aggregates of an outer join": "SELECT s.town, COUNT(i.id) AS n, SUM(i.price) AS p FROM shops s "
    "LEFT JOIN items i ON s.sid = i.shop GROUP BY s.town",
    "distinct rows of an outer join": "SELECT DISTINCT s.town, v.who FROM shops s FULL JOIN visits v ON s.sid = v.shop",
    # set operations, windows, generators
    "UNION": "SELECT shop FROM items UNION SELECT shop FROM visits",
    "UNION ALL of groups": "SELECT shop, COUNT(*) AS n FROM items GROUP BY shop UNION ALL "
    "SELECT shop, COUNT(*) FROM visits GROUP BY shop",
    "EXCEPT ALL": "SELECT shop FROM items EXCEPT ALL SELECT shop FROM visits",
    "INTERSECT": "SELECT shop FROM items INTERSECT SELECT shop FROM visits",
    "windows": "SELECT id, RANK() OVER (PARTITION BY shop ORDER BY price) AS r, LAG(price) OVER (PARTITION BY shop "
    "ORDER BY id) AS l, CUME_DIST() OVER (ORDER BY price) AS d FROM items",
    "a window over a join": "SELECT i.id, ROW_NUMBER() OVER (PARTITION BY s.town ORDER BY i.price, i.id) AS r "
    "FROM items i JOIN shops s ON i.shop = s.sid",
    "exploded lists": "SELECT id, EXPLODE(SPLIT(tags, ',')) AS tag FROM items",
    "groups of exploded lists": "SELECT tag, COUNT(*) AS n FROM items LATERAL VIEW EXPLODE(SPLIT(tags, ',')) t AS tag "
    "GROUP BY tag",
    "the first rows of an order": "SELECT id, price FROM items ORDER BY price DESC, id LIMIT 2",
}
COMPUTED_AGAIN = {
    "LATERAL": (
        "SELECT s.sid, t.n FROM shops s, LATERAL (SELECT COUNT(*) AS n FROM visits v WHERE v.shop = s.sid) t",
        "lateral",
    ),
}
SHORT = (
    "groups without an aggregate",
    "groups with nulls and extremes",
    "extremes of all rows",
    "a self-join",
    "an outer join with filters that keep nulls",
    "exploded lists",
    "the first rows of an order",
)


LONG = ("USING", "copies are kept", "HAVING", "two full joins", "EXCEPT ALL", "windows")
CASES = [*MAINTAINED, *COMPUTED_AGAIN] if os.environ.get("NOVA_FUZZ_STEPS") else [*SHORT, *(LONG if EVERYTHING else ())]
"""One deployment computes all of them."""


def item(number: int, shop: int | None, price: int | None, tags: str | None = None) -> dict[str, Any]:
    return {"id": number, "shop": shop, "price": price, "tags": tags, "_deleted": False}


def shop(number: int, town: str, floor: int) -> dict[str, Any]:
    return {"sid": number, "town": town, "floor": floor, "_deleted": False}


def visit(number: int | None, who: str | None) -> dict[str, Any]:
    return {"shop": number, "who": who, "_deleted": False}


def deleted(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"_deleted": True}


HISTORY: dict[str, dict[str, list[dict[str, Any]]]] = {
    "no rows": {"items": [], "shops": [], "visits": []},
    "first rows, with copies and nulls": {
        "items": [
            item(1, 1, 10, "a,b"),
            item(2, 1, 50, "a,a"),
            item(3, 2, None),
            item(4, None, 20, "c"),
            item(5, None, None, "c"),
            item(6, 9, 90, "d"),
        ],
        "shops": [shop(1, "Ash", 1), shop(2, "Bury", 2), shop(3, "Bury", 0)],
        "visits": [visit(1, "ann"), visit(1, "ann"), visit(2, "bob"), visit(None, "bob"), visit(None, None)],
    },
    "extremes are deleted, nulls are updated, and the sum of a group becomes 0": {
        "items": [
            deleted(item(2, 1, 50)),
            deleted(item(6, 9, 90)),
            item(8, 1, -10, "b"),
            item(3, 2, 30, "a"),
            item(7, 2, 30),
        ],
        "visits": [deleted(visit(2, "bob")), visit(2, "cem"), visit(1, "ann"), visit(None, None)],
    },
    "join keys are updated in all tables, and some copies are deleted": {
        "items": [item(1, 3, 10, "b"), item(4, 2, 25), item(7, None, None), item(8, 1, 40)],
        "shops": [deleted(shop(2, "Bury", 2)), shop(9, "Bury", 2), shop(3, "Ash", 0)],
        "visits": [deleted(visit(None, "bob")), visit(3, "bob"), deleted(visit(None, None)), deleted(visit(1, "ann"))],
    },
    "groups become empty": {
        "items": [deleted(item(n, None, None)) for n in (3, 4, 8)],
        "visits": [deleted(visit(1, "ann")), deleted(visit(1, "ann"))],
    },
    "groups come back": {
        "items": [item(8, 1, 5, "z"), item(9, 1, 7), item(3, 2, 99, "a")],
        "shops": [shop(2, "Ash", 1)],
        "visits": [visit(1, "ann"), visit(2, "dan")],
    },
    "a table is emptied": {"items": [], "visits": [visit(2, "dan")]},
}


@dataclass
class Result:
    """What each step of the history gave for one query."""

    found: dict[str, Counter[str]] = field(default_factory=dict)
    expected: dict[str, Counter[str]] = field(default_factory=dict)
    choices: dict[str, dict[str, Any]] = field(default_factory=dict)


def query_of(case: str) -> str:
    return MAINTAINED.get(case) or COMPUTED_AGAIN[case][0]


@pytest.fixture(scope="module")
def results(spark: Any, tmp_path_factory: Any, request: Any) -> dict[str, Result]:
    """The results of those cases that are to be tested, after each step of the history.

    Changes are computed whatever they cost. For tables of this size, a replacement is estimated to cost less.
    """
    calls = [getattr(i, "callspec", None) for i in request.session.items if i.path == request.path]
    cases = [c.params["case"] for c in calls if c is not None and "case" in c.params]
    target = {case: nova.Channel(f"result_{n}", merge=nova.Multiset()) for n, case in enumerate(cases)}
    keeps = [nova.incremental(f"keep_{n}", query_of(c), produces=nova.delta(target[c])) for n, c in enumerate(cases)]
    project = nova.Project([nova.bind(nova.Workflowette("keep", keeps))], channels=[ITEMS, SHOPS, VISITS])
    results = {case: Result() for case in cases}
    folder = tmp_path_factory.mktemp("documented")
    with (
        nova.open(project, f"sqlite:///{folder}/catalog.db", folder / "warehouse", spark) as store,
        mock.patch.object(maintenance_choice, "MAX_PREFERENCE", 1000),
    ):
        store.register(project)
        for step, changes in HISTORY.items():
            for name, rows in changes.items():
                store.insert(name, rows or EMPTY[name].empty_table(), kind="delta" if rows else "base")
            execution = store.run("keep")
            create_views(spark, store, EMPTY)
            for case, report in zip(cases, execution.tasks, strict=True):
                results[case].found[step] = Counter(map(repr, stored_rows(store, target[case].name)))
                recomputed = spark.sql(query_of(case)).collect()
                results[case].expected[step] = Counter(repr(tuple(r)) for r in recomputed)
                results[case].choices[step] = report.facts["maintenance"]
    return results


@pytest.mark.spark
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("case", CASES)
def test_a_documented_case(results: dict[str, Result], case: str) -> None:
    result = results[case]
    for step in HISTORY:
        assert result.found[step] == result.expected[step], f"{step}: {result.choices[step]}"
    first, *choices = result.choices.values()
    assert first["strategy"] == "first rows"
    if case in COMPUTED_AGAIN:
        changed = [c for c in choices if c["strategy"] != "no change"]
        assert {c["strategy"] for c in changed} == {"comparison"}
        assert all(COMPUTED_AGAIN[case][1] in c["reason"] for c in changed)
    else:
        assert {c["strategy"] for c in choices} <= {"changes", "no change"}, choices
        assert len([c for c in choices if c["strategy"] == "changes"]) >= 2


@pytest.mark.spark
@pytest.mark.parametrize("rows_before", [0, 2])
def test_lists_of_an_input_that_may_be_empty(spark: Any, tmp_path: Path, rows_before: int) -> None:
    """Lists are exploded, after rows with new keys were added to an input without rows, or with others."""
    lists = nova.Channel("lists", merge=nova.Upsert(key="id"), schema="id int, tags array<string>")
    sql = "SELECT id, EXPLODE(tags) AS tag FROM lists"
    keep = nova.incremental("keep", sql, produces=nova.delta(nova.Channel("tags", merge=nova.Multiset())))
    project = nova.Project([nova.bind(nova.Workflowette("keep", [keep]))], channels=[lists])
    empty = pa.schema({"id": pa.int32(), "tags": pa.list_(pa.string())}).empty_table()
    with nova.open(project, f"sqlite:///{tmp_path}/catalog.db", tmp_path / "warehouse", spark) as store:
        store.register(project)
        rows = [{"id": n, "tags": ["a", "b"]} for n in range(rows_before)]
        store.insert("lists", rows or empty, kind="base")
        store.run("keep")
        store.insert("lists", [{"id": 9, "tags": ["c", "c"]}, {"id": 10, "tags": []}])
        store.run("keep")
        found = Counter(tuple(r.values()) for r in store.read("tags").to_arrow().to_pylist())
    assert found == Counter([*((r["id"], t) for r in rows for t in r["tags"]), (9, "c"), (9, "c")])


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        # pg_ivm
        ("SELECT id FROM orders ORDER BY id OFFSET 1", "OFFSET"),
        ("SELECT o.id FROM orders o JOIN (SELECT uid FROM users LIMIT 1) u ON u.uid = o.user", "LIMIT"),
        ("SELECT id FROM orders FOR UPDATE", "LOCKS"),
        ("SELECT t.a FROM (VALUES (1)) AS t(a)", "values in FROM"),
        ("SELECT id AS nova_count FROM orders", "a reserved name"),
        ("SELECT id, (SELECT uid FROM users LIMIT 1) AS u FROM orders", "one row"),
        (
            "SELECT id FROM orders JOIN users u ON EXISTS (SELECT 1 FROM clicks c WHERE c.user = uid)",
            "a subquery in ON",
        ),
        ("SELECT COLLECT_LIST(amount) AS l FROM orders GROUP BY user", "the order of rows"),
        # both
        (
            "WITH RECURSIVE r AS (SELECT id FROM orders UNION ALL SELECT id + 1 FROM r WHERE id < 9) SELECT id FROM r",
            "WITH RECURSIVE",
        ),
        # OpenIVM
        ("SELECT LISTAGG(day) AS l FROM orders", "the order of rows"),
        (
            "SELECT SUM(v) AS s FROM (SELECT user, ANY_VALUE(amount) AS v FROM orders GROUP BY user)",
            "the order of rows",
        ),
        ("SELECT MAX_BY(id, amount) AS m FROM orders", "the order of rows"),
        ("SELECT id, NTILE(2) OVER (ORDER BY amount) AS n FROM orders", "the order of rows"),
        ("SELECT id, (SELECT name FROM users WHERE uid = user) AS n FROM orders", "one row"),
        ("SELECT o.id, t.uid FROM orders o JOIN LATERAL (SELECT uid FROM users WHERE uid = o.user) t", "lateral"),
        ("SELECT o.id FROM orders o ASOF JOIN clicks c ON o.user = c.user", "ASOF"),
    ],
)
def test_a_restriction_without_a_rule(sql: str, reason: str) -> None:
    """Such a query can be defined. Each execution computes it as a whole, and writes the differences."""
    assert nova.incremental("keep", sql, produces=OUTPUT)
    with pytest.raises(NotMaintainable) as caught:
        operators(sql)
    assert reason in caught.value.reason


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT id FROM orders WHERE amount > RAND()", "depends on more than the data"),
        ("SELECT id, NOW() AS at FROM orders", "depends on more than the data"),
        ("SELECT user, my_total(amount) AS s FROM orders GROUP BY user", "not known to be deterministic"),
        ("SELECT id FROM orders TABLESAMPLE (50 PERCENT)", "TABLESAMPLE"),
        ("VALUES (1)", "is not a query"),
        ("SELECT id FROM RANGE(3)", "not known to be deterministic"),
        ("SELECT DISTINCT ON (user) user, id FROM orders", "syntax error"),
    ],
)
def test_a_restriction_that_is_refused(sql: str, reason: str) -> None:
    with pytest.raises(nova.SqlError, match=reason):
        nova.incremental("keep", sql, produces=OUTPUT)


@pytest.mark.parametrize(
    ("aggregate", "is_rounded"),
    [
        ("SUM(weight)", True),
        ("AVG(weight)", True),
        ("STDDEV(big)", True),
        ("VAR_POP(big)", True),
        ("CORR(big, user)", True),
        ("SUM(CAST(weight AS DECIMAL(12, 3)))", False),
        ("MAX(weight)", False),
        ("MEDIAN(big)", False),
    ],
)
def test_aggregates_that_may_be_rounded_are_known(aggregate: str, is_rounded: bool) -> None:
    """Where pg_ivm warns of sums of doubles, rows with rounded numbers are removed by their other columns."""
    root = operators(f"SELECT user, {aggregate} AS s FROM parcels GROUP BY user")
    assert root.rounded == ({"s"} if is_rounded else set())
