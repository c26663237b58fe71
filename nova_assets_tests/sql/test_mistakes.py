"""Ordinary mistakes in SQL: each is told with its true reason, at its place in the text."""

from __future__ import annotations

from typing import Any

import pytest

import nova_assets as nova
from nova_assets.errors import SqlError
from nova_assets.sql.datasets.graph_builder import build_graph
from nova_assets.sql.text import SqlText

ORDERS = nova.Channel(
    "orders",
    nova.Upsert(key="id"),
    "id bigint, customer_id bigint, amount decimal(10,2), day date, at timestamp, note string, tags array<string>",
)
CUSTOMERS = nova.Channel("customers", nova.Upsert(key="id"), "id bigint, name string, country string")

MISTAKES = [
    # (query, with the marked place between « and »; what is told; what is expected or the next step)
    ("SELECT «amout» FROM orders", "there is no column 'amout'", "amount"),
    ("SELECT id FROM «order»", "there is no dataset 'order'", "such as orders"),
    ("SELECT «x.id» FROM orders o", "there is no table or alias 'x'", "a column of o"),
    (
        "SELECT «ordrs.id» FROM orders",
        "there is no table or alias 'ordrs'; did you mean 'orders'?",
        "a column of orders",
    ),
    (
        "SELECT «id» FROM orders JOIN customers ON customer_id = customers.id",
        "column 'id' is in orders and in customers",
        "orders.id or customers.id",
    ),
    (
        "SELECT o.id FROM orders o JOIN customers c ON o.customer_id = «c.idd»",
        "c has no column 'idd'",
        "id",
    ),
    (
        "SELECT customer_id, «amount» FROM orders GROUP BY customer_id",
        "column 'amount' is neither grouped nor aggregated",
        "MAX(amount)",
    ),
    (
        "SELECT «customer_id», SUM(amount) AS s FROM orders",
        "column 'customer_id' is neither grouped nor aggregated",
        "customer_id in GROUP BY",
    ),
    ("SELECT id FROM orders WHERE «SUM(amount)» > 1", "WHERE contains an aggregate", "HAVING filters groups"),
    (
        "SELECT customer_id, SUM(amount) AS s FROM orders GROUP BY customer_id HAVING «total» > 1",
        "there is no column 'total'",
        "amount",
    ),
    ("SELECT SUM(amount) AS s FROM orders GROUP BY «SUM(id)»", "GROUP BY contains an aggregate", "single rows"),
    ("SELECT «DATEFORMAT(at, 'yyyy')» AS y FROM orders", "no function DATEFORMAT; did you mean DATE_FORMAT?", "CAST"),
    ("SELECT «date_fromat(at, 'yyyy')» AS y FROM orders", "no function DATE_FROMAT; did you mean DATE_FORMAT?", "CAST"),
    ("SELECT SUBSTRING(«)» AS s FROM orders", "SUBSTRING lacks an argument", ""),
    ("SELECT «MAX(amount, id)» AS m FROM orders", "MAX takes one value", "GREATEST(...)"),
    ("SELECT id FROM orders UNION SELECT «id, name FROM customers»", "UNION combines 1 and 2 columns", "both sides"),
    (
        "SELECT * FROM orders JOIN customers USING («ident»)",
        "customers has no column 'ident', which USING names",
        "id",
    ),
    ("SELEC id «FROM» orders", "SELEC begins no statement; did you mean 'SELECT'?", ""),
    ("SELECT id FORM «orders»", "orders does not belong here; did you mean FROM instead of FORM?", ""),
    ("SELECT id FROM orders WHER «id» > 1", "id does not belong here; did you mean WHERE instead of WHER?", ""),
    ("SELECT id, «FROM» orders", "a list element is missing beside a comma", ""),
    ("SELECT id FROM orders «WHERE»", "WHERE lacks an argument", ""),
    ("SELECT id FROM orders WHERE note = «'»abc", "' is not closed", ""),
    ("SELECT «`»id FROM orders", "` is not closed", ""),
    ("SELECT «(»id FROM orders", "( is not closed", ""),
    ("SELECT COUNT(*) AS n FROM orders GROUP «customer_id»", "BY is missing after GROUP", ""),
    ("SELECT id FROM orders ORDER «customer_id»", "BY is missing after ORDER", ""),
    ("SELECT id FROM orders WHERE id == «=» 1", "= lacks an argument", ""),
    ("SELECT CASE WHEN id > 1 THEN «1» FROM orders", "Expected END after CASE", ""),
    ("SELECT id FROM orders WHERE amount BETWEEN «1»", "Expected AND between the limits of BETWEEN", ""),
    ("SELECT CAST(id AS «integr») AS i FROM orders", "integr is no type; did you mean 'integer'?", ""),
    ("SELECT id AS a, «customer_id AS a» FROM orders", "the output has two columns called 'a'", "names that differ"),
    (
        "SELECT id FROM orders WHERE id IN (SELECT «id, name FROM customers»)",
        "a subquery after IN has 2 columns",
        "one column",
    ),
    ("SELECT (SELECT «id, name FROM customers») AS x FROM orders", "a subquery as a value has 2 columns", "one column"),
    ("SELECT «ROW_NUMBER()» AS n FROM orders", "ROW_NUMBER is a window function without a window", "OVER (ORDER BY"),
    (
        "SELECT id FROM orders WHERE «ROW_NUMBER() OVER (ORDER BY id)» = 1",
        "WHERE contains a window function",
        "QUALIFY",
    ),
    ("SELECT id FROM orders; SELECT «1 AS x»", "contains 2 statements", "one statement"),
    ("SELECT id FROM orders LIMIT «ten»", "there is no column 'ten'", ""),
    ("SELECT id FROM orders WHERE day = «:day»", "there is no variable 'day'", "no FOR"),
    ("WITH a AS (SELECT id FROM orders) SELECT «idd» FROM a", "there is no column 'idd'", "id"),
    ("SELECT id FROM «a.b.c.orders»", "a.b.c.orders is not the name of a dataset", "without a database"),
    ("SELECT a.id FROM orders a JOIN «orders a» ON a.id = a.id", "two sources are called 'a'", "different names"),
    ("WITH a AS (SELECT id FROM orders), «a» AS (SELECT 1 AS x) SELECT id FROM a", "a is defined twice in WITH", ""),
    ("SELECT id FROM orders WHERE «id IS 5»", "IS does not compare with a value", "="),
    ("SELECT id FROM orders «|>» WHERE id > 1", "pipe syntax", ""),
]


RIGHT = [
    "SELECT customer_id AS c, SUM(amount) AS s FROM orders GROUP BY c",
    "SELECT o.customer_id AS c, SUM(amount) AS s FROM orders o GROUP BY CUSTOMER_ID",
    "SELECT customer_id, SUM(amount) AS s FROM orders GROUP BY 1",
    "SELECT customer_id, SUM(amount) AS s FROM orders GROUP BY ALL",
    "SELECT customer_id, day, SUM(amount) AS s FROM orders GROUP BY ROLLUP (customer_id, day)",
    "SELECT customer_id + 1 AS c, SUM(amount) AS s FROM orders GROUP BY customer_id + 1",
    "SELECT customer_id, SUM(amount) OVER (PARTITION BY customer_id) AS s FROM orders",
    "SELECT customer_id, SUM(SUM(amount)) OVER (ORDER BY customer_id) AS s FROM orders GROUP BY customer_id",
    "SELECT customer_id, LAG(amount) IGNORE NULLS OVER (ORDER BY id) AS s FROM orders",
    "SELECT customer_id, SUM(amount) FILTER (WHERE id > 1) AS s FROM orders GROUP BY customer_id",
    "SELECT customer_id, SUM(amount) AS Total FROM orders GROUP BY customer_id HAVING total > 1",
    "SELECT customer_id, SUM(amount) AS s FROM orders GROUP BY customer_id HAVING COUNT(*) > 1 AND s > 1",
    "SELECT c.id, (SELECT SUM(o.amount) AS s FROM orders o WHERE o.customer_id = c.id) AS s FROM customers c",
    "SELECT c.id, (SELECT COUNT(*) AS n FROM orders o WHERE o.note = c.name) AS s FROM customers c",
    "SELECT id FROM orders WHERE (id, note) IN (SELECT id, name FROM customers)",
    "SELECT id FROM orders o WHERE EXISTS (SELECT id, name FROM customers c WHERE c.id = o.customer_id)",
    "SELECT id, ROW_NUMBER() OVER (ORDER BY id) AS n FROM orders QUALIFY n = 1",
    "SELECT id, RANK() OVER w AS n FROM orders WINDOW w AS (ORDER BY id)",
    "SELECT FIRST(note) AS f, COUNT(*) AS n FROM orders",
    "SELECT CURRENT_DATE AS d, COUNT(*) AS n FROM orders",
    "SELECT DISTINCT customer_id FROM orders",
    "SELECT tag, COUNT(*) AS n FROM orders LATERAL VIEW EXPLODE(tags) t AS tag GROUP BY tag",
]

ACCEPTED_BY_SPARK = ("has two columns called", "contains 2 statements", "pipe syntax", "WHERE lacks an argument")
"""Mistakes that only nova refuses. Spark takes WHERE as the alias of a table."""


@pytest.mark.core
@pytest.mark.parametrize(("marked", "what", "help_"), MISTAKES)
def test_a_mistake_is_told_with_its_reason_at_its_place(marked: str, what: str, help_: str) -> None:
    before, _, rest = marked.partition("«")
    place, _, after = rest.partition("»")
    with pytest.raises(SqlError) as caught:
        build_graph([SqlText("t.sql", before + place + after)], [ORDERS, CUSTOMERS], {})
    error = caught.value
    assert what in error.what
    assert (error.line, error.column) == (1, len(before) + 1), error
    carets = error.snippet.splitlines()[-1].partition("|")[2].strip()
    assert set(carets) == {"^"} and len(carets) <= len(place), error
    assert help_ in f"{error.expected} {error.next}"


@pytest.mark.parametrize("sql", RIGHT)
def test_queries_that_spark_accepts_are_accepted(sql: str) -> None:
    build_graph([SqlText("t.sql", sql)], [ORDERS, CUSTOMERS], {})


@pytest.mark.spark
def test_spark_agrees_on_each_query(spark: Any) -> None:
    from pyspark.errors import PySparkException

    for channel in (ORDERS, CUSTOMERS):
        assert channel.schema is not None
        columns = ", ".join(f"CAST(NULL AS {f.type}) AS {f.name}" for f in channel.schema.fields)
        spark.sql(f"CREATE OR REPLACE TEMP VIEW {channel.name} AS SELECT {columns}")
    for sql in RIGHT:
        spark.sql(sql)
    for marked, what, _ in MISTAKES:
        if not any(text in what for text in ACCEPTED_BY_SPARK):
            with pytest.raises(PySparkException):
                spark.sql(marked.replace("«", "").replace("»", ""))
