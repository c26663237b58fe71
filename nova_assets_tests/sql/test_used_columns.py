"""Names of the columns that a query can use: all others may be left out."""

from __future__ import annotations

import pytest

from nova_assets.model.schema import parse_ddl
from nova_assets.sql.parse.dialect import parse_statement
from nova_assets.sql.query.column_lineage import used_column_names
from nova_assets.sql.query.resolved_query import resolve_query
from nova_assets.sql.text import SqlText

SCHEMAS = {"a": parse_ddl("id int, g int, s struct<x: int, y: int>, Unused string"), "b": parse_ddl("id int, h int")}


def used(sql: str) -> str:
    text = SqlText("q", sql)
    names = used_column_names(resolve_query(text, parse_statement(text), SCHEMAS).tree)
    return "all" if names is None else " ".join(sorted({"id", "g", "s", "unused", "h"} & names))


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("SELECT COUNT(*) AS n FROM a", ""),
        ("SELECT ID FROM a WHERE G > 1", "g id"),
        ("SELECT s.x FROM a", "s"),
        ("SELECT * FROM b", "h id"),
        ("SELECT b.* FROM a JOIN b ON a.id = b.id", "h id"),
        ("SELECT a.g FROM a JOIN b USING (id)", "g id"),
        ("SELECT UNUSED AS n FROM a", "unused"),
        ("SELECT t.g FROM (SELECT * FROM a) AS t", "g id s unused"),
        ("WITH t AS (SELECT g, id FROM a) SELECT x FROM (SELECT g AS x FROM t)", "g id"),
        ("SELECT id FROM b WHERE EXISTS (SELECT * FROM a WHERE a.g = b.h)", "g h id s unused"),
        ("SELECT COUNT(DISTINCT *) AS n FROM b", "all"),
        ("SELECT COUNT(b.*) AS n FROM b", "all"),
        ("SELECT * FROM b PIVOT (SUM(id) FOR h IN (1, 2))", "all"),
        ("SELECT COUNT(DISTINCT g, id) AS n FROM a GROUP BY ALL", "g id"),
        ("SELECT g FROM a ORDER BY id", "g id"),
    ],
)
def test_used_columns(sql: str, columns: str) -> None:
    assert used(sql) == columns
