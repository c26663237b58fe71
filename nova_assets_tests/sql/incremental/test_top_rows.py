"""The first rows of a query are those of a complete order, in its text and in its operators."""

from __future__ import annotations

import re

import pytest
from sqlglot import exp

from nova_assets.sql.incremental.clauses import break_ties
from nova_assets.sql.incremental.operators import Filter, Projection
from nova_assets.sql.parse.dialect import parse_statement
from nova_assets.sql.text import SqlText
from nova_assets_tests.sql.incremental.test_refusals import operators


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("SELECT id FROM orders LIMIT 3", "SELECT id FROM orders ORDER BY `id` LIMIT 3"),
        (
            "SELECT user, COUNT(*) FROM orders GROUP BY user ORDER BY COUNT(*) DESC, user + 1 LIMIT 3",
            "SELECT user, COUNT(*) FROM orders GROUP BY user ORDER BY COUNT(*) DESC, user + 1 , `user`, `count(1)` "
            "LIMIT 3",
        ),
        (
            "SELECT user AS u, AVG(weight) AS w FROM (SELECT * FROM parcels) GROUP BY 1 ORDER BY 1 LIMIT 3",
            "SELECT user AS u, AVG(weight) AS w FROM (SELECT * FROM parcels) GROUP BY 1 ORDER BY 1 , `u` LIMIT 3",
        ),
        (
            "(SELECT id FROM orders) UNION ALL SELECT uid FROM users ORDER BY id LIMIT 3",
            "(SELECT id FROM orders) UNION ALL SELECT uid FROM users ORDER BY id , `id` LIMIT 3",
        ),
    ],
)
def test_the_first_rows_are_those_of_a_complete_order(sql: str, text: str) -> None:
    root, names = operators(sql), re.findall(r"`(.*?)`", text)
    assert isinstance(root, Projection) and isinstance(root.input, Filter)
    assert root.input.condition.sql("spark") == "`nova_rank` <= 3"
    tree = parse_statement(SqlText("query", sql))
    assert isinstance(tree, exp.Query)
    assert break_ties(sql, tree, names) == text
