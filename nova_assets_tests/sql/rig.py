"""Queries asked by tests, over a few datasets with partitions of several kinds."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

from nova_assets.model.schema import Schema, parse_ddl
from nova_assets.sql.parse.dialect import parse_statement
from nova_assets.sql.pruning.prune import PartitionPruner
from nova_assets.sql.query.resolved_query import Query, resolve_query
from nova_assets.sql.statement.header import spark_type_name
from nova_assets.sql.text import SqlText

NOW = datetime(2022, 4, 1, 12, tzinfo=UTC)

DAYS = [date(2022, 3, 28) + timedelta(days=n) for n in range(5)]

STORES = ["Detroit", "Paris"]

SCHEMAS: Mapping[str, Schema] = {
    "sales": parse_ddl("day string, store string, product string, pieces int, price decimal(10,2), sold_at timestamp"),
    "visits": parse_ddl("day date, visitors int, source string"),
    "stores": parse_ddl("store string, city string, opened date"),
}

PARTITIONS: Mapping[str, list[dict[str, Any]]] = {
    "sales": [{"day": str(d), "store": s} for d in DAYS for s in STORES],
    "visits": [{"day": d} for d in DAYS],
    "stores": [{}],
}


def query(sql: str, **variables: Any) -> Query:
    text = SqlText("query.sql", sql)
    types = {n: spark_type_name(v) for n, v in variables.items()}
    tree: Any = parse_statement(text)
    return resolve_query(text, tree, SCHEMAS, types)


def reads(sql: str, **variables: Any) -> list[set[str]]:
    """The partitions that each scan of a query reads, as ``2022-03-31/Paris``, in order of the scans in the text."""
    asked = query(sql, **variables)
    found = PartitionPruner(asked).required_partitions(PARTITIONS, variables)
    scans = sorted(asked.scans, key=lambda s: s.span)
    return [{shown(PARTITIONS[s.dataset][n]) for n in found[s.number]} for s in scans]


def shown(partition: Mapping[str, Any]) -> str:
    return "/".join(map(str, partition.values()))


def days(first: int, last: int, *stores: str) -> set[str]:
    """Days of March from one to another, 32 for the first of April; of some stores."""
    found = [d for d in DAYS if first <= (d - date(2022, 2, 28)).days <= last]
    return {f"{d}/{s}" for d in found for s in stores} if stores else {str(d) for d in found}
