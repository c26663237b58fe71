"""What a person is told about a query, to the letter."""

from __future__ import annotations

from pathlib import Path

import pytest

import nova_assets as nova
from nova_assets.errors import DefinitionError, NotSupported, SqlError
from nova_assets.sql.datasets.graph_builder import build_graph
from nova_assets.sql.parse import dialect
from nova_assets.sql.text import SqlText

SOLD = nova.Channel(
    "sold",
    schema="n int, at timestamp, day string, hour timestamp",
    partitions=[nova.daily("day", start="2022-03-28"), nova.hourly("hour", start="2022-03-28T00:00")],
)
FUNCTIONS = {"gives": "table(n int)"}


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        (
            "SELECT n FROM gives(1 + (SELECT MAX(n) FROM sold))",
            """x.sql:1:21: an argument is neither a value nor a query
    1 | SELECT n FROM gives(1 + (SELECT MAX(n) FROM sold))
      |                     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  expected: a value of the scope, or (SELECT ...)""",
        ),
        (
            "SELECT n FROM NEW(sold, 1)",
            """x.sql:1:15: NEW(...) takes one dataset
    1 | SELECT n FROM NEW(sold, 1)
      |               ^^^^^^^^^^^
  expected: NEW(orders)""",
        ),
        (
            "SELECT n FROM sold a JOIN sold a ON a.n = a.n",
            """x.sql:1:27: two sources are called 'a'
    1 | SELECT n FROM sold a JOIN sold a ON a.n = a.n
      |                           ^^^^^^
  expected: different names""",
        ),
        (
            "SELECT n FROM sold a JOIN sold b ON a.n = b.n",
            """x.sql:1:8: column 'n' is in a and in b
    1 | SELECT n FROM sold a JOIN sold b ON a.n = b.n
      |        ^
  expected: a.n or b.n""",
        ),
        (
            "SELECT solt.n AS n FROM sold",
            """x.sql:1:8: there is no table or alias 'solt'; did you mean 'sold'?
    1 | SELECT solt.n AS n FROM sold
      |        ^^^^^^
  expected: a column of sold""",
        ),
        (
            "SELECT DATE_FORMATT(at, 'yyyy') AS y FROM sold",
            """x.sql:1:8: Spark has no function DATE_FORMATT; did you mean DATE_FORMAT?
    1 | SELECT DATE_FORMATT(at, 'yyyy') AS y FROM sold
      |        ^^^^^^^^^^^^^^^^^^^^^^^
  next:     if it is a function of your session, declare its type: CAST(DATE_FORMATT(sold.at, 'yyyy') AS ...)""",
        ),
        (
            "SELECT n FROM sold UNION ALL SELECT n, day FROM sold",
            """x.sql:1:37: UNION combines 1 and 2 columns
    1 | SELECT n FROM sold UNION ALL SELECT n, day FROM sold
      |                                     ^^^^^^^^^^^^^^^^
  expected: as many columns on both sides""",
        ),
        (
            "SELECT a.n FROM sold a JOIN sold b USING (dya)",
            """x.sql:1:43: b has no column 'dya', which USING names
    1 | SELECT a.n FROM sold a JOIN sold b USING (dya)
      |                                           ^^^
  expected: day""",
        ),
        (
            "SELCT n FROM sold",
            """x.sql:1:9: syntax error: FROM does not belong here; SELCT begins no statement; did you mean 'SELECT'?
    1 | SELCT n FROM sold
      |         ^^^^
  expected: Spark's SQL""",
        ),
        (
            "SELECT SUBSTRING() AS x FROM sold",
            """x.sql:1:18: syntax error: SUBSTRING lacks an argument
    1 | SELECT SUBSTRING() AS x FROM sold
      |                  ^
  expected: Spark's SQL""",
        ),
        (
            "SELECT 'a FROM sold",
            """x.sql:1:8: syntax error: ' is not closed
    1 | SELECT 'a FROM sold
      |        ^
  expected: Spark's SQL""",
        ),
        (
            "SHOW TABLES",
            """x.sql:1:1: is not a query
    1 | SHOW TABLES
      | ^
  expected: one query: SELECT ..., or FOR ... INSERT ...""",
        ),
        (
            "CREATE EXTERNAL TABLE x USING parquet LOCATION '/x' AS SELECT 1 AS n",
            """x.sql:1:63: an external table has no query, because another system writes it
    1 | CREATE EXTERNAL TABLE x USING parquet LOCATION '/x' AS SELECT 1 AS n
      |                                                               ^^^^^^
  expected: a query without CREATE""",
        ),
        (
            "CREATE EXTERNAL TABLE x (n) USING parquet LOCATION '/x'",
            """x.sql:1:26: a column has no type
    1 | CREATE EXTERNAL TABLE x (n) USING parquet LOCATION '/x'
      |                          ^
  expected: name TYPE""",
        ),
    ],
)
def test_what_is_wrong_with_a_query(sql: str, message: str) -> None:
    with pytest.raises(SqlError) as caught:
        build_graph([SqlText("x.sql", sql)], [SOLD], FUNCTIONS)
    assert str(caught.value) == f"[NOVA-SQL] {message}"


def test_folders_without_datasets(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError) as caught:
        nova.datasets(tmp_path / "sql")
    assert str(caught.value) == (
        f"[NOVA-DEFINITION] there are no datasets in {tmp_path}/sql\n"
        "  found:    no such folder\n"
        "  expected: a folder with .sql files, a statement in each\n"
        f"  next:     make {tmp_path}/sql/NAME.sql"
    )
    with pytest.raises(DefinitionError, match=r"found:    no \.sql file in it"):
        nova.datasets(tmp_path)


def test_late_that_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text("SELECT 1 AS n")
    with pytest.raises(DefinitionError) as caught:
        nova.datasets(tmp_path, late={"a": "later"})  # type: ignore[dict-item]
    assert str(caught.value) == "[NOVA-DEFINITION] late={'a': 'later'} is not a policy\n  expected: rebuild or ignore"


def test_functions_that_cannot_be_called(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="'shout': a scalar function runs in Spark's workers, and gets no ctx"):

        @nova.sql_function(returns="string")
        def shout(ctx: object, text: str) -> str:
            return text

    (tmp_path / "a.sql").write_text("SELECT n FROM gives(1)")
    with pytest.raises(SqlError) as caught:
        nova.datasets(tmp_path, functions=FUNCTIONS)
    assert str(caught.value) == (
        f"[NOVA-SQL] {tmp_path}/a.sql:1:15: the body of table function gives(...) is missing\n"
        "    1 | SELECT n FROM gives(1)\n"
        "      |               ^^^^^^^^\n"
        "  expected: the function itself\n"
        "  next:     nova.datasets(..., functions=[...]) with a function decorated by @nova.sql_function"
    )
    with pytest.raises(SqlError) as free:
        nova.sql_task("t", "SELECT * FROM gives(1)")
    assert str(free.value) == (
        "[NOVA-SQL] task t:1:15: gives(...) is a table function, which this task cannot call\n"
        "    1 | SELECT * FROM gives(1)\n"
        "      |               ^^^^^^^^\n"
        "  expected: table functions in datasets: nova.datasets(folder, functions=[...])"
    )


def test_a_parser_that_was_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialect.sqlglot.parser, "__file__", "/site/sqlglot/parser.cpython-311.so")
    with pytest.raises(NotSupported) as caught:
        nova.sql_task("t", "SELECT 1 AS n")
    assert str(caught.value) == (
        "[NOVA-NOT-SUPPORTED] the installed SQL parser is compiled, and cannot parse FOR\n"
        "  found:    /site/sqlglot/parser.cpython-311.so\n"
        "  expected: sqlglot without sqlglotc\n"
        "  next:     pip uninstall sqlglotc"
    )


def test_variables_of_a_scope_may_have_a_line_each() -> None:
    lines = "FOR t IN TIMESERIES(last => 3)\nLET d = DATE(t)\nLET m = MONTH(t)\nINSERT OVERWRITE x PARTITION (d)\n"
    for header in (lines, lines.replace("\nLET m", ", m")):
        graph = build_graph([SqlText("x.sql", f"{header}SELECT n + :m AS n FROM sold WHERE sold.day = :d")], [SOLD])
        assert [f.name for f in graph.datasets["x"].schema.fields] == ["n", "d"]


def test_columns_of_a_pivot_have_its_alias() -> None:
    sql = "SELECT p.a FROM (SELECT n, day FROM sold) PIVOT (SUM(n) FOR day IN ('2024-01-01' AS a)) p"
    assert build_graph([SqlText("x.sql", sql)], [SOLD]).datasets["x"].schema.names == ("a",)


def test_using_names_columns_of_with_and_of_aliases() -> None:
    for join in ("sold AS b(m, a1, a2, a3) USING (m)", "sold USING (m)"):
        sql = f"WITH a AS (SELECT n AS m FROM sold), sold AS (SELECT n AS m FROM sold) SELECT m FROM a JOIN {join}"
        if " AS b(" in join:
            sql = sql.replace(", sold AS (SELECT n AS m FROM sold)", "")
        graph = build_graph([SqlText("x.sql", sql)], [SOLD])
        assert graph.datasets["x"].schema.names == ("m",)
