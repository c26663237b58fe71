"""Random queries over several datasets: the partitions that they are found to read, judged by DuckDB.

No partition that changes the result is missing. And few partitions are read that change no result: of queries with up
to three joined datasets, at most one in twenty has such a partition. Whether a partition changes the result is tried
on many random contents of all partitions.

``NOVA_FUZZ_STEPS`` is the number of queries, ``NOVA_FUZZ_SEED`` begins elsewhere.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import duckdb
import pytest
import sqlglot

from nova_assets.model.schema import Schema, parse_ddl
from nova_assets.sql.parse.dialect import parse_statement
from nova_assets.sql.pruning.prune import PartitionPruner, PartitionsByScan
from nova_assets.sql.query.resolved_query import Query, resolve_query
from nova_assets.sql.text import SqlText
from nova_assets_tests.effort import examples
from nova_assets_tests.sql.rig import DAYS, STORES

pytestmark = pytest.mark.slow

COUNT = examples(6, 40)
SEED = int(os.environ.get("NOVA_FUZZ_SEED", "25"))
CONTENTS = 100

SCHEMAS: Mapping[str, Schema] = {
    "sales": parse_ddl("day string, store string, product string, pieces int"),
    "returned": parse_ddl("day string, store string, product string, pieces int"),
    "visits": parse_ddl("day date, pieces int"),
    "stock": parse_ddl("store string, product string, pieces int"),
}
PARTITIONS: Mapping[str, list[dict[str, Any]]] = {
    "sales": [{"day": str(d), "store": s} for d in DAYS for s in STORES],
    "returned": [{"day": str(d), "store": s} for d in DAYS for s in STORES],
    "visits": [{"day": d} for d in DAYS],
    "stock": [{"store": s} for s in STORES],
}

Rows: TypeAlias = list[tuple[Any, ...]]

TEXTS = [f"'{d}'" for d in DAYS]
SIGNS = ("=", "<>", "<", "<=", ">", ">=")


@dataclass
class Joined:
    """A dataset of a query: its name there, and what its partitions have.

    Args:
        day: an expression of text.
        date: an expression of a date.
    """

    name: str
    day: str | None = None
    store: str | None = None
    date: str | None = None
    columns: list[str] = field(default_factory=list)


def joined(dataset: str, name: str) -> Joined:
    columns = [f"{name}.{c} AS {c}_{name}" for c in SCHEMAS[dataset].names]
    if dataset == "visits":
        return Joined(name, date=f"{name}.day", columns=columns)
    if dataset == "stock":
        return Joined(name, store=f"{name}.store", columns=columns)
    return Joined(name, f"{name}.day", f"{name}.store", f"CAST({name}.day AS DATE)", columns)


def condition(rng: random.Random, of: Joined, depth: int = 0) -> str:
    """On partition columns of one dataset."""
    if depth < 2 and rng.random() < 0.25:
        a, b = condition(rng, of, depth + 1), condition(rng, of, depth + 1)
        return f"({a} {rng.choice(('AND', 'OR'))} {b})"
    if depth < 2 and rng.random() < 0.1:
        return f"NOT ({condition(rng, of, depth + 1)})"
    forms = []
    if of.day:
        forms += [
            f"{of.day} {rng.choice(SIGNS)} {rng.choice(TEXTS)}",
            f"{of.day} IN ({', '.join(rng.sample(TEXTS, rng.randint(1, 3)))})",
            f"{of.day} BETWEEN {rng.choice(TEXTS)} AND {rng.choice(TEXTS)}",
            f"SUBSTRING({of.day}, 9, 2) = '{rng.choice(('28', '30', '01'))}'",
            f"{of.day} IS NULL",
            f"{of.day} IS NOT NULL",
        ]
    if of.store:
        forms += [f"{of.store} {rng.choice(SIGNS)} '{rng.choice(STORES)}'", f"{of.store} LIKE '%{rng.choice('Ptr')}%'"]
    if of.date:
        forms += [
            f"{of.date} {rng.choice(SIGNS)} DATE {rng.choice(TEXTS)}",
            f"{of.date} = DATE_ADD(DATE {rng.choice(TEXTS)}, {rng.randint(-2, 2)})",
            f"{of.date} IS NULL",
        ]
    return rng.choice(forms)


def where_condition(rng: random.Random, visible: Sequence[Joined]) -> str:
    """On partition columns of one dataset, or of two."""
    if rng.random() < 0.7:
        return condition(rng, rng.choice(visible))
    a, b = condition(rng, rng.choice(visible), 2), condition(rng, rng.choice(visible), 2)
    return rng.choice((f"({a} OR {b})", f"NOT ({a} AND {b})"))


def compared(rng: random.Random, a: Joined, b: Joined) -> str:
    """What a join compares: partition columns of both, or data."""
    forms = [f"{a.name}.pieces = {b.name}.pieces"]
    if a.date and b.date:
        forms += [f"{b.date} = {a.date}", f"{b.date} = DATE_ADD({a.date}, 1)", f"{b.date} < {a.date}"]
    if a.store and b.store:
        forms += [f"{a.store} = {b.store}"]
    return " AND ".join(rng.sample(forms, rng.choice((1, 1, min(2, len(forms))))))


SOURCES = (
    "{0}",
    "{0}",
    "(SELECT * FROM {0} WHERE {1})",
    "(SELECT * FROM {0} WHERE pieces > 1)",
    "(SELECT DISTINCT * FROM {0})",
)
JOINS = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN")


def source(rng: random.Random, dataset: str) -> str:
    bare = joined(dataset, dataset)
    return rng.choice(SOURCES).format(dataset, condition(rng, bare, 2).replace(f"{dataset}.", ""))


def plain_query(rng: random.Random) -> str:
    """Joins of up to three datasets."""
    datasets = rng.sample(list(SCHEMAS), rng.choice((1, 2, 2, 3, 3, 3)))
    sources = [joined(d, f"t{n}") for n, d in enumerate(datasets)]
    first, visible = sources[0], [sources[0]]
    read = f"{source(rng, datasets[0])} t0"
    for dataset, of in zip(datasets[1:], sources[1:], strict=True):
        join = rng.choice(JOINS)
        on = compared(rng, rng.choice(visible), of)
        if rng.random() < 0.5:
            on += f" AND {condition(rng, rng.choice((first, of)), 1)}"
        read += f" {join} {source(rng, dataset)} {of.name} ON {on}"
        if "SEMI" not in join and "ANTI" not in join:
            visible.append(of)
    where = " AND ".join(where_condition(rng, visible) for _ in range(rng.choice((0, 1, 1, 2))))
    columns = ", ".join(c for of in visible for c in of.columns)
    return f"SELECT {columns} FROM {read}" + (f" WHERE {where}" if where else "")


def other_query(rng: random.Random) -> str:
    """With a CTE, a set operation, a window, an aggregate or a subquery."""
    s, v = joined("sales", "s"), joined("visits", "v")
    inner = f"SELECT s.day, s.store, s.product, s.pieces FROM sales s WHERE {condition(rng, s)}"
    outer = condition(rng, joined("sales", "c"))
    where = f"{condition(rng, s)} AND"
    return rng.choice(
        (
            f"WITH c AS ({inner}) SELECT c.day, c.pieces FROM c JOIN c d ON d.day < c.day WHERE {outer}",
            f"SELECT c.day, c.pieces FROM ({inner} UNION ALL SELECT * FROM returned) c WHERE {outer}",
            f"SELECT c.day, c.pieces FROM ({inner} EXCEPT SELECT * FROM returned) c WHERE {outer}",
            f"SELECT c.day, c.n FROM (SELECT day, store, SUM(pieces) AS n FROM ({inner}) GROUP BY day, store) c "
            f"WHERE {outer}",
            f"SELECT c.day, c.n FROM (SELECT day, store, RANK() OVER (PARTITION BY {rng.choice(('day', 'store'))} "
            f"ORDER BY pieces, product) AS n FROM sales) c WHERE {outer}",
            f"SELECT s.day FROM sales s WHERE {where} {s.date} IN "
            f"(SELECT v.day FROM visits v WHERE {condition(rng, v)})",
            f"SELECT s.day FROM sales s WHERE {where} {s.date} NOT IN "
            f"(SELECT v.day FROM visits v WHERE {condition(rng, v)})",
            f"SELECT s.day, q.product FROM sales s {rng.choice(JOINS[:4])} (SELECT product, MAX(pieces) AS pieces "
            f"FROM returned GROUP BY product) q ON q.pieces = s.pieces WHERE {condition(rng, s)}",
            f"SELECT s.day, s.store FROM sales s {rng.choice(JOINS)} visits v ON {compared(rng, s, v)} AND "
            f"{condition(rng, v)} AND v.day IS NULL",
            f"SELECT s.day FROM sales s WHERE {where} {rng.choice(('', 'NOT'))} EXISTS "
            f"(SELECT 1 FROM visits v WHERE v.day = {s.date} AND {condition(rng, v)})",
            f"SELECT s.day FROM sales s WHERE {where} s.pieces >= "
            f"(SELECT MAX(r.pieces) FROM returned r WHERE r.day {rng.choice(SIGNS)} s.day)",
            f"SELECT SUM(s.pieces) FILTER (WHERE {condition(rng, s)}) AS n, ROUND(1 + COUNT(*) FILTER "
            f"(WHERE {condition(rng, s)} AND s.pieces > 0), 1) AS m FROM sales s {rng.choice(JOINS[:4])} visits v "
            f"ON v.day = {s.date}",
            f"SELECT s.store, SUM(s.pieces) AS n FROM sales s WHERE {condition(rng, s)} GROUP BY s.store "
            f"HAVING SUM(s.pieces) > 2 AND {condition(rng, Joined('s', store='s.store'))}",
        )
    )


class Content:
    """A database with random rows in each partition, or none."""

    def __init__(self, seed: int, alone: tuple[str, int] | None = None) -> None:
        self.make = lambda: filled(random.Random(seed), alone)
        self.con = self.make()

    def rows(self, sql: str) -> Rows | None:
        """What a query gives; None where DuckDB fails by a mistake of its own, which ends the database."""
        try:
            return sorted(self.con.execute(sql).fetchall(), key=repr)
        except duckdb.InternalException:
            self.con = self.make()
            return None


def filled(rng: random.Random, alone: tuple[str, int] | None = None) -> duckdb.DuckDBPyConnection:
    """A database.

    Args:
        alone: a dataset, of which only one partition has rows.
    """
    con = duckdb.connect(config={"threads": 1})
    most = rng.choice((1, 2, 3))
    types = {"string": "VARCHAR", "int": "INTEGER", "date": "DATE"}
    for name, schema in SCHEMAS.items():
        columns = ", ".join(f"{f.name} {types[str(f.type)]}" for f in schema.fields)
        con.execute(f"CREATE TABLE {name} ({columns}, part INTEGER)")
        rows, share = [], rng.choice((0.1, 0.2, 0.4, 0.7, 1.0))
        for number, partition in enumerate(PARTITIONS[name]):
            has_rows = number == alone[1] if alone and alone[0] == name else rng.random() < share
            for _ in range(rng.randint(1, most) if has_rows else 0):
                drawn = {"product": rng.choice("abc"), "pieces": rng.randint(0, 3), **partition}
                rows.append((*(drawn[f.name] for f in schema.fields), number))
        if rows:
            con.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * (len(schema.fields) + 1))})", rows)
    return con


@pytest.fixture(scope="module")
def contents() -> Iterator[Sequence[Content]]:
    made = [Content(SEED * CONTENTS + n) for n in range(CONTENTS)]
    yield made
    for one in made:
        one.con.close()


def query_of(sql: str, **types: str) -> Query:
    """A resolved query. ``types`` are the Spark types of its variables."""
    text = SqlText("query.sql", sql)
    tree: Any = parse_statement(text)
    return resolve_query(text, tree, SCHEMAS, types)


def over(query: Query, read: PartitionsByScan) -> str:
    """A query of DuckDB's over some partitions of each scan."""
    tree: Any = query.tree.copy()
    for table in list(tree.find_all(sqlglot.exp.Table)):
        number = table.meta.get("nova_scan")
        if number is not None:
            parts = ", ".join(map(str, read[number])) or "-1"
            names = SCHEMAS[table.name].names
            some = sqlglot.select(*names).from_(table.name).where(f"part IN ({parts})").subquery(table.alias)
            some.set("joins", table.args.get("joins"))
            table.replace(some)
    return sqlglot.transpile(tree.sql("spark"), "spark", "duckdb")[0]


def all_partitions(query: Query) -> PartitionsByScan:
    return {s.number: tuple(range(len(PARTITIONS[s.dataset]))) for s in query.scans}


@pytest.mark.timeout(max(300, 3 * COUNT))
def test_no_partition_that_changes_the_result_is_missing(contents: Sequence[Content]) -> None:
    rng = random.Random(SEED)
    judged = 0
    for _ in range(10 * COUNT):
        sql = plain_query(rng) if rng.random() < 0.5 else other_query(rng)
        query = query_of(sql)
        read = PartitionPruner(query).required_partitions(PARTITIONS, {})
        some, everything = over(query, read), over(query, all_partitions(query))
        for one in rng.sample(list(contents), 4):
            given, expected = one.rows(some), one.rows(everything)
            judged += expected is not None
            assert None in (given, expected) or given == expected, sql
    assert judged > (38 if COUNT >= 40 else 36) * COUNT  # a few queries say less about their share


@pytest.mark.timeout(max(300, 3 * COUNT))
def test_no_answer_depends_on_the_questions_before_it() -> None:
    """A pruner is asked in random order about scopes and partitions. Each answer is that of a new pruner."""
    rng = random.Random(SEED)
    scopes = [{"d": str(d)} for d in DAYS]
    for _ in range(10 * COUNT):
        sql = with_variable(rng, plain_query(rng) if rng.random() < 0.5 else other_query(rng))
        query = query_of(sql, d="string")
        pruner = PartitionPruner(query)
        for _ in range(6):
            if rng.random() < 0.5:
                scope = rng.choice(scopes)
                assert pruner.required_partitions(PARTITIONS, scope) == PartitionPruner(query).required_partitions(
                    PARTITIONS, scope
                ), sql
            else:
                scan = rng.choice(query.scans)
                positions = rng.sample(range(len(PARTITIONS[scan.dataset])), rng.randint(1, 2))
                question = (PARTITIONS, rng.sample(scopes, rng.randint(1, len(scopes))), scan.number, positions)
                assert pruner.reading_scopes(*question) == PartitionPruner(query).reading_scopes(*question), sql


def with_variable(rng: random.Random, sql: str) -> str:
    """The query with the variable ``d`` in place of some of its days."""

    def replace(match: re.Match[str]) -> str:
        if rng.random() < 0.5:
            return match[0]
        return "CAST(:d AS DATE)" if match[0].startswith("DATE") else ":d"

    return re.sub(r"(DATE )?'2022-\d\d-\d\d'", replace, sql)


@pytest.mark.timeout(max(300, 6 * COUNT))
def test_few_queries_read_a_partition_that_changes_no_result(contents: Sequence[Content]) -> None:
    rng = random.Random(SEED)
    loose = []
    for _ in range(COUNT):
        sql = plain_query(rng)
        query = query_of(sql)
        read = PartitionPruner(query).required_partitions(PARTITIONS, {})
        left = {(scan, part) for scan, parts in read.items() for part in parts}
        without = {
            (scan, part): over(query, {**read, scan: tuple(p for p in read[scan] if p != part)}) for scan, part in left
        }
        some = over(query, read)
        for one in contents:
            given = one.rows(some)
            left = {place for place in left if one.rows(without[place]) in (None, given)}
            if not left:
                break
        for scan, part in sorted(left):
            alone = query.scans[scan].dataset, part
            if any(one.rows(some) != one.rows(without[scan, part]) for one in (Content(n, alone) for n in range(40))):
                left.discard((scan, part))
        if left:
            loose.append(f"{sql}: {sorted(left)}")
    print(f"{COUNT} queries, {len(loose)} with a partition that changes no result ({len(loose) / COUNT:.1%})")
    print("\n".join(loose))
    assert len(loose) <= max(2, COUNT * 0.05)
