"""Which of the 99 queries of TPC-DS nova maintains as they are written. (No results of TPC are claimed.)"""

from __future__ import annotations

from typing import Any

import pytest

from nova_assets.model.schema import parse_ddl
from nova_assets.sql.incremental.build_operators import SourceTable, build_operators
from nova_assets.sql.incremental.operators import NotMaintainable
from nova_assets.sql.parse.dialect import parse_statement
from nova_assets.sql.query.resolved_query import resolve_query
from nova_assets.sql.text import SqlText
from nova_assets_tests.tpc import benchmarks

pytestmark = pytest.mark.slow

WITHOUT_A_RULE = {
    "ROLLUP": {70, 86},
    "subquery": {6, 14, 41, 44, 54, 58},
    "rounded": {22, 27, 32, 85, 92},
    "order of rows": {39, 51},
}
"""Part of the reason -> queries. The first part that the reason contains counts."""


def test_queries_as_they_are_written(tmp_path_factory: pytest.TempPathFactory) -> None:
    tpcds = benchmarks(tmp_path_factory.mktemp("duckdb"))["tpcds"]
    sources = {name: SourceTable(parse_ddl(ddl)) for name, ddl in tpcds.tables.items()}
    found: dict[str, set[int]] = {part: set() for part in WITHOUT_A_RULE}
    for number, sql in enumerate(tpcds.queries, start=1):
        text = SqlText(f"q{number}", sql)
        tree: Any = parse_statement(text)
        try:
            build_operators(resolve_query(text, tree, {n: s.schema for n, s in sources.items()}), sources)
        except NotMaintainable as error:
            found[next(part for part in WITHOUT_A_RULE if part in error.reason)].add(number)
    assert found == WITHOUT_A_RULE
