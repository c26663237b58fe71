"""The 22 queries of TPC-H, the 99 of TPC-DS, and mutations of them, judged by Spark.

What Spark takes is taken, with its names and types. What Spark's parser refuses is refused. ``NOVA_FUZZ_STEPS`` is the
number of mutations of each query, ``NOVA_FUZZ_SEED`` begins elsewhere.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from pyspark.errors import ParseException

from nova_assets.errors import SqlError
from nova_assets.model.schema import Schema, parse_ddl
from nova_assets.sql.parse.dialect import parse_statement
from nova_assets.sql.query.resolved_query import resolve_query
from nova_assets.sql.text import SqlText
from nova_assets.sql.types.query_schema import is_generated_name, schema_of_query
from nova_assets_tests.tpc import Benchmark, benchmarks

pytestmark = pytest.mark.spark

EACH = int(os.environ.get("NOVA_FUZZ_STEPS", "2"))
SEED = int(os.environ.get("NOVA_FUZZ_SEED", "25"))

_TOKEN = re.compile(r"'(?:[^']|'')*'|`[^`]*`|[A-Za-z_][A-Za-z_0-9]*|\d+\.?\d*|\s+|.")
_OTHERS = (
    *"( ) , AND OR NOT SELECT FROM WHERE * + - . = < IN BETWEEN NULL CASE END 1 'x' AS ON JOIN LEFT".split(),
    *"DISTINCT OVER LIKE IS || :: HAVING UNION LIMIT INTERVAL DATE DESC EXISTS ALL WHEN THEN ELSE USING".split(),
    *"CAST % / ! @ # $ [ ] { } : WITH ROLLUP => -> <=> ?".split(),
    *("GROUP BY", "ORDER BY", "PARTITION BY"),
)


@pytest.fixture(scope="module", params=["tpch", "tpcds"])
def benchmark_(request: pytest.FixtureRequest, spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A benchmark, of which empty tables exist in Spark."""
    found = benchmarks(tmp_path_factory.mktemp("duckdb"))[request.param]
    for name, ddl in found.tables.items():
        spark.createDataFrame([], ddl).createOrReplaceTempView(name)
    yield found
    for name in found.tables:
        spark.catalog.dropTempView(name)


def inferred(sql: str, schemas: Mapping[str, Schema]) -> list[tuple[str | None, str]]:
    """The columns of a query; None for the name of one that has none of its own. Raises SqlError."""
    text = SqlText("query.sql", sql)
    tree: Any = parse_statement(text)
    query = resolve_query(text, tree, schemas)
    fields = schema_of_query(query, schemas).fields
    return [
        (None if is_generated_name(node) else f.name.lower(), str(f.type))
        for node, f in zip(query.tree.selects, fields, strict=True)
    ]


def sparks(spark: Any, sql: str) -> list[tuple[str, str]]:
    """The columns by Spark. Raises ParseException, or another of pyspark's."""
    return [(f.name.lower(), f.dataType.simpleString()) for f in spark.sql(sql).schema.fields]


def test_each_query_is_taken_with_sparks_columns(spark: Any, benchmark_: Benchmark) -> None:
    schemas = {name: parse_ddl(ddl) for name, ddl in benchmark_.tables.items()}
    assert len(benchmark_.queries) in (22, 99)
    for number, sql in enumerate(benchmark_.queries, start=1):
        text = SqlText("query.sql", sql)
        tree: Any = parse_statement(text)
        fields = schema_of_query(resolve_query(text, tree, schemas), schemas).fields
        assert [(f.name.lower(), str(f.type)) for f in fields] == sparks(spark, sql), number


def mutated(sql: str, rng: random.Random) -> str:
    """A query with one or two of its words dropped, doubled, exchanged or replaced."""
    words = _TOKEN.findall(sql)
    places = [n for n, word in enumerate(words) if word.strip()]
    for _ in range(rng.choice((1, 1, 1, 2))):
        n, m = rng.choice(places), rng.choice(places)
        kind = rng.choice(("drop", "double", "exchange", "add", "replace"))
        if kind == "drop":
            words[n] = " "
        elif kind == "double":
            words[n] = f"{words[n]} {words[n]}"
        elif kind == "exchange":
            words[n], words[m] = words[m], words[n]
        else:
            words[n] = f"{words[n] if kind == 'add' else ''} {rng.choice(_OTHERS)} "
    return "".join(words)


@pytest.mark.timeout(max(300, 5 * EACH * 99))
def test_mutations_are_refused_as_spark_refuses_them(spark: Any, benchmark_: Benchmark) -> None:
    schemas = {name: parse_ddl(ddl) for name, ddl in benchmark_.tables.items()}
    rng = random.Random(SEED)
    taken = other = unparsed = 0
    wrong = []
    for sql in (mutated(q, rng) for q in benchmark_.queries for _ in range(EACH)):
        try:
            theirs: list[tuple[str, str]] | None = sparks(spark, sql)
        except ParseException as error:
            theirs, unparsed = None, unparsed + 1
            reason = str(error).strip().split("\n", 1)[0]
        except Exception:  # Spark's analyser refuses it, of which the rules see less
            continue
        try:
            ours = inferred(sql, schemas)
        except SqlError as error:
            other += theirs is not None
            if theirs is not None:
                print(f"refused, and taken by Spark: {str(error)[:200]}")
            continue
        taken += 1
        if theirs is None:
            wrong.append(f"Spark: {reason}, and taken: {sql}")
        elif [t for _, t in ours] != [t for _, t in theirs] or any(
            name not in (None, spark_name) for (name, _), (spark_name, _) in zip(ours, theirs, strict=True)
        ):
            wrong.append(f"{ours}, and by Spark {theirs}: {sql}")
    count = EACH * len(benchmark_.queries)
    print(f"{count} mutations: {unparsed} unparsed by Spark, {taken} taken, {other} refused that Spark takes")
    assert wrong == [], f"{len(wrong)}:\n" + "\n\n".join(wrong)
    assert other <= count * 0.01
