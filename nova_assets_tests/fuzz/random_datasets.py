"""Random queries of a chain of datasets, and random changes of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["number", "text"]

NAMES = ("k", "a", "b", "c", "d", "e")
"""Few, so that a column takes the name of one that was dropped."""

_PLAIN = {
    "number": ("{}", "{} + 1", "COALESCE({}, 0)", "CAST({} AS bigint)", "-{}"),
    "text": ("{}", "UPPER({})"),
}
_GROUPED = {
    "number": ("SUM({})", "MAX({})", "COUNT({})", "CAST(MIN({}) AS bigint)", "SUM({} * 2)"),
    "text": ("MIN({})", "CONCAT(MAX({}), '!')"),
}
_FILTERS = {"number": ("{} > 1", "{} IS NOT NULL", "{} <> 3"), "text": ("{} <> 'x'",)}


@dataclass(frozen=True)
class Column:
    name: str
    kind: Kind


@dataclass(frozen=True)
class Item:
    """An output column.

    Args:
        source: column of the input that the expression reads.
        form: the expression, with ``{}`` for the column.
    """

    name: str
    source: Column
    form: str

    @property
    def sql(self) -> str:
        return f"{self.form.format(self.source.name)} AS {self.name}"

    @property
    def column(self) -> Column:
        return Column(self.name, self.source.kind)


@dataclass(frozen=True)
class Query:
    """A query over one input.

    Args:
        keys: columns of GROUP BY; empty for a query without groups.
    """

    input: str
    keys: tuple[Item, ...]
    items: tuple[Item, ...]
    filter: str = ""
    is_star: bool = False

    @property
    def outputs(self) -> tuple[Item, ...]:
        return (*self.keys, *self.items)

    @property
    def sql(self) -> str:
        columns = "*" if self.is_star else ", ".join(item.sql for item in self.outputs)
        where = f" WHERE {self.filter}" if self.filter else ""
        groups = f" GROUP BY {', '.join(k.source.name for k in self.keys)}" if self.keys else ""
        return f"SELECT {columns} FROM {self.input}{where}{groups}"

    @staticmethod
    def draw(rng: random.Random, input: str, columns: Sequence[Column]) -> Query:
        """A query over an input with these columns."""
        if rng.random() < 0.15:
            return Query(input, (), tuple(Item(c.name, c, "{}") for c in columns), is_star=True)
        query = Query(input, (), ())
        names = rng.sample(NAMES, rng.randint(2, 4))
        if rng.random() < 0.6:
            query = replace(query, keys=(Item(names.pop(), rng.choice(columns), "{}"),))
        return replace(query, items=tuple(_draw_item(rng, query, columns, n) for n in names))

    def change(self, rng: random.Random, columns: Sequence[Column]) -> Query:
        """The query after one change, over an input with these columns."""
        free = [n for n in NAMES if n not in {i.name for i in self.outputs}]
        action = rng.choice(("rename", "rename", "drop", "add", "calculation", "filter", "keys", "exchange", "draw"))
        if action == "draw" or self.is_star:
            return Query.draw(rng, self.input, columns)
        items, at = list(self.items), rng.randrange(len(self.items))
        if action == "rename" and free:
            items[at] = replace(items[at], name=rng.choice(free))
        elif action == "drop" and len(items) > 1:
            del items[at]
        elif action == "add" and free:
            items.insert(at, _draw_item(rng, self, columns, rng.choice(free)))
        elif action == "calculation":
            items[at] = _draw_item(rng, self, columns, items[at].name)
        elif action == "exchange" and len(items) > 1:
            names = [i.name for i in items]
            items = [replace(i, name=n) for i, n in zip(items, [*names[1:], names[0]], strict=True)]
        elif action == "keys" and self.keys:
            return replace(self, keys=(replace(self.keys[0], source=rng.choice(columns)),))
        elif action == "filter":
            column = rng.choice(columns)
            filter = "" if self.filter else rng.choice(_FILTERS[column.kind]).format(column.name)
            return replace(self, filter=filter)
        return replace(self, items=tuple(items))

    def fits(self, columns: Sequence[Column]) -> bool:
        """Whether an input with these columns has all that the query names."""
        if self.is_star:
            return [i.source for i in self.items] == list(columns)
        named = {i.source for i in self.outputs}
        return named <= set(columns) and (not self.filter or self.filter.split()[0] in {c.name for c in columns})


def _draw_item(rng: random.Random, query: Query, columns: Sequence[Column], name: str) -> Item:
    source = rng.choice(columns)
    return Item(name, source, rng.choice((_GROUPED if query.keys else _PLAIN)[source.kind]))


def draw_chain(rng: random.Random, columns: Sequence[Column], length: int) -> dict[str, Query]:
    """Queries of datasets, each of which reads the one before. The first reads ``orders``."""
    return repair_chain(rng, columns, dict.fromkeys(f"d{n + 1}" for n in range(length)))


def repair_chain(
    rng: random.Random, columns: Sequence[Column], chain: dict[str, Query] | dict[str, None]
) -> dict[str, Query]:
    """The chain with another query in place of each query that names a column which its input lacks."""
    repaired: dict[str, Query] = {}
    input = "orders"
    for name, query in chain.items():
        if query is None or not query.fits(columns):
            query = Query.draw(rng, input, columns)
        repaired[name] = query
        input, columns = name, [i.column for i in query.outputs]
    return repaired


def change_chain(rng: random.Random, columns: Sequence[Column], chain: dict[str, Query]) -> dict[str, Query]:
    """The chain after one to three changes."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        name = rng.choice(list(chain))
        input = chain[name].input
        inputs = columns if input == "orders" else [i.column for i in chain[input].outputs]
        chain = repair_chain(rng, columns, {**chain, name: chain[name].change(rng, inputs)})
    return chain
