"""The 22 queries of TPC-H as maintained results.

``ORDER BY`` and ``LIMIT`` at the end of a query are left out, because a stored result has no order. Queries 2, 3, 10,
18 and 21 have a ``LIMIT``. Their results here hold all rows, not only the first ones. Query 18 gets a name for the
column ``sum(l_quantity)``, because a column of a channel needs a name. The texts are otherwise those of the benchmark,
and Spark and DuckDB run the same text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import nova_assets as nova

KEYS: Mapping[str, Sequence[str]] = {
    "region": ["r_regionkey"],
    "nation": ["n_nationkey"],
    "supplier": ["s_suppkey"],
    "customer": ["c_custkey"],
    "part": ["p_partkey"],
    "partsupp": ["ps_partkey", "ps_suppkey"],
    "orders": ["o_orderkey"],
    "lineitem": ["l_orderkey", "l_linenumber"],
}
"""Primary key of each table."""


def maintained_queries(queries: Sequence[str]) -> dict[str, str]:
    """Texts of the datasets ``q01`` to ``q22``.

    Args:
        queries: the queries of the benchmark, in the order of their numbers.
    """
    texts = {f"q{number:02}": _without_order(sql) for number, sql in enumerate(queries, start=1)}
    texts["q18"] = _with_named_sum(texts["q18"])
    return texts


def input_channels(tables: Mapping[str, str]) -> list[nova.Channel]:
    """A channel with the primary key of each table.

    Args:
        tables: table -> columns, as in ``CREATE TABLE``.
    """
    return [nova.Channel(t, merge=nova.Upsert(key=list(key)), schema=tables[t]) for t, key in KEYS.items()]


def _without_order(sql: str) -> str:
    """The query without the last ``ORDER BY``, and without the ``LIMIT`` after it. No subquery has either."""
    start = sql.rfind("ORDER BY")
    return (sql if start < 0 else sql[:start]).rstrip()


def _with_named_sum(sql: str) -> str:
    head, summed, rest = sql.partition("sum(l_quantity)\n")
    assert summed, sql
    return f"{head}sum(l_quantity) AS sum_quantity\n{rest}"
