"""Subqueries in conditions and outputs: which operators represent them, and the rows that they give in a store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.sql.incremental.operators import Aggregation, Join, NotMaintainable, walk
from nova_assets_tests.sql.incremental.forced_strategy import force_strategy
from nova_assets_tests.sql.incremental.test_refusals import operators


@pytest.mark.parametrize(
    ("condition", "kinds", "equal_keys"),
    [
        ("EXISTS (SELECT * FROM users WHERE uid = user)", ["left semi"], 1),
        ("NOT EXISTS (SELECT 1 FROM users WHERE uid = user AND name > 'a')", ["left anti"], 1),
        ("EXISTS (SELECT 1 FROM users WHERE uid > o.user)", ["left semi"], 0),
        ("EXISTS (SELECT 1 FROM users)", ["inner"], 0),
        ("EXISTS (SELECT MAX(uid) FROM users)", ["inner"], 0),
        ("user IN (SELECT uid FROM users)", ["left semi"], 1),
        ("(user, id) IN (SELECT p.user, c.user FROM parcels p JOIN clicks c)", ["inner", "left semi"], 2),
        ("user IN (SELECT user FROM orders GROUP BY user HAVING COUNT(*) > 1)", ["left semi"], 1),
        ("user IN (SELECT DISTINCT uid FROM users WHERE uid = amount)", ["left semi"], 2),
        ("user NOT IN (SELECT uid FROM users)", ["inner", "left anti"], 1),
        ("NOT (NOT (user IN (SELECT uid FROM users)))", ["left semi"], 1),
        ("user NOT IN (SELECT uid FROM users WHERE uid > amount)", ["left anti"], 0),
        ("amount > (SELECT 2 * MAX(uid) FROM users WHERE uid = user)", ["left"], 1),
        ("amount > (SELECT COUNT(*) FROM users WHERE uid = user)", ["left"], 1),
        ("amount > (SELECT MAX(uid) FROM users) OR amount = 1", ["inner"], 0),
        ("user IN (SELECT uid FROM users WHERE uid > (SELECT COUNT(*) FROM clicks WHERE user = uid))", [], 2),
    ],
)
def test_conditions_with_subqueries_are_joins(condition: str, kinds: list[str], equal_keys: int) -> None:
    root = operators(f"SELECT id FROM orders o WHERE {condition} ORDER BY id")
    joins = [o for o in walk(root) if isinstance(o, Join)]
    assert not kinds or [j.kind for j in joins] == kinds
    assert sum(len(j.equal_keys) for j in joins) == equal_keys
    assert root.unique_keys == {frozenset({"id"})}


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT id FROM orders UNION SELECT uid FROM users ORDER BY id",
        "WITH t AS (SELECT id FROM orders ORDER BY amount DESC) SELECT t.id FROM (SELECT id FROM t ORDER BY 1) t",
        "SELECT user, COUNT(*) AS n FROM orders GROUP BY user ORDER BY SUM(amount), n",
    ],
)
def test_the_order_of_a_result_has_no_meaning(sql: str) -> None:
    assert operators(sql).unique_keys


def test_a_source_of_the_subquery_hides_an_outer_source_of_the_same_name() -> None:
    root = operators("SELECT o.id FROM orders o WHERE EXISTS (SELECT 1 FROM users o WHERE o.uid = 1)")
    assert any(isinstance(o, Aggregation) and not o.group_keys for o in walk(root)), "the subquery is not correlated"
    semi = operators("SELECT id FROM orders WHERE id IN (SELECT user FROM orders p WHERE p.id = orders.id)")
    (join,) = (o for o in walk(semi) if isinstance(o, Join))
    assert sorted(a.name for a, _ in join.equal_keys) == ["orders.id", "orders.id"]


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        (
            "SELECT id FROM orders WHERE amount = 1 OR NOT (user, id) IN (SELECT uid, uid AS v FROM users)",
            "several columns",
        ),
        ("SELECT id FROM orders WHERE amount = 1 OR user NOT IN (SELECT code FROM users)", "more than equal columns"),
        (
            "SELECT id FROM orders o WHERE amount = 1 OR o.id IN (SELECT o.uid FROM (SELECT uid FROM users o) o)",
            "the same names",
        ),
        (
            "SELECT id FROM orders o WHERE amount = 1 OR o.id IN "
            "(SELECT o.uid FROM users o WHERE uid IN (SELECT o.uid FROM clicks))",
            "the same names",
        ),
        ("SELECT id FROM orders WHERE amount = 1 OR user IN (SELECT MAX(uid) FROM users)", "with aggregates"),
        ("SELECT id FROM orders WHERE amount = 1 OR EXISTS (SELECT 1 FROM users WHERE uid > user)", "more than equal"),
        ("SELECT id, user IN (SELECT uid FROM users) AS u FROM orders", "EXISTS has a rule"),
        ("SELECT id FROM orders WHERE COALESCE(user IN (SELECT uid FROM users), TRUE)", "EXISTS has a rule"),
        ("SELECT id FROM orders WHERE NOT (amount = 1 AND user IN (SELECT uid FROM users))", "EXISTS has a rule"),
        ("SELECT o.id FROM orders o JOIN users u ON u.uid = (SELECT MAX(uid) FROM users)", "a subquery in ON"),
        ("SELECT COUNT(*) AS n FROM orders GROUP BY user + (SELECT MAX(uid) FROM users)", "a subquery in GROUP BY"),
        ("SELECT SUM(amount + (SELECT MAX(uid) FROM users)) AS s FROM orders", "a subquery in an expression"),
        ("SELECT id FROM orders WHERE user IN (SELECT code FROM users)", "not known to be equal"),
        ("SELECT id FROM orders WHERE user NOT IN (SELECT big FROM parcels)", "not known to be equal"),
        ("SELECT id FROM orders WHERE CAST(user AS BIGINT) IN (SELECT uid FROM users)", "not known to be equal"),
        ("SELECT id FROM orders WHERE user IN (SELECT uid FROM users LIMIT 1)", "LIMIT"),
        ("SELECT id FROM orders WHERE EXISTS (SELECT 1 FROM users LIMIT 0)", "LIMIT"),
        ("SELECT id FROM orders WHERE EXISTS (SELECT COUNT(*) FROM users WHERE uid = user)", "with groups"),
        (
            "SELECT id FROM orders WHERE user IN (SELECT MAX(uid) FROM users WHERE uid = id GROUP BY name)",
            "with groups",
        ),
        ("SELECT id FROM orders WHERE EXISTS (SELECT EXPLODE(ARRAY()) FROM users WHERE uid = user)", "generators"),
        ("SELECT id FROM orders WHERE EXISTS (SELECT 1 FROM users WHERE user = 3)", "without a condition on its own"),
        ("SELECT id FROM orders o WHERE EXISTS (SELECT 1 FROM users u JOIN clicks c ON c.user = o.user)", "the name"),
        ("SELECT id FROM orders o WHERE id IN (SELECT o.user FROM users)", "the name o.user"),
        ("SELECT id, (SELECT uid FROM users) AS u FROM orders", "not known to have one row"),
        ("SELECT id, (SELECT MAX(uid) FROM users GROUP BY name) AS u FROM orders", "not known to have one row"),
        ("SELECT id, (SELECT MAX(uid) FROM users HAVING COUNT(*) > 1) AS u FROM orders", "not known to have one row"),
        ("SELECT id, (SELECT MAX(uid) FROM users LIMIT 0) AS u FROM orders", "LIMIT"),
        ("SELECT id, (SELECT MAX(uid) FROM users WHERE uid > user) AS u FROM orders", "more than equal columns"),
        ("SELECT id, (SELECT MAX(uid) FROM users WHERE code = user) AS u FROM orders", "more than equal columns"),
        ("SELECT id, (SELECT COUNT(*) + 1 FROM users WHERE uid = user) AS n FROM orders", "over no rows"),
        ("SELECT id, (SELECT SUM(uid) / COUNT(*) FROM users WHERE uid = user) AS n FROM orders", "over no rows"),
        ("SELECT id, (SELECT COALESCE(MAX(uid), 0) FROM users WHERE uid = user) AS n FROM orders", "over no rows"),
        ("SELECT id FROM orders WHERE amount > (SELECT SUM(weight) FROM parcels)", "rounded"),
        ("SELECT id FROM orders WHERE amount > (SELECT AVG(weight) FROM parcels p WHERE p.user = id)", "rounded"),
        ("SELECT id FROM orders WHERE id IN (SELECT id FROM orders QUALIFY RANK() OVER (ORDER BY id) = 1)", "QUALIFY"),
        ("SELECT user FROM orders GROUP BY user HAVING SUM(amount) > (SELECT SUM(weight) FROM parcels)", "rounded"),
        (
            "SELECT user, FIRST(id) AS f FROM orders GROUP BY user HAVING user > (SELECT MAX(uid) FROM users)",
            "order of",
        ),
        ("SELECT 1 AS k FROM orders HAVING EXISTS (SELECT 1 FROM users)", "HAVING without an aggregate"),
        ("SELECT id FROM orders ORDER BY (SELECT MAX(uid) FROM users)", "ORDER BY with a subquery"),
        ("SELECT 1 AS k FROM orders ORDER BY COUNT(*)", "ORDER BY with an aggregate"),
        ("SELECT id FROM orders SORT BY id", "SORT"),
        ("SELECT uid FROM (SELECT uid FROM users nova_group) nova_subquery", "a source that is called"),
    ],
)
def test_subqueries_without_a_rule(sql: str, reason: str) -> None:
    with pytest.raises(NotMaintainable) as caught:
        operators(sql)
    assert reason in caught.value.reason


ORDERS = nova.Channel("orders", merge=nova.Upsert(key="id"), schema="id int, user int, amount int")
USERS = nova.Channel("users", merge=nova.Upsert(key="uid"), schema="uid int, boss int, name string")

QUERIES = {
    "is_in": "SELECT id FROM orders o WHERE EXISTS (SELECT * FROM users u WHERE u.boss = o.user) AND user IN "
    "(SELECT boss FROM users) ORDER BY id",
    "exists_any": "SELECT id FROM orders WHERE EXISTS (SELECT 1 FROM users WHERE name = 'Cy')",
    "not_in": "SELECT id FROM orders WHERE user NOT IN (SELECT boss FROM users)",
    "not_in_of": "SELECT id FROM orders o WHERE user NOT IN (SELECT boss FROM users u WHERE u.uid = o.amount)",
    "more_than": "SELECT id, amount > (SELECT SUM(uid) * 2 FROM users) AS is_more FROM orders",
    "counted": "SELECT id, (SELECT COUNT(*) FROM users u WHERE u.boss = o.user) AS n FROM orders o",
    "most": "SELECT id FROM orders o WHERE amount = (SELECT MAX(amount) FROM orders p WHERE p.user = o.user)",
    "share": "SELECT user, SUM(amount) AS s FROM orders GROUP BY user "
    "HAVING SUM(amount) * 2 > (SELECT SUM(amount) FROM orders)",
    "nested": "SELECT name FROM users WHERE uid IN (SELECT user FROM orders o WHERE amount > "
    "(SELECT MIN(amount) FROM orders p WHERE p.user = o.user)) AND uid IN "
    "(SELECT user FROM orders GROUP BY user HAVING COUNT(*) > 1)",
}


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.spark
@pytest.mark.exhaustive
def test_changes_of_both_sides_of_a_subquery(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The known rows follow from SQL's rules: a null in NOT IN, and counts over no rows."""
    force_strategy(monkeypatch, "changes")
    targets = {name: nova.Channel(name, merge=nova.Multiset()) for name in QUERIES}
    keeps = [nova.incremental(f"keep_{n}", sql, produces=nova.delta(targets[n])) for n, sql in QUERIES.items()]
    project = nova.Project([nova.bind(nova.Workflowette("keep", keeps))], channels=[ORDERS, USERS])
    with nova.open(project, f"sqlite:///{tmp_path}/catalog.db", tmp_path / "warehouse", spark) as store:
        store.register(project)

        def run() -> dict[str, list[Any]]:
            store.run("keep")
            tables = {name: store.read(name).to_arrow().to_pylist() for name in QUERIES}
            for channel in ("orders", "users"):
                store.read(channel).to_spark().createOrReplaceTempView(channel)
            for name, sql in QUERIES.items():
                expected = [r.asDict() for r in spark.sql(sql).collect()]
                assert sorted(map(str, tables[name])) == sorted(map(str, expected)), name
            return {name: sorted(next(iter(r.values())) for r in rows) for name, rows in tables.items()}

        store.insert("orders", [{"id": n, "user": n % 3 if n < 6 else None, "amount": n} for n in range(7)])
        store.insert("users", [{"uid": 1, "boss": 2, "name": "Ada"}, {"uid": 2, "boss": 2, "name": "Bo"}])
        rows = run()
        assert (rows["is_in"], rows["not_in"]) == ([2, 5], [0, 1, 3, 4])
        assert rows["exists_any"] == [] and rows["most"] == [3, 4, 5] and rows["not_in_of"] == [0, 1, 3, 4, 5, 6]
        store.insert("users", [{"uid": 3, "boss": None, "name": "Cy"}])
        rows = run()
        assert (rows["is_in"], rows["not_in"], rows["exists_any"]) == ([2, 5], [], list(range(7)))
        assert rows["not_in_of"] == [0, 1, 4, 5, 6], "a null is unknown to differ from the user of order 3"
        store.insert("users", [{"uid": n, "boss": None, "name": None, "_deleted": True} for n in (1, 2, 3)])
        store.insert("orders", [{"id": 2, "user": 0, "amount": 50}])
        rows = run()
        assert rows["not_in"] == list(range(7)), "over no rows, NOT IN is true even for null"
        assert (rows["most"], rows["share"], rows["counted"]) == ([2, 4, 5], [0], list(range(7)))
        facts = [t["facts"]["maintenance"] for t in store.timeline("not_in")[-1].details["tasks"]]
        assert [f["strategy"] for f in facts] == ["changes"] * len(QUERIES), facts
