"""The 22 queries of TPC-H: what is inferred from each, against what Spark makes of it. (No results of TPC are claimed.)

The tables are empty: what is compared is schemas, and which columns are used.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from nova_assets.model.schema import Schema, parse_ddl
from nova_assets.sql.parse.dialect import parse_statement
from nova_assets.sql.query.column_lineage import trace_lineage
from nova_assets.sql.query.resolved_query import Query, resolve_query
from nova_assets.sql.text import SqlText
from nova_assets.sql.types.query_schema import schema_of_query
from nova_assets_tests.tpc import benchmarks

pytestmark = pytest.mark.spark

TABLES = {
    "region": "r_regionkey int, r_name string, r_comment string",
    "nation": "n_nationkey int, n_name string, n_regionkey int, n_comment string",
    "supplier": "s_suppkey int, s_name string, s_address string, s_nationkey int, s_phone string, "
    "s_acctbal decimal(15,2), s_comment string",
    "customer": "c_custkey int, c_name string, c_address string, c_nationkey int, c_phone string, "
    "c_acctbal decimal(15,2), c_mktsegment string, c_comment string",
    "part": "p_partkey int, p_name string, p_mfgr string, p_brand string, p_type string, p_size int, "
    "p_container string, p_retailprice decimal(15,2), p_comment string",
    "partsupp": "ps_partkey int, ps_suppkey int, ps_availqty int, ps_supplycost decimal(15,2), ps_comment string",
    "orders": "o_orderkey bigint, o_custkey int, o_orderstatus string, o_totalprice decimal(15,2), o_orderdate date, "
    "o_orderpriority string, o_clerk string, o_shippriority int, o_comment string",
    "lineitem": "l_orderkey bigint, l_partkey int, l_suppkey int, l_linenumber int, l_quantity decimal(15,2), "
    "l_extendedprice decimal(15,2), l_discount decimal(15,2), l_tax decimal(15,2), l_returnflag string, "
    "l_linestatus string, l_shipdate date, l_commitdate date, l_receiptdate date, l_shipinstruct string, "
    "l_shipmode string, l_comment string",
}

SCHEMAS = {name: parse_ddl(ddl) for name, ddl in TABLES.items()}


@pytest.fixture(scope="module")
def queries(tmp_path_factory: pytest.TempPathFactory) -> Sequence[str]:
    return benchmarks(tmp_path_factory.mktemp("duckdb"))["tpch"].queries


@pytest.fixture(scope="module")
def tables(spark: Any) -> Any:
    """Empty tables under their own names."""
    for name, ddl in TABLES.items():
        spark.createDataFrame([], ddl).createOrReplaceTempView(name)
    yield spark
    for name in TABLES:
        spark.catalog.dropTempView(name)


def inferred(number: int, sql: str) -> tuple[Query, Schema]:
    text = SqlText(f"q{number:02d}.sql", sql)
    tree: Any = parse_statement(text)
    query = resolve_query(text, tree, SCHEMAS)
    return query, schema_of_query(query, SCHEMAS)


def test_each_schema_is_the_one_that_spark_reports(queries: Sequence[str], tables: Any) -> None:
    assert len(queries) == 22
    for number, sql in enumerate(queries, start=1):
        _, schema = inferred(number, sql)
        of_spark = tables.sql(sql).schema
        assert [(f.name, str(f.type)) for f in schema.fields] == [
            (f.name, f.dataType.simpleString()) for f in of_spark.fields
        ], number


def test_tables_and_columns_are_those_of_sparks_analysed_plan(queries: Sequence[str], tables: Any) -> None:
    for number, sql in enumerate(queries, start=1):
        query, _ = inferred(number, sql)
        used = {(query.scans[u.origin[0]].dataset, u.origin[1]) for u in trace_lineage(query).uses}
        assert used == analysed(tables, sql), number


def analysed(spark: Any, sql: str) -> set[tuple[str, str]]:
    """The columns of tables that an analysed plan names: (table, column)."""
    frame = spark.sql(sql)
    if not hasattr(frame, "_jdf"):
        pytest.skip("a Connect session keeps its plans to itself")
    nodes = json.loads(frame._jdf.queryExecution().analyzed().toJSON())
    tables = {c: t for t, s in SCHEMAS.items() for c in s.names}
    found: set[str] = set()
    _named(nodes, found)
    return {(tables[c], c) for c in found if c in tables}


def _named(node: Any, found: set[str]) -> None:
    """Names of the attributes in the expressions of a plan, but for those of relations and views themselves."""
    if isinstance(node, list):
        for one in node:
            _named(one, found)
    elif isinstance(node, dict):
        kind = str(node.get("class", "")).rsplit(".", 1)[-1]
        if kind in ("LocalRelation", "LogicalRelation", "LogicalRDD", "View", "SubqueryAlias"):
            return
        if kind == "AttributeReference":
            found.add(node["name"])
        for value in node.values():
            _named(value, found)
