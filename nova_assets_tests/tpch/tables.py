"""The tables of TPC-H in DuckDB, and random changes of them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, TypeAlias

import duckdb
import pyarrow as pa

from nova_assets_tests.tpch.queries import KEYS

Key: TypeAlias = tuple[int, ...]

NATIONS = (2, 2, 3, 6, 7, 20)
"""Brazil (chosen more often), Canada, France, Germany and Saudi Arabia: the nations that queries name."""

ROWS_IN_QUERIES: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "supplier": [
        *({"s_nationkey": nation} for nation in NATIONS),
        {"s_comment": "the Customer has Complaints"},
        {"s_comment": "quiet requests", "s_acctbal": 9999},
    ],
    "customer": [
        *({"c_nationkey": nation} for nation in NATIONS),
        {"c_mktsegment": "BUILDING"},
        {"c_phone": "13-761-547-5974", "c_acctbal": 9999},
        {"c_phone": "31-867-987-9162", "c_acctbal": -100},
    ],
    "part": [
        {"p_brand": "Brand#23", "p_container": "MED BOX", "p_size": 5},
        *[{"p_brand": "Brand#12", "p_container": "SM CASE", "p_size": 3}] * 3,
        {"p_name": "forest green"},
        {"p_type": "ECONOMY ANODIZED STEEL"},
        {"p_type": "ECONOMY ANODIZED STEEL", "p_name": "dim green"},
        {"p_type": "PROMO BURNISHED BRASS", "p_size": 15},
        {"p_type": "MEDIUM POLISHED BRASS", "p_brand": "Brand#45"},
        {"p_size": 49},
    ],
    "partsupp": [{"ps_availqty": 1}, {"ps_availqty": 9999}, {"ps_supplycost": 1}, {"ps_supplycost": 2}],
    "orders": [
        {"o_orderdate": date(1993, 8, 1)},
        {"o_orderdate": date(1993, 11, 1), "o_orderpriority": "1-URGENT"},
        {"o_orderdate": date(1994, 6, 1), "o_orderpriority": "2-HIGH"},
        {"o_orderdate": date(1995, 3, 10), "o_orderpriority": "3-MEDIUM"},
        {"o_orderstatus": "F"},
        {"o_comment": "special deposits requests"},
        {"o_comment": "even deposits"},
    ],
    "lineitem": [
        {"l_quantity": 50},
        {"l_quantity": 1},
        *(
            {"l_partkey": part, "l_quantity": 4, "l_shipmode": "AIR", "l_shipinstruct": "DELIVER IN PERSON"}
            for part in (1, 2, 3)
        ),
        {"l_shipdate": date(1994, 6, 1), "l_discount": "0.06", "l_quantity": 23},
        {"l_shipdate": date(1995, 3, 20), "l_returnflag": "R"},
        {"l_shipdate": date(1995, 9, 10)},
        {"l_shipdate": date(1996, 2, 1), "l_suppkey": 1, "l_extendedprice": 99999},
        {"l_commitdate": date(1995, 1, 1), "l_receiptdate": date(1995, 1, 2)},
        {"l_commitdate": date(1995, 1, 1), "l_receiptdate": date(1994, 12, 31)},
        {
            "l_shipmode": "MAIL",
            "l_shipdate": date(1994, 2, 1),
            "l_commitdate": date(1994, 2, 2),
            "l_receiptdate": date(1994, 2, 3),
        },
    ],
}
"""Values for which the conditions of the queries ask. A uniform choice would seldom draw them together."""

LIKELY_ROWS: Mapping[str, str] = {
    "customer": "c_custkey % 3 = 0",
    "part": "p_partkey <= 4",
    "lineitem": "l_orderkey IN "
    "(SELECT l_orderkey FROM lineitem GROUP BY l_orderkey ORDER BY SUM(l_quantity) DESC, l_orderkey LIMIT 30)",
}
"""Rows that are changed more often than others: customers without orders, parts that have new lineitems, and lineitems
of orders of large quantity.
"""


class TpchTables:
    """Tables in a DuckDB connection. Each change is plain SQL, and is remembered for ``take_changes``.

    Args:
        folder: folder of the files ``TABLE.parquet``.
        seed: seed of the changes.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.connection: Any = duckdb.connect()
        self.rng = random.Random(seed)
        for table in KEYS:
            self.connection.execute(f"CREATE TABLE {table} AS FROM '{folder}/{table}.parquet'")
        self._changed_keys: dict[str, set[Key]] = {table: set() for table in KEYS}
        self._values_by_column: dict[str, Sequence[Any]] = {}

    def select(self, sql: str) -> pa.Table:
        """Rows of a query over the current tables."""
        return self.connection.sql(sql).to_arrow_table()

    def take_changes(self) -> dict[str, pa.Table]:
        """Rows that were changed since the last call, by table. ``_deleted`` marks the keys that no longer exist."""
        changes = {table: self._changed_rows(table, sorted(keys)) for table, keys in self._changed_keys.items() if keys}
        self._changed_keys = {table: set() for table in KEYS}
        return changes

    # refresh streams of the benchmark

    def insert_orders(self, count: int) -> None:
        """Refresh stream RF1: new orders with their lineitems. They copy random orders, with some other values."""
        existing = set(self._keys("orders"))
        for old in self.rng.sample(sorted(existing), count):
            new = old[0] - old[0] % 32 + 8 + self.rng.randrange(24)  # dbgen leaves these keys out
            if (new,) in existing:
                continue
            existing.add((new,))
            lines = self._keys("lineitem", f"l_orderkey = {old[0]}")
            self._copy_row("orders", old, (new,))
            for _, number in lines:
                self._copy_row("lineitem", (old[0], number), (new, number))

    def delete_orders(self, count: int) -> None:
        """Refresh stream RF2: orders are deleted with their lineitems."""
        for key in self.rng.sample(self._keys("orders"), count):
            self._delete_rows("orders", [key])
            self._delete_rows("lineitem", self._keys("lineitem", f"l_orderkey = {key[0]}"))

    # random changes of one table

    def change_rows(self, table: str, count: int) -> None:
        """Update, insert and delete random rows: about four updates to one insertion and one deletion."""
        keys = self._random_keys(table, count)
        for key in keys[: max(1, count * 2 // 3)]:
            self._change_values(table, key)
        for key in keys[max(1, count * 5 // 6) :]:
            self._delete_rows(table, [key])
        for key in self._random_keys(table, max(1, count // 6)):
            self._copy_row(table, key, self._new_key(table, key))

    def _random_keys(self, table: str, count: int) -> list[Key]:
        keys = self._keys(table)
        chosen = self.rng.sample(keys, min(count, len(keys)))
        if table in LIKELY_ROWS:
            likely = self._keys(table, LIKELY_ROWS[table])
            chosen[: count // 4] = self.rng.sample(likely, min(len(likely), count // 4))
        self.rng.shuffle(chosen)
        return list(dict.fromkeys(chosen))

    def _new_key(self, table: str, key: Key) -> Key:
        """A key that no row has."""
        if table == "lineitem":
            return key[0], 1 + max(number for _, number in self._keys(table, f"l_orderkey = {key[0]}"))
        keys = set(self._keys(table))
        if table == "partsupp":
            suppliers = [s for (s,) in self._keys("supplier")]
            return next(k for _ in keys if (k := (key[0], self.rng.choice(suppliers))) not in keys)
        return (1 + max(k for (k,) in keys),)

    # single rows

    def _keys(self, table: str, condition: str = "TRUE") -> list[Key]:
        columns = ", ".join(KEYS[table])
        sql = f"SELECT {columns} FROM {table} WHERE {condition} ORDER BY {columns}"
        return [tuple(row) for row in self.connection.execute(sql).fetchall()]

    def _columns(self, table: str) -> list[str]:
        return [name for name, *_ in self.connection.execute(f"DESCRIBE {table}").fetchall()]

    def _copy_row(self, table: str, old: Key, new: Key) -> None:
        values = dict(zip(KEYS[table], new, strict=True))
        selected = ", ".join(str(values.get(c, c)) for c in self._columns(table))
        self.connection.execute(f"INSERT INTO {table} SELECT {selected} FROM {table} WHERE {_is_row(table, old)}")
        self._changed_keys[table].add(new)
        self._change_values(table, new)

    def _change_values(self, table: str, key: Key) -> None:
        """Give some columns the values of other rows, or values for which queries ask."""
        columns = [c for c in self._columns(table) if c not in KEYS[table]]
        values = {c: self.rng.choice(self._values(table, c)) for c in self.rng.sample(columns, 2)}
        if self.rng.random() < 0.7:
            values |= self.rng.choice(ROWS_IN_QUERIES[table])
        assignments = ", ".join(f"{column} = ?" for column in values)
        update = f"UPDATE {table} SET {assignments} WHERE {_is_row(table, key)}"
        self.connection.execute(update, list(values.values()))
        self._changed_keys[table].add(key)

    def _values(self, table: str, column: str) -> Sequence[Any]:
        """Some of the values that a column had when they were first needed."""
        if column not in self._values_by_column:
            sql = f"SELECT DISTINCT {column} FROM {table} ORDER BY hash({column}), 1 LIMIT 100"
            self._values_by_column[column] = [value for (value,) in self.connection.execute(sql).fetchall()]
        return self._values_by_column[column]

    def _delete_rows(self, table: str, keys: Iterable[Key]) -> None:
        for key in keys:
            self.connection.execute(f"DELETE FROM {table} WHERE {_is_row(table, key)}")
            self._changed_keys[table].add(key)

    def _changed_rows(self, table: str, keys: Sequence[Key]) -> pa.Table:
        names = ", ".join(KEYS[table])
        changed = ", ".join(str(key) if len(key) > 1 else f"({key[0]})" for key in keys)
        return self.select(
            f"WITH changed ({names}) AS (VALUES {changed}) "
            f"SELECT * REPLACE ({', '.join(f'CAST({c} AS INTEGER) AS {c}' for c in KEYS[table])}), "
            f"changed_row IS NULL AS _deleted FROM changed LEFT JOIN (SELECT *, TRUE AS changed_row FROM {table}) "
            f"USING ({names})"
        ).drop_columns(["changed_row"])


def _is_row(table: str, key: Key) -> str:
    return " AND ".join(f"{column} = {value}" for column, value in zip(KEYS[table], key, strict=True))
