"""Random queries over four tables, and random changes of the tables' rows."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from nova_assets.model.arrow_types import to_arrow_schema
from nova_assets.model.schema import Schema, parse_ddl

Row = dict[str, Any]


@dataclass(frozen=True)
class Table:
    """A table of the queries. Without a key, rows are only added."""

    name: str
    schema: Schema
    key: tuple[str, ...]


TABLES = (
    Table("a", parse_ddl("id int, g int, v int, s string"), ("id",)),
    Table("b", parse_ddl("id int, g int, w decimal(10,2), s string"), ("id",)),
    Table("c", parse_ddl("g int, v bigint, x double, l array<int>"), ()),
    Table("d", parse_ddl("g int, s string, n int"), ("g", "s")),
)


def arrow_table(rows: list[Row], schema: Schema) -> pa.Table:
    """The columns of a schema. From an Arrow table, Spark plans a frame at about two thirds of the cost."""
    return pa.Table.from_pylist(rows, schema=to_arrow_schema(schema))


def random_value(rng: random.Random, column: str) -> Any:
    if column != "id" and rng.random() < 0.15:
        return None
    values: dict[str, Callable[[], Any]] = {
        "id": lambda: rng.randrange(8),
        "g": lambda: rng.randrange(4),
        "v": lambda: rng.randrange(-2, 4),
        "n": lambda: rng.randrange(3),
        "s": lambda: rng.choice(["x", "y", "Y", ""]),
        "w": lambda: Decimal(rng.randrange(-300, 300)) / 100,
        "x": lambda: rng.choice([0.0, -0.0, 1.5, float("nan")]),
        "l": lambda: [rng.choice([1, 2, None]) for _ in range(rng.randrange(3))],
    }
    return values[column]()


def random_row(rng: random.Random, table: Table) -> Row:
    row = {f.name: random_value(rng, f.name) for f in table.schema.fields}
    return row | {k: row[k] if row[k] is not None else random_value_of_key(rng, k) for k in table.key}


def random_value_of_key(rng: random.Random, column: str) -> Any:
    value = random_value(rng, column)
    return value if value is not None else random_value_of_key(rng, column)


def random_change(rng: random.Random, table: Table, rows: list[Row]) -> tuple[list[Row], list[Row]]:
    """The rows after a change, and the change as a channel would give it: rows with ``_deleted`` if there is a key."""
    size = rng.choice([0, 0, 1, 2, 5])
    if not table.key:
        added = [random_row(rng, table) for _ in range(size)]
        return rows + added, added
    by_key = {tuple(r[k] for k in table.key): r for r in rows}
    change: dict[Any, Row] = {}
    for _ in range(size):
        if by_key and rng.random() < 0.4:
            key = rng.choice(list(by_key))
            change[key] = {**by_key.pop(key), "_deleted": True}
        else:
            row = random_row(rng, table)
            key = tuple(row[k] for k in table.key)
            by_key[key] = row
            change[key] = {**row, "_deleted": False}
    return list(by_key.values()), list(change.values())


class QueryWriter:
    """Writes random queries whose results do not depend on the order of rows."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def query(self) -> str:
        depth = self.rng.choice([0, 1, 1, 2])
        if self.rng.random() < 0.2:
            inner, columns = self.relation(depth)
            select = self.select(depth, {"t": ("t", columns)})
            return f"WITH t AS ({inner}) {select}"
        return self.relation(depth)[0]

    def accumulation(self) -> str:
        """A query whose new rows follow from stored accumulators and the change."""
        source, names = self.source(1, "p", {})
        if self.rng.random() < 0.6:
            source, names = self.join(source, names, "q", 1, {})
        where = f" WHERE {self.condition(names)}" if self.rng.random() < 0.5 else ""
        keys = self.rng.sample(
            [self.int_column(names), f"COALESCE({self.int_column(names)}, 7)"], self.rng.choice([1, 2])
        )
        outputs = [f"{key} AS g{n}" for n, key in enumerate(keys)]
        decimals = [n for n in names if n.endswith(".w")]
        values = [self.int_column(names), f"{self.int_column(names)} * 2", *decimals]
        outputs += [f"COUNT({v}) AS c{n}" for n, v in enumerate(values) if self.rng.random() < 0.3]
        outputs += [f"SUM({v}) AS s{n}" for n, v in enumerate(values) if self.rng.random() < 0.5]
        outputs += [f"AVG({v}) AS a{n}" for n, v in enumerate(values) if self.rng.random() < 0.4]
        texts = [n for n in names if n.endswith(".s")]
        ordered = [*values, *texts]
        outputs += [f"MIN({v}) AS l{n}" for n, v in enumerate(ordered) if self.rng.random() < 0.2]
        outputs += [f"MAX({v}) AS h{n}" for n, v in enumerate(ordered) if self.rng.random() < 0.2]
        condition = self.condition(names)
        others = [
            "COUNT(*) AS n",
            f"COUNT_IF({condition}) AS i",
            f"SUM({values[0]}) FILTER (WHERE {condition}) AS f",
            f"COUNT(*) FILTER (WHERE {condition}) AS cf",
            f"SUM({values[0]}) * 10 / COUNT(*) AS e",
            f"COALESCE(MAX({values[0]}), -1) + {keys[0]} AS o",
            f"AVG(CAST({values[0]} AS BIGINT)) AS ab",
            f"AVG(CAST({values[0]} AS DECIMAL(16, 3))) AS ad",
        ]
        outputs += [o for o in others if self.rng.random() < 0.3] or ["COUNT(*) AS n"]
        if self.rng.random() < 0.2:  # one group of all rows
            outputs = [o for o in outputs if o[-1] not in "0123456789o"] + ["COUNT(*) AS n9", f"AVG({values[0]}) AS a9"]
            return f"SELECT {', '.join(outputs)} FROM {source}{where}"
        having = self.rng.choice(["", "", f" HAVING COUNT({values[0]}) > 1", f" HAVING SUM({values[0]}) > {keys[0]}"])
        return f"SELECT {', '.join(outputs)} FROM {source}{where} GROUP BY {', '.join(keys)}{having}"

    def relation(self, depth: int) -> tuple[str, list[str]]:
        """A query with two to four columns, of types int, int, string, ... by name, and its columns."""
        if depth and self.rng.random() < 0.25:
            return self.set_operation(depth)
        sql = self.select(depth)
        return sql, self.columns

    def set_operation(self, depth: int) -> tuple[str, list[str]]:
        word = self.rng.choice(
            ["UNION ALL", "UNION", "INTERSECT", "EXCEPT", "EXCEPT ALL", "INTERSECT ALL", "UNION ALL"]
        )
        sides = []
        for _ in range(2):
            source, names = self.source(depth - 1, "u", {})
            columns = [
                self.int_column(names),
                self.rng.choice([self.int_column(names), f"{self.int_column(names)} + 1"]),
            ]
            where = f" WHERE {self.condition(names)}" if self.rng.random() < 0.6 else ""
            sides.append(f"SELECT {columns[0]} AS g, {columns[1]} AS v FROM {source}{where}")
        self.columns = ["g", "v"]
        return f"{sides[0]} {word} {sides[1]}", self.columns

    def source(self, depth: int, alias: str, ctes: dict[str, tuple[str, list[str]]]) -> tuple[str, list[str]]:
        """A source of FROM, and its qualified columns."""
        if ctes and self.rng.random() < 0.6:
            name, columns = self.rng.choice(list(ctes.values()))
            return f"{name} AS {alias}", [f"{alias}.{c}" for c in columns]
        if depth > 0 and self.rng.random() < 0.5:
            sql, columns = self.relation(depth - 1)
            return f"({sql}) AS {alias}", [f"{alias}.{c}" for c in columns]
        table = self.rng.choice(TABLES)
        return f"{table.name} AS {alias}", [f"{alias}.{f.name}" for f in table.schema.fields]

    def int_column(self, names: list[str]) -> str:
        found = [n for n in names if n.split(".")[-1] in ("id", "g", "v", "n", "k")]
        return self.rng.choice(found) if found else "1"

    def scalar(self, names: list[str]) -> str:
        column = self.int_column(names)
        return self.rng.choice([column, column, f"{column} + 1", f"ABS({column})", f"COALESCE({column}, 7)"])

    def condition(self, names: list[str]) -> str:
        column = self.int_column(names)
        texts = [n for n in names if n.endswith(".s")]
        choices = [
            f"{column} > 1",
            f"{column} IS NOT NULL",
            f"{column} IN (1, 2)",
            f"NOT ({column} = 2)",
            f"{column} BETWEEN 0 AND 2 OR {self.int_column(names)} IS NULL",
        ] + [f"{t} LIKE '%y%'" for t in texts]
        return self.rng.choice(choices)

    def select(self, depth: int, ctes: dict[str, tuple[str, list[str]]] | None = None) -> str:
        ctes = ctes or {}
        source, names = self.source(depth, "p", ctes)
        conditions = []
        aliases = self.rng.choice([[], [], ["q"], ["q"], ["q", "r"]])
        for alias in aliases:
            if alias == aliases[-1] and self.rng.random() < 0.25:  # FROM a, b WHERE a.x = b.x
                other, other_names = self.source(depth - 1, alias, ctes)
                source = f"{source}, {other}"
                conditions.append(f"{self.int_column(names)} = {self.int_column(other_names)}")
                names = names + other_names
            else:
                source, names = self.join(source, names, alias, depth, ctes)
        lists = [n for n in names if n.endswith(".l")]
        if lists and " JOIN " not in source and not conditions and self.rng.random() < 0.4:
            word = self.rng.choice(["EXPLODE", "EXPLODE_OUTER"])
            source, names = f"{source} LATERAL VIEW {word}({lists[0]}) e AS k", [*names, "e.k"]
        if self.rng.random() < 0.5:
            conditions.append(f"({self.condition(names)})")
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        kinds = "project group group distinct window total dedup explode struct ranked rolled_up qualified"
        kind = self.rng.choice(kinds.split())
        write = {
            "project": self._project,
            "group": self._group,
            "distinct": self._distinct,
            "window": self._window,
            "ranked": self._ranked_groups,
            "qualified": self._qualified,
            "rolled_up": self._rolled_up,
            "total": self._total,
            "dedup": self._dedup,
            "explode": self._explode,
            "struct": self._struct,
        }[kind]
        return write(f"{source}{where}", names)

    def join(
        self, source: str, names: list[str], alias: str, depth: int, ctes: dict[str, tuple[str, list[str]]]
    ) -> tuple[str, list[str]]:
        other, other_names = self.source(depth - 1, alias, ctes)
        word = self.rng.choice(
            ["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"]
        )
        if self.rng.random() < 0.05:
            return f"{source} CROSS JOIN {other}", names + other_names
        condition = f"{self.int_column(names)} = {self.int_column(other_names)}"
        if self.rng.random() < 0.3:
            condition += f" AND {self.condition(names + other_names)}"
        kept = names if word in ("LEFT SEMI JOIN", "LEFT ANTI JOIN") else names + other_names
        return f"{source} {word} {other} ON {condition}", kept

    def _project(self, source: str, names: list[str]) -> str:
        keys = [n for n in names if n.split(".")[-1] == "id"]
        self.columns = ["id", "g", "v"] if keys else ["g", "v"]
        key = f"{keys[0]} AS id, " if keys else ""
        return f"SELECT {key}{self.scalar(names)} AS g, {self.scalar(names)} AS v FROM {source}"

    def _distinct(self, source: str, names: list[str]) -> str:
        self.columns = ["g", "v"]
        return f"SELECT DISTINCT {self.scalar(names)} AS g, {self.scalar(names)} AS v FROM {source}"

    def _aggregate(self, names: list[str]) -> str:
        column = self.int_column(names)
        return self.rng.choice(
            [
                "COUNT(*)",
                f"COUNT({column})",
                f"SUM({column})",
                f"MIN({column})",
                f"MAX({self.scalar(names)})",
                f"COUNT(DISTINCT {column})",
                f"SUM({column}) FILTER (WHERE {self.condition(names)})",
                f"SIZE(COLLECT_SET({column}))",
                f"BOOL_AND({self.condition(names)})",
                f"AVG({column})",
                f"SUM({column}) + COUNT(*)",
            ]
        )

    def _group(self, source: str, names: list[str]) -> str:
        key = self.scalar(names)
        having = f" HAVING {self.rng.choice(['COUNT(*) > 1', f'SUM({self.int_column(names)}) > 2'])}"
        having = having if self.rng.random() < 0.3 else ""
        self.columns = ["g", "v", "z"]
        return f"SELECT {key} AS g, COUNT(*) AS v, {self._aggregate(names)} AS z FROM {source} GROUP BY {key}{having}"

    def _total(self, source: str, names: list[str]) -> str:
        self.columns = ["v", "z"]
        return f"SELECT COUNT(*) AS v, {self._aggregate(names)} AS z FROM {source}"

    def _window(self, source: str, names: list[str]) -> str:
        partition, order = self.int_column(names), self.int_column(names)
        function = self.rng.choice(
            ["RANK()", "DENSE_RANK()", "COUNT(*)", f"SUM({self.int_column(names)})", f"MAX({order})"]
        )
        over = self.rng.choice([f"PARTITION BY {partition}", f"PARTITION BY {partition} ORDER BY {order}"])
        over = f"PARTITION BY {partition} ORDER BY {order}" if "RANK" in function else over
        self.columns = ["g", "v", "n"]
        return f"SELECT {partition} AS g, {order} AS v, {function} OVER ({over}) AS n FROM {source}"

    def _ranked_groups(self, source: str, names: list[str]) -> str:
        key, value = self.int_column(names), self.int_column(names)
        window = self.rng.choice(
            [
                f"RANK() OVER (ORDER BY COUNT(*), {key})",
                f"SUM(COUNT({value})) OVER (PARTITION BY MIN({value}))",
                f"ROW_NUMBER() OVER (PARTITION BY COUNT(*) ORDER BY {key} DESC)",
                f"COUNT(*) - MAX(COUNT(*)) OVER (PARTITION BY {key} % 2)",
            ]
        )
        having = self.rng.choice(["", f" HAVING COUNT({value}) > 0"])
        self.columns = ["g", "v", "n"]
        return f"SELECT {key} AS g, SUM({value}) AS v, {window} AS n FROM {source} GROUP BY {key}{having}"

    def _rolled_up(self, source: str, names: list[str]) -> str:
        a, b, value = self.int_column(names), f"COALESCE({self.int_column(names)}, 7)", self.int_column(names)
        sets = self.rng.choice(
            [f"ROLLUP ({a}, {b})", f"CUBE ({a}, {b})", f"{a}, ROLLUP ({b})", f"GROUPING SETS (({a}, {b}), {b}, ())"]
        )
        having = self.rng.choice(["", f" HAVING COUNT({a}) > 1"])
        self.columns = ["g", "v", "n"]
        return (
            f"SELECT {a} AS g, {b} + COUNT({value}) AS v, SUM({a}) + GROUPING({b}) AS n FROM {source} "
            f"GROUP BY {sets}{having}"
        )

    def _qualified(self, source: str, names: list[str]) -> str:
        partition, order = self.int_column(names), self.int_column(names)
        rank = self.rng.choice(["RANK", "DENSE_RANK"])
        window = f"{rank}() OVER (PARTITION BY {partition} ORDER BY {order})"
        self.columns = ["g", "v", "n"]
        condition = self.rng.choice(["n = 1", f"{window} = 1", f"n < 3 AND {self.condition(names)}"])
        return f"SELECT {partition} AS g, {order} AS v, {window} AS n FROM {source} QUALIFY {condition}"

    def _dedup(self, source: str, names: list[str]) -> str:
        """The first row of each group, where the order is complete."""
        table = self.rng.choice(TABLES[:2])
        where = f" WHERE {self.condition(['t.id', 't.g'])}" if self.rng.random() < 0.3 else ""
        self.columns = ["g", "id"]
        return (
            "SELECT m.g AS g, m.id AS id FROM (SELECT t.g AS g, t.id AS id, ROW_NUMBER() OVER (PARTITION BY t.g "
            f"ORDER BY t.s, t.id) AS n FROM {table.name} AS t{where}) AS m WHERE m.n = 1"
        )

    def _explode(self, source: str, names: list[str]) -> str:
        column, count = self.int_column(names), self.rng.choice(["COUNT(*)", f"MAX({self.int_column(names)})"])
        self.columns = ["g", "v"]
        if self.rng.random() < 0.5:
            return f"SELECT {column} AS g, EXPLODE(ARRAY(1, {count})) AS v FROM {source} GROUP BY {column}"
        return f"SELECT {column} AS g, EXPLODE(ARRAY({column}, {self.int_column(names)})) AS v FROM {source}"

    def _struct(self, source: str, names: list[str]) -> str:
        """Text with the names of columns, from a struct that names them itself or by its arguments."""
        a, b = self.int_column(names), self.int_column(names)
        struct = self.rng.choice([f"STRUCT({a}, {b})", f"NAMED_STRUCT('a', {a}, 'b', {b})", "STRUCT(*)"])
        self.columns = ["g", "s"]
        return f"SELECT {a} AS g, TO_JSON({struct}) AS s FROM {source}"
