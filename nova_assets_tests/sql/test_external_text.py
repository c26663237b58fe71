"""The text of CREATE EXTERNAL TABLE, written and edited."""

from __future__ import annotations

import pytest

from nova_assets.errors import DefinitionError, NotSupported, SqlError
from nova_assets.model.database_table import SourceColumn
from nova_assets.model.schema import Field, parse_type
from nova_assets.plan.source_columns import column_changes, spark_type_of
from nova_assets.sql.datasets.graph_builder import parse_external_views
from nova_assets.sql.statement.external_table import ExternalView
from nova_assets.sql.statement.external_text import ExternalStatement, edit_columns, render_external_statement
from nova_assets.sql.text import SqlText

WRITTEN = """\
-- What was ordered (by shop, and day).
-- owner: shop@example.org
FOR t IN TIMESERIES('2024-01-01', '2024-01-02') LET day = CAST(t AS DATE)
CREATE EXTERNAL TABLE orders (
  id INT COMMENT 'the number, as printed',   -- never repeats
  amount DECIMAL(10,2) NOT NULL,  -- gross
  tags ARRAY<STRUCT<a: STRING, b: INT>>,
  day DATE -- of the order
)
USING parquet PARTITIONED BY (day)
LOCATION '/data/(orders)'
"""


def view_of(sql: str) -> ExternalView:
    (view,) = parse_external_views([SqlText("orders.sql", sql)])
    return view


def edited(sql: str, **columns: str) -> str:
    view = view_of(sql)
    source = [SourceColumn(name, type_, parse_type(type_)) for name, type_ in columns.items()]
    return edit_columns(view.text, column_changes(view.channel, source))


def test_only_the_columns_concerned_change() -> None:
    struct = "array<struct<a:string,b:int>>"
    assert edited(WRITTEN, id="int", amount="decimal(10,2)", tags=struct) == WRITTEN
    after = edited(WRITTEN, id="bigint", tags=struct, note="string")
    expected = WRITTEN.replace("id INT C", "id BIGINT C").replace("  amount DECIMAL(10,2) NOT NULL,  -- gross\n", "")
    assert after == expected.replace("day DATE -- of the order\n", "day DATE, -- of the order\n  note STRING\n")
    assert view_of(after).channel.schema is not None and view_of(after).channel.schema.names[-1] == "note"


def test_one_line_stays_one_line() -> None:
    sql = "CREATE EXTERNAL TABLE o (id INT, b STRING) USING orc LOCATION 'o'"
    assert edited(sql, id="int", c="date") == "CREATE EXTERNAL TABLE o (id INT, c DATE) USING orc LOCATION 'o'"
    with pytest.raises(NotSupported, match="no column is left"):
        edited(sql)


def test_a_nested_field_may_be_called_like_a_clause() -> None:
    sql = "CREATE EXTERNAL TABLE o (id STRUCT<a: INT, comment: STRING> COMMENT 'c') USING orc LOCATION 'o'"
    after = "CREATE EXTERNAL TABLE o (id BIGINT COMMENT 'c') USING orc LOCATION 'o'"
    assert edited(sql, id="bigint") == after and edited(sql, id="struct<a:int,comment:string>") == sql


def test_what_is_written_is_read_back() -> None:
    fields = [Field("id", parse_type("bigint")), Field("my day", parse_type("date")), Field("n", parse_type("int"))]
    fields.append(Field("tags", parse_type("array<struct<firstName:string,b:int>>")))
    options = {"url": "postgresql://r@h:5432/d", "query": "SELECT 'it''s \\ ' AS x", "numPartitions": "4"}
    options |= {"partitionColumn": "id", "passwordEnv": "P"}
    sql = render_external_statement(ExternalStatement("orders", fields, ["my day"], "jdbc", options))
    channel = view_of(sql).channel
    assert channel.schema is not None and channel.schema.fields == tuple(fields)
    assert channel.partition_columns == ("my day",) and channel.external is not None
    database = channel.external.database
    assert database is not None and (database.query, database.splits) == (options["query"], 4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("url 'postgresql://u:long-secret-7@h/d', dbtable 't'", "with a password"),
        ("url 'postgresql://h/d', dbtable 't', password 'long-secret-7'", "would be stored"),
        ("url 'mysql://h/d', dbtable 't'", "cannot be read yet"),
        ("url 'postgresql://h/d'", "table= or query="),
        ("dbtable 't'", "needs an address"),
        ("url 'postgresql://h/d', dbtabel 't'", "dbtable"),
        ("url 'postgresql://h/d', dbtable 't', dbTable 'u'", "twice"),
        ("url 'postgresql://h/d', dbtable 't', numPartitions '3'", "without split_by="),
        ("url 'postgresql://h/d', dbtable 't', numPartitions 'x'", "whole number"),
        ("url 'postgresql://h/d', query 'SELECT 1', incremental 'id'", "needs table="),
        ("url 'postgresql://h/d', dbtable 't', settle '1m'", "no effect without incremental"),
        ("url 'postgresql://h/d?options=x', dbtable 't'", "sslmode"),
    ],
)
def test_wrong_options_are_named(options: str, message: str) -> None:
    import nova_assets.sql.datasets.graph_builder as graph_builder

    text = SqlText("o.sql", f"CREATE EXTERNAL TABLE o (id INT) USING jdbc OPTIONS ({options})")
    with pytest.raises((SqlError, DefinitionError), match=message) as refused:
        graph_builder.build_graph([text], (), {}, None)
    assert "long-secret-7" not in str(refused.value)


def test_types_of_postgresql() -> None:
    expected = {
        "integer": "int",
        "numeric(10,2)": "decimal(10,2)",
        "numeric(50,2)": "string",
        "numeric(3,-2)": "string",
        "numeric": "string",
        "timestamp(3) with time zone": "timestamp",
        "timestamp without time zone": "timestamp_ntz",
        "character varying(5)": "string",
        "interval": "string",
        "integer[]": "string",
        "time without time zone": "string",
    }
    assert {t: str(spark_type_of(t)) for t in expected} == expected
