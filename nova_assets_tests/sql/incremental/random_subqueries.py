"""Random queries with subqueries in conditions and outputs. Each of them has operators."""

from __future__ import annotations

import random
from dataclasses import dataclass

from nova_assets_tests.sql.incremental.random_queries import TABLES

_INTS = {"a": ("id", "g", "v"), "b": ("id", "g"), "c": ("g",), "d": ("g", "n")}
"""Table -> its columns of type int."""


@dataclass(frozen=True)
class Source:
    """A source of FROM.

    Args:
        sql: the source with its alias.
        ints: its qualified columns of type int.
    """

    sql: str
    ints: tuple[str, ...]


class SubqueryWriter:
    """Writes queries that contain at least one subquery in an expression."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def query(self) -> str:
        outer = self.source("o")
        conditions = [self.condition(outer, 1) for _ in range(self.rng.choice([0, 1, 1, 1, 2]))]
        if self.rng.random() < 0.4:
            conditions.insert(self.rng.randrange(len(conditions) + 1), self.plain(outer))
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        has_subquery = any("SELECT" in c for c in conditions)
        kinds = ["project", "project", "group", "distinct", "window", "having", "outputs"]
        kind = self.rng.choice(kinds if has_subquery else ["having", "outputs", "group outputs"])
        order = " ORDER BY 1" if self.rng.random() < 0.2 else ""
        return self.outputs(kind, outer, f"FROM {outer.sql}{where}") + order

    def outputs(self, kind: str, outer: Source, rows: str) -> str:
        key, value = self.int(outer), self.int(outer)
        if kind == "project":
            return f"SELECT {', '.join(f'{c} AS c{n}' for n, c in enumerate(outer.ints))} {rows}"
        if kind == "distinct":
            return f"SELECT DISTINCT {key} AS g, {value} AS v {rows}"
        if kind == "window":
            return f"SELECT {key} AS g, {value} AS v, RANK() OVER (PARTITION BY {key} ORDER BY {value}) AS n {rows}"
        if kind == "group":
            return f"SELECT {key} AS g, COUNT(*) AS n, SUM({value}) AS s {rows} GROUP BY {key}"
        if kind == "outputs":
            scalar = self.scalar(outer, 1)
            _, matches = self.rows(outer, "i", 0, only_equal=True)
            is_there = f"CASE WHEN EXISTS (SELECT 1 {matches}) THEN {value} ELSE -7 END"
            of_scalar = [scalar, f"{scalar} + 1", f"COALESCE({scalar}, -1)", f"{value} = {scalar}"]
            output = self.rng.choice([is_there, *of_scalar])
            return f"SELECT {key} AS g, {output} AS z, {value} AS v {rows}"
        grouped = Source("", (key,))
        aggregate = self.rng.choice([f"SUM({value})", "COUNT(*)", f"MAX({value})", f"COUNT(DISTINCT {value})"])
        if kind == "group outputs":
            return f"SELECT {key} AS g, {aggregate} + 1 AS n, {self.total()} AS z {rows} GROUP BY {key}"
        having = self.rng.choice(
            [self.condition(grouped, 0), f"{aggregate} > {self.scalar(grouped, 0)}", f"{aggregate} = {self.total()}"]
        )
        return f"SELECT {key} AS g, {aggregate} AS n {rows} GROUP BY {key} HAVING {having} AND COUNT(*) > 0"

    def source(self, alias: str, *, is_single: bool = False) -> Source:
        """A table, a table with groups, or two joined tables."""
        table = self.rng.choice(TABLES).name
        kind = self.rng.choice(["table", "table", "table", "groups", "join"])
        if kind == "groups":
            sql = f"(SELECT t.g AS g, MAX(t.{_INTS[table][-1]}) AS v FROM {table} AS t GROUP BY t.g ORDER BY t.g)"
            return Source(f"{sql} AS {alias}", (f"{alias}.g", f"{alias}.v"))
        ints = tuple(f"{alias}.{c}" for c in _INTS[table])
        if kind == "join" and not is_single:
            other = self.rng.choice(TABLES).name
            word = self.rng.choice(["JOIN", "LEFT JOIN"])
            ints += tuple(f"{alias}2.{c}" for c in _INTS[other])
            return Source(f"{table} AS {alias} {word} {other} AS {alias}2 ON {alias}.g = {alias}2.g", ints)
        return Source(f"{table} AS {alias}", ints)

    def int(self, source: Source) -> str:
        return self.rng.choice(source.ints)

    def plain(self, source: Source) -> str:
        column = self.int(source)
        return self.rng.choice([f"{column} > 1", f"{column} IS NOT NULL", f"{column} > 5", f"NOT ({column} = 2)"])

    def condition(self, outer: Source, depth: int) -> str:
        """A condition of WHERE or HAVING with a subquery.

        Args:
            depth: how deeply subqueries may contain others.
        """
        column = self.int(outer)
        kind = self.rng.choice("exists exists in in in in_query scalar scalar pair or or".split())
        if kind == "or":
            return f"({self.test_under_or(outer)} OR {self.plain(outer)})"
        word = self.rng.choice(["", "NOT "])
        if kind == "exists":
            return f"{word}EXISTS (SELECT {self.rng.choice(['1', '*'])} {self.rows(outer, 'i', depth)[1]})"
        if kind == "in":
            inner, rows = self.rows(outer, "i", depth)
            distinct = self.rng.choice(["", "", "DISTINCT "])
            test = f"{column} {word}IN (SELECT {distinct}{self.int(inner)} {rows})"
            return test if self.rng.random() < 0.8 else f"NOT ({test})"
        if kind == "pair":
            inner, rows = self.rows(outer, "i", depth)
            values = (
                ", ".join(self.rng.sample(inner.ints, 2))
                if len(inner.ints) > 1
                else f"{inner.ints[0]}, {inner.ints[0]} AS v2"
            )
            return f"({column}, {self.int(outer)}) {word}IN (SELECT {values} {rows})"
        if kind == "in_query":
            return f"{column} {word}IN ({self.many_rows()})"
        scalar = self.scalar(outer, depth)
        return self.rng.choice([f"{column} > {scalar}", f"({column} = {scalar} OR {column} = 1)", f"NOT {scalar} > 1"])

    def test_under_or(self, outer: Source) -> str:
        """A test that can stand under OR and in outputs, as a count of rows."""
        if self.rng.random() < 0.5:
            _, rows = self.rows(outer, "i", 0, only_equal=True)
            return f"{self.rng.choice(['', 'NOT '])}EXISTS (SELECT 1 {rows})"
        test = f"{self.int(outer)} {self.rng.choice(['', 'NOT '])}IN (SELECT {self.values_of_table()})"
        return f"({self.plain(outer)} AND {test})"

    def values_of_table(self) -> str:
        """The output and FROM of a subquery with one column."""
        inner = self.source("i", is_single=True)
        return f"{self.int(inner)} FROM {inner.sql}{self.rng.choice(['', f' WHERE {self.plain(inner)}'])}"

    def many_rows(self) -> str:
        """A subquery with one column, whose rows are more than the rows of FROM and WHERE."""
        inner, value = self.source("o"), "o.g"
        groups = f"SELECT {value} FROM {inner.sql} GROUP BY {value} HAVING COUNT(*) > {self.rng.choice([0, 1])}"
        return self.rng.choice(
            [
                groups,
                f"SELECT MAX({value}) FROM {inner.sql}",
                f"SELECT {value} FROM {inner.sql} UNION SELECT d.g FROM d WHERE {self.plain(Source('', ('d.g',)))}",
                f"SELECT {value} FROM {inner.sql} EXCEPT SELECT d.g FROM d",
                f"WITH w AS (SELECT {value} FROM {inner.sql}) SELECT w.g FROM w WHERE w.g IS NOT NULL",
            ]
        )

    def rows(self, outer: Source, alias: str, depth: int, *, only_equal: bool = False) -> tuple[Source, str]:
        """FROM and WHERE of a subquery.

        Args:
            only_equal: whether the only conditions with outer columns are equalities.
        """
        kind = self.rng.choice(["all", "plain", "correlated", "correlated", "correlated"])
        visible = tuple(c for c in outer.ints if not c.startswith("o."))
        if (kind != "correlated" or visible) and self.rng.random() < 0.3:
            alias, outer = "o", Source("", visible)  # the inner source hides the outer source of the same name
        inner, conditions = self.source(alias, is_single=alias == "o"), list[str]()
        if kind == "correlated":
            conditions.append(f"{self.int(inner)} = {self.int(outer)}")
            if self.rng.random() < 0.3:
                conditions.append(f"{self.int(outer)} = {self.int(inner)}")
            elif not only_equal and self.rng.random() < 0.5:
                operator = self.rng.choice([">", "<>", "<=>", "+ 1 ="])
                condition = f"{self.int(inner)} {operator} {self.int(outer)}"
                conditions = self.rng.choice([[condition], [*conditions, condition]])
        if kind == "plain" or self.rng.random() < 0.3:
            conditions.append(self.plain(inner))
        if depth and self.rng.random() < 0.3:
            conditions.append(self.nested(inner))
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return inner, f"FROM {inner.sql}{where}"

    def nested(self, source: Source) -> str:
        """A condition with a subquery, inside of another subquery."""
        column, inner = self.int(source), self.source("k")
        scalar = f"(SELECT COUNT(*) FROM {inner.sql} WHERE {self.int(inner)} = {self.int(source)})"
        return self.rng.choice(
            [
                f"{column} IN (SELECT {self.int(inner)} FROM {inner.sql})",
                f"{column} NOT IN (SELECT {self.int(inner)} FROM {inner.sql} WHERE {self.plain(inner)})",
                f"EXISTS (SELECT 1 FROM {inner.sql} WHERE {self.int(inner)} = {column})",
                f"{column} >= {scalar}",
            ]
        )

    def scalar(self, outer: Source, depth: int) -> str:
        """A subquery with one row."""
        inner, rows = self.rows(outer, "i", depth, only_equal=True)
        value = self.int(inner)
        aggregate = self.rng.choice(
            ["COUNT(*)", f"COUNT({value})", f"MAX({value})", f"SUM({value}) * 2", f"-MIN({value}) + SUM({value})"]
        )
        return f"(SELECT {aggregate} {rows})"

    def total(self) -> str:
        """A subquery with one row that does not refer to the surrounding query."""
        inner = self.source("i")
        return f"(SELECT COUNT(DISTINCT {self.int(inner)}) + COUNT(*) - 1 FROM {inner.sql})"
