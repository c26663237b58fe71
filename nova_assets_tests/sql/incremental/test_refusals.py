"""Queries that cannot be maintained are refused with the place and the reason. None of these tests starts Spark."""

from __future__ import annotations

import re

import pytest
from sqlglot import exp

import nova_assets as nova
from nova_assets.model.schema import parse_ddl
from nova_assets.sql.incremental.accumulation import accumulation_of
from nova_assets.sql.incremental.build_operators import SourceTable, build_operators
from nova_assets.sql.incremental.operators import (
    Aggregation,
    NotMaintainable,
    Operator,
    Projection,
    Windowed,
    walk,
)
from nova_assets.sql.incremental.repeatability import function_names
from nova_assets.sql.parse import spark_functions
from nova_assets.sql.parse.dialect import parse_statement
from nova_assets.sql.query.resolved_query import resolve_query
from nova_assets.sql.text import SqlText

SOURCES = {
    "orders": SourceTable(parse_ddl("id int, user int, day date, amount int, items array<int>"), ("id",)),
    "users": SourceTable(parse_ddl("uid int, name string, code string"), ("uid",)),
    "parcels": SourceTable(parse_ddl("user int, weight double, big bigint")),
    "clicks": SourceTable(parse_ddl("user int, at timestamp")),
}
OUTPUT = nova.delta("result")
_SYNONYMS = {"collect_list": "array_agg", "percentile_approx": "approx_percentile", "string_agg": "listagg"}


def operators(sql: str) -> Operator:
    text = SqlText("query", sql)
    tree = parse_statement(text)
    assert isinstance(tree, exp.Query)
    query = resolve_query(text, tree, {n: s.schema for n, s in SOURCES.items()})
    return build_operators(query, SOURCES)


@pytest.mark.parametrize(
    ("sql", "caret_at", "reason"),
    [
        ("SELECT CURRENT_DATE() AS d, id FROM orders", "CURRENT_DATE", "current_date"),
        ("SELECT id FROM orders WHERE day > CURRENT_DATE", "day > CURRENT_DATE", "current_date"),
        ("SELECT RAND() AS r, id FROM orders", "RAND", "rand"),
        ("SELECT UUID() AS u FROM orders", "UUID", "uuid"),
        ("SELECT name COLLATE UTF8_LCASE AS n FROM users", "name", "equal in a collation"),
        ("SELECT COLLATE(name, 'UTF8_LCASE') AS n FROM users", "COLLATE", "equal in a collation"),
        ("SELECT my_function(id) AS x FROM orders", "my_function", "not known to be deterministic"),
        ("SELECT id FROM orders WHERE day >= DATE 'today'", "'today'", "current day"),
        ("SELECT id FROM orders WHERE day >= 'Yesterday '", "'Yesterday", "current day"),
        ("SELECT id FROM orders WHERE day >= CAST(CONCAT('to', 'day') AS DATE)", "CONCAT", "current day"),
        ("SELECT id FROM orders WHERE day >= r'today'", "r'today'", "current day"),
        ("SELECT id FROM orders WHERE my.f(id) > 1", "f", "not known to be deterministic"),
        ("SELECT id FROM WHOLE(orders)", "WHOLE", "WHOLE(orders)"),
        ("SELECT id FROM orders TABLESAMPLE (10 PERCENT)", "10", "TABLESAMPLE"),
        ("SELECT id FROM NEW(orders)", "NEW", "NEW(orders)"),
    ],
)
def test_what_depends_on_more_than_the_data_is_refused(sql: str, caret_at: str, reason: str) -> None:
    with pytest.raises(nova.SqlError) as caught:
        nova.incremental("t", sql, produces=OUTPUT)
    message = str(caught.value)
    assert reason in message.split("\n")[0]
    line, carets = (part.split("|", 1)[1] for part in message.split("\n")[1:3])
    assert line[carets.index("^") :].startswith(caret_at)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT user, FIRST(amount) AS f FROM orders GROUP BY user",
        "SELECT user, COLLECT_SET(amount) AS f FROM orders GROUP BY user",
        "SELECT user, LISTAGG(amount) AS f FROM orders GROUP BY user",
        "SELECT user, APPROX_PERCENTILE(amount, 0.5) AS f FROM orders GROUP BY user",
        "SELECT user, ARRAY_SORT(COLLECT_LIST(amount), (a, b) -> 0) AS f FROM orders GROUP BY user",
        "SELECT user, COLLECT_LIST(amount) AS l FROM orders GROUP BY user",
        "SELECT user, MAX_BY(id, amount) AS m FROM orders GROUP BY user",
        "SELECT user, ROW_NUMBER() OVER (PARTITION BY user ORDER BY at) AS n FROM clicks",
        "SELECT user, SUM(weight) AS s FROM parcels GROUP BY user HAVING SUM(weight) > 0.3",
        "SELECT user, AVG(big) AS a FROM parcels GROUP BY user HAVING AVG(big) > 3",
    ],
)
def test_what_depends_on_the_order_of_rows_is_replaced_by_groups(sql: str) -> None:
    root = operators(sql)
    assert root.unstable is not None
    assert root.group_columns == ("user",)
    assert accumulation_of(root) is None


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT user, MAX(FIRST(amount)) OVER () AS f FROM orders GROUP BY user",
        "SELECT user, amount, RANK() OVER w AS f FROM orders WINDOW w AS (PARTITION BY user ORDER BY id)",
        "SELECT id, ROW_NUMBER() OVER (PARTITION BY user ORDER BY amount) AS n FROM orders",
        "SELECT id, LAG(amount) OVER (PARTITION BY user ORDER BY day) AS n FROM orders",
        "SELECT id, SUM(amount) OVER (ORDER BY day ROWS UNBOUNDED PRECEDING) AS n FROM orders",
        "SELECT DISTINCT user, f FROM (SELECT user, FIRST(amount) AS f FROM orders GROUP BY user)",
        "SELECT o.id FROM orders o JOIN (SELECT user, FIRST(amount) AS f FROM orders GROUP BY user) f ON f.f = o.id",
    ],
)
def test_order_without_the_columns_of_its_groups_has_no_rule(sql: str) -> None:
    with pytest.raises(NotMaintainable):
        operators(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT user, SORT_ARRAY(COLLECT_LIST(amount)) AS l FROM orders GROUP BY user",
        "SELECT id, ROW_NUMBER() OVER (PARTITION BY user ORDER BY amount, id) AS n FROM orders",
        "SELECT id, RANK() OVER (PARTITION BY user ORDER BY amount) AS n FROM orders",
        "SELECT id, SUM(amount) OVER (PARTITION BY user ORDER BY day) AS n FROM orders",
    ],
)
def test_a_complete_order_is_accepted(sql: str) -> None:
    operators(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT id FROM orders WHERE user IN (SELECT code FROM users)",
        "SELECT id, (SELECT MAX(uid) FROM users LIMIT 1) AS m FROM orders",
        "SELECT user, GROUPING_ID(day, user) AS n FROM orders GROUP BY ROLLUP (user, day)",
        "SELECT user, GROUPING(user + 1) AS n FROM orders GROUP BY ROLLUP (user)",
        "SELECT user, RANK() OVER (ORDER BY COUNT(*)) AS r FROM orders GROUP BY ROLLUP (user)",
        "SELECT SUBSTR(note, 1, 2) AS s, COUNT(*) AS n FROM clicks GROUP BY CUBE (SUBSTR(note, 1, 2))",
        "SELECT user, COUNT(*) AS n FROM orders GROUP BY CUBE (id, user, day, amount, id % 2, id % 3, id % 5)",
        "SELECT user, amount AS n FROM orders GROUP BY user, amount GROUPING SETS ((user, amount), user)",
        "SELECT user, big FROM (orders FULL JOIN parcels USING (user))",
        "SELECT id FROM orders NATURAL JOIN users",
        "SELECT user, RANK() OVER (ORDER BY COUNT(*)), (SELECT MAX(uid) FROM users) AS r FROM orders GROUP BY user",
        "SELECT id, amount FROM orders PIVOT (SUM(amount) FOR user IN (1, 2))",
        "SELECT WINDOW(at, '1 day', '1 hour') AS w, COUNT(*) AS n FROM clicks GROUP BY WINDOW(at, '1 day', '1 hour')",
        "SELECT user FROM orders QUALIFY RANK() OVER (ORDER BY user) = (SELECT MIN(uid) FROM users)",
        "SELECT 1 AS one",
        "SELECT id FROM orders ORDER BY amount LIMIT 3 OFFSET 1",
        "SELECT id FROM orders ORDER BY amount LIMIT 1 + 2",
        "SELECT id FROM orders ORDER BY amount + 1, day LIMIT 3",
        "SELECT user, SUM(weight) AS s FROM parcels GROUP BY user ORDER BY s LIMIT 3",
        "SELECT SUM(weight) AS s FROM parcels GROUP BY user LIMIT 3",
        "SELECT SUM(weight) AS s FROM parcels LIMIT 3",
        "SELECT t.id FROM (SELECT id FROM orders LIMIT 3) t",
        "SELECT id, TO_JSON(STRUCT(id, amount)) AS j FROM orders",
        "SELECT id, (id, amount) AS pair FROM orders",
        "SELECT id, ARRAYS_ZIP(items, items) AS z FROM orders",
        "SELECT id, XXHASH64(*) AS h FROM orders",
        "SELECT id, TO_JSON(STRUCT(*)) AS h FROM orders",
        "SELECT user, EXPLODE(ARRAY(1, COUNT(*))) AS n FROM orders GROUP BY user",
        "SELECT id, EXPLODE(items) AS i, RANK() OVER (PARTITION BY user ORDER BY day) AS r FROM orders",
        "SELECT TRANSFORM(o.items, O -> o.amount) AS t FROM orders o",
        "SELECT s, COUNT(*) AS n FROM (SELECT user, SUM(weight) AS s FROM parcels GROUP BY user) GROUP BY s",
        "SELECT DISTINCT s FROM (SELECT user, STDDEV(amount) AS s FROM orders GROUP BY user)",
        "SELECT DISTINCT user, SUM(weight) OVER (PARTITION BY user) AS s FROM parcels",
        "SELECT DISTINCT user FROM (SELECT user, EXPLODE(FILTER(ARRAY(1), x -> s > 0.3)) AS e FROM "
        "(SELECT user, SUM(weight) AS s FROM parcels GROUP BY user))",
        "SELECT user AS a, (1) AS k, COUNT(*) AS c FROM orders GROUP BY (1)",
        "SELECT user FROM clicks WHERE at > CAST('12:30' AS TIMESTAMP)",
        "SELECT o.id FROM orders o JOIN (SELECT user, AVG(weight) AS s FROM parcels GROUP BY user) p ON o.amount > p.s",
    ],
)
def test_what_no_operator_represents_is_not_guessed(sql: str) -> None:
    with pytest.raises((NotMaintainable, nova.SqlError)):
        operators(sql)


@pytest.mark.parametrize(
    ("sql", "keys"),
    [
        ("SELECT id, amount FROM orders", {"id"}),
        ("SELECT amount FROM orders", None),
        ("SELECT o.id, u.name FROM orders o JOIN users u ON o.user = u.uid", {"id"}),
        ("SELECT o.id, u.name FROM orders o LEFT JOIN users u ON o.user = u.uid", {"id"}),
        ("SELECT o.id, u.uid FROM orders o JOIN users u ON o.amount > u.uid", {"id", "uid"}),
        ("SELECT o.id, u.name FROM orders o JOIN users u ON o.user > u.uid", None),
        ("SELECT o.id, u.uid FROM orders o FULL JOIN users u ON o.user = u.uid", None),
        ("SELECT user, COUNT(*) AS n FROM orders GROUP BY user", {"user"}),
        ("SELECT user + 1 AS u, COUNT(*) AS n FROM orders GROUP BY user + 1", {"u"}),
        ("SELECT user AS u, COUNT(*) AS n FROM orders GROUP BY (user)", {"u"}),
        ("SELECT COUNT(*) AS n FROM orders GROUP BY user", None),
        ("SELECT COUNT(*) AS n FROM orders", set()),
        ("SELECT DISTINCT user, day FROM orders", {"user", "day"}),
        ("SELECT id FROM orders UNION SELECT uid FROM users", {"id"}),
        ("SELECT id FROM orders UNION ALL SELECT uid FROM users", None),
        ("SELECT id, EXPLODE(items) AS item FROM orders", None),
        ("SELECT id, INLINE_OUTER(ARRAY(NAMED_STRUCT('a', 1))) AS item FROM orders", None),
        ("SELECT id FROM orders INTERSECT SELECT weight FROM parcels", {"id"}),
        (
            "SELECT s.user, s.i FROM (SELECT t.user, t.n, EXPLODE(t.items) AS i FROM (SELECT user, items, "
            "ROW_NUMBER() OVER (PARTITION BY user ORDER BY id) AS n FROM orders) t) s WHERE s.n = 1",
            None,
        ),
        ("SELECT id, item FROM orders LATERAL VIEW EXPLODE(items) e AS item", None),
        (
            "SELECT t.user, t.id FROM (SELECT user, id, ROW_NUMBER() OVER (PARTITION BY user ORDER BY day, id) AS n "
            "FROM orders) t WHERE t.n = 1",
            {"user"},
        ),
    ],
)
def test_keys_that_follow_from_the_query(sql: str, keys: set[str] | None) -> None:
    found = operators(sql).unique_keys
    assert (frozenset(keys) in found) if keys is not None else not found


def test_a_join_of_different_types_has_no_key_and_no_changed_keys() -> None:
    """'01' equals 1 in Spark, so a text key does not say which numbers are concerned."""
    join = operators("SELECT o.id, u.name FROM orders o LEFT JOIN users u ON o.user = u.code")
    assert not join.unique_keys


def test_the_output_edge_is_a_delta_of_another_channel() -> None:
    with pytest.raises(nova.DefinitionError, match="changes of its result, not a base"):
        nova.incremental("t", "SELECT id FROM orders", produces=nova.base("result"))
    with pytest.raises(nova.DefinitionError, match="reads its own result"):
        nova.incremental("t", "SELECT id FROM result", produces=OUTPUT)


@pytest.mark.parametrize(("digits", "is_rounded"), [(5, False), (6, True), (11, True), (12, False), (30, False)])
def test_averages_of_decimals_that_spark_adds_up_as_doubles_are_rounded(digits: int, is_rounded: bool) -> None:
    average = f"AVG(CAST(amount AS DECIMAL({digits}, 2)))"
    assert ("a" in operators(f"SELECT user, {average} AS a FROM orders GROUP BY user").rounded) == is_rounded
    if is_rounded:
        assert operators(f"SELECT user FROM orders GROUP BY user HAVING {average} > 3").unstable is not None


def test_every_aggregate_goes_by_sparks_name() -> None:
    for name in sorted(spark_functions.AGGREGATES):
        text = SqlText("query", f"SELECT {name}(x, y) AS z FROM t")
        try:
            found = parse_statement(text).find(exp.AggFunc)
        except nova.SqlError:
            found = parse_statement(SqlText("query", f"SELECT {name}(x) AS z FROM t")).find(exp.AggFunc)
        assert found is not None, name
        same = {"collect_list": "array_agg", "percentile_approx": "approx_percentile", "string_agg": "listagg"}.get(
            name, name
        )
        assert {name, same} & function_names(found), name


def test_a_cte_hides_a_dataset_whatever_the_case_of_its_name() -> None:
    with pytest.raises(nova.SqlError, match="no dataset"):
        operators("WITH Orders2 AS (SELECT id FROM orders) SELECT id FROM orders3")
    task = nova.incremental("t", "WITH ORDERS AS (SELECT uid FROM users) SELECT uid FROM orders", produces=OUTPUT)
    assert [e.port for e in task.consumes] == ["users", "result"]


@pytest.mark.parametrize(
    ("output", "hidden"),
    [
        ("COUNT(*)", ""),
        ("SUM(amount)", "COUNT(*), COUNT(amount)"),
        ("COUNT(amount)", "COUNT(*)"),
        ("SUM(3)", "COUNT(*)"),
        ("SUM(amount) / COUNT(*)", "COUNT(*), COUNT(amount), SUM(amount)"),
        ("AVG(amount)", "COUNT(*), COUNT(amount), SUM(amount)"),
        ("MAX(day)", "COUNT(*)"),
        ("MIN(amount) + user", "COUNT(*), MIN(amount)"),
        ("COUNT(*) FILTER (WHERE amount > 1)", "COUNT(*)"),
        ("COUNT_IF(amount > 1) FILTER (WHERE user = 1)", "COUNT(*)"),
        ("AVG(CAST(amount AS DECIMAL(21, 2)))", "COUNT(*), COUNT(CAST), SUM(CAST)"),
        ("AVG(CAST(amount AS DECIMAL(22, 2)))", None),
        ("SUM(CAST(amount AS DECIMAL(28, 2)))", "COUNT(*), COUNT(CAST)"),
        ("SUM(CAST(amount AS DECIMAL(38, 7)))", None),
        ("SUM(CAST(amount AS DOUBLE))", None),
        ("AVG(CAST(amount AS DOUBLE))", None),
        ("MAX(CAST(amount AS DOUBLE))", None),
        ("MAX(items)", None),
        ("BOOL_AND(amount > 1)", "COUNT(*)"),
        ("NOT BOOL_OR(amount > 1) FILTER (WHERE user = 1)", "COUNT(*), MAX(CASE WHEN user = 1 THEN amount > 1 END)"),
        ("MAX(NAMED_STRUCT('day', day, 'rate', CAST(amount AS DOUBLE)))", "COUNT(*)"),
        ("MAX(NAMED_STRUCT('day', day, 'items', items))", None),
        ("SUM(DISTINCT amount)", None),
        ("COUNT(DISTINCT amount)", None),
        ("STDDEV(amount)", None),
        ("SORT_ARRAY(COLLECT_LIST(amount))", None),
        ("SUM(amount) + MAX(LENGTH(STRING(day)))", None),
    ],
)
def test_outputs_that_follow_from_stored_accumulators(output: str, hidden: str | None) -> None:
    found = accumulation_of(operators(f"SELECT user, {output} AS s FROM orders GROUP BY user"))
    if hidden is None or found is None:
        assert found is hidden is None
        return
    aggregates = [found.accumulators[n].aggregate.sql("spark") for n in found.hidden]
    expected = [re.sub(r"\(CAST\)", "(...)", h) for h in hidden.split(", ") if h]
    simple = [re.sub(r"\(CAST.*\)", "(...)", a.replace("`", "").replace("orders.", "")) for a in aggregates]
    assert simple == [e for e in expected if not (e == "COUNT(*)" and found.accumulators[0].column)]


def test_having_follows_from_stored_accumulators() -> None:
    found = accumulation_of(operators("SELECT user, COUNT(*) AS n FROM orders GROUP BY user HAVING MAX(amount) > user"))
    assert found is not None and found.having is not None
    assert found.having.sql("spark") == "`nova_accumulator_1` > `user`"
    assert found.needs_hidden and found.hidden == (1,)
    distinct = operators("SELECT user, COUNT(*) AS n FROM orders GROUP BY user HAVING COUNT(DISTINCT amount) > 1")
    assert accumulation_of(distinct) is None


def test_a_repeated_group_key_and_reserved_names() -> None:
    assert accumulation_of(operators("SELECT user, COUNT(*) AS n FROM orders GROUP BY user, user")) is None
    with pytest.raises(NotMaintainable, match="reserved name"):
        operators("SELECT user AS nova_key_0, COUNT(*) AS n FROM orders GROUP BY user")


@pytest.mark.parametrize(
    ("clause", "sets"),
    [
        ("ROLLUP (user, amount)", ["user, amount", "user", "0"]),
        ("CUBE (user, amount)", ["user, amount", "user", "amount", "0"]),
        ("user, amount WITH ROLLUP", ["user, amount", "user", "0"]),
        ("user, ROLLUP (amount)", ["user, amount", "user"]),
        ("GROUPING SETS ((user, amount), amount, ())", ["user, amount", "amount", "0"]),
        ("ROLLUP ((user, amount), id)", ["user, amount, id", "user, amount", "0"]),
        ("GROUPING SETS (ROLLUP (user), (user, user))", ["user", "0", "user"]),
    ],
)
def test_grouping_sets_are_a_union_of_groups(clause: str, sets: list[str]) -> None:
    root = operators(f"SELECT COUNT(user) AS n FROM orders GROUP BY {clause}")
    groups = [o for o in walk(root) if isinstance(o, Aggregation)]
    found = [", ".join(k.sql("spark") for k in o.group_keys) for o in groups]
    assert [f.replace("`", "").replace("orders.", "").replace("CAST(0 AS INT)", "0") for f in found] == sets


@pytest.mark.parametrize(
    ("sql", "outputs"),
    [
        ("SELECT user, big FROM orders o JOIN parcels p USING (user)", "o.user, p.big"),
        ("SELECT user AS u, p.user AS v FROM orders o LEFT JOIN parcels p USING (user)", "o.user, p.user"),
        ("SELECT user + 1 AS u FROM orders o JOIN parcels p USING (user) JOIN clicks c USING (user)", "o.user + 1"),
        ("SELECT COALESCE(user, uid) AS u FROM users JOIN orders o LEFT JOIN parcels p USING (user)",
         "COALESCE(o.user, users.uid)"),
        ("SELECT user FROM orders o NATURAL JOIN parcels NATURAL LEFT JOIN clicks", "o.user"),
        ("SELECT user, id FROM orders o LEFT SEMI JOIN parcels p USING (user)", "o.user, o.id"),
        ("SELECT user, big FROM orders o RIGHT JOIN parcels p USING (user)", "p.user, p.big"),
        ("SELECT user, big FROM orders o FULL JOIN parcels p USING (user)", "COALESCE(o.user, p.user), p.big"),
        ("SELECT user FROM users RIGHT JOIN orders o ON uid = id JOIN parcels USING (user)", "o.user"),
        ("SELECT user FROM orders o NATURAL RIGHT JOIN parcels p", "p.user"),
        ("SELECT user FROM orders o FULL JOIN parcels p USING (user) RIGHT JOIN clicks c USING (user)", "c.user"),
    ],
)  # fmt: skip
def test_using_merges_columns_by_the_side_of_the_join(sql: str, outputs: str) -> None:
    root = operators(sql)
    assert isinstance(root, Projection)
    assert ", ".join(e.sql("spark").replace("`", "") for _, e in root.outputs) == outputs


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT user, id FROM orders QUALIFY ROW_NUMBER() OVER (PARTITION BY user ORDER BY day, id) = 1",
        "SELECT user, ROW_NUMBER() OVER (PARTITION BY user ORDER BY id) AS r FROM orders QUALIFY r = 1 AND amount > 3",
    ],
)
def test_the_first_row_by_qualify_is_identified_by_its_partition(sql: str) -> None:
    root = operators(sql)
    assert frozenset({"user"}) in root.unique_keys
    assert list(root.columns) == [c.strip().split(" ")[-1] for c in re.split(r", (?=id)|, (?=ROW)| FROM", sql[7:])[:2]]


def test_windows_over_groups_are_two_steps() -> None:
    sql = "SELECT user, SUM(amount) AS s, RANK() OVER (PARTITION BY user % 2 ORDER BY SUM(amount)) AS r FROM orders"
    root = operators(f"{sql} GROUP BY user HAVING COUNT(*) > 1")
    assert isinstance(root, Windowed) and isinstance(root.input, Aggregation)
    assert [k.sql("spark") for k in root.group_keys] == ["`nova_group_0` % 2"]
    assert [e.sql("spark") for _, e in root.input.outputs] == ["`orders.user`", "SUM(`orders.amount`)"]


def test_a_policy_that_does_not_exist_is_refused() -> None:
    with pytest.raises(nova.DefinitionError, match="refresh='increment' is not a policy; did you mean 'incremental'"):
        nova.incremental("keep", "SELECT 1 AS a", produces=nova.delta("c"), refresh="increment")  # type: ignore[arg-type]
