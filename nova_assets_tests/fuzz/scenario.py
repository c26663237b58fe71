"""What a random history is about: one channel of random columns, model, partitions and layout."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any, Literal, TypeAlias

import nova_assets as nova
from nova_assets_tests.fuzz.naive import Column, Model
from nova_assets_tests.fuzz.values import COMBINERS, KEY_TYPES, ORDER_TYPES, TYPES, WIDER_TYPES, ColumnType, canonical

_PARTITIONS: tuple[tuple[ColumnType, tuple[Any, ...], Any], ...] = (
    (TYPES["string"], ("a", "b", "c"), lambda column: nova.static(column, ["a", "b", "c"])),
    (TYPES["string"], ("a", "b%/=\\", "é "), nova.dynamic),
    (TYPES["int"], (0, -7, 2**31 - 1), nova.dynamic),
    (
        TYPES["date"],
        (date(2024, 2, 28), date(2024, 2, 29), date(2024, 12, 31)),
        lambda column: nova.daily(column, start="2024-01-01"),
    ),
)


Kind: TypeAlias = Literal["append", "multiset", "upsert", "keyed"]

KINDS: tuple[Kind, ...] = ("append", "upsert", "upsert", "keyed", "keyed")


@dataclass(frozen=True)
class Scenario:
    """A channel as it is defined at first.

    Args:
        keys: raw values of the key columns, from which rows take theirs; few, so that rows meet.
        partition_values: raw values of the partition column; empty for an unpartitioned channel.
        small_files: whether a few rows fill several buckets and files.
    """

    columns: tuple[Column, ...]
    model: Model
    evolve: bool
    dimension: Any
    partition: int | None
    partition_values: tuple[Any, ...]
    clustered: bool
    small_files: bool
    keys: tuple[tuple[Any, ...], ...]

    @staticmethod
    def draw(
        rng: random.Random, possible_keys: Sequence[ColumnType] = KEY_TYPES, kinds: Sequence[Kind] = KINDS
    ) -> Scenario:
        kind = rng.choice(kinds)
        keyed = kind in ("upsert", "keyed")
        partitioned = rng.random() < 0.4
        key_types = rng.sample(possible_keys, rng.choice([1, 1, 2])) if keyed else []
        value_types = rng.choices(list(TYPES.values()), k=rng.randint(1, 3))
        columns = [Column(n, f"k{n}", t) for n, t in enumerate(key_types)]
        part_type, part_values, dimension = rng.choice(_PARTITIONS)
        if partitioned:
            columns.append(Column(len(columns), "p", part_type))
        key = tuple(c.identity for c in columns) if keyed else ()
        partition = len(columns) - 1 if partitioned else None
        columns += [Column(len(columns) + n, f"v{n}", t) for n, t in enumerate(value_types)]
        combine = _combine(rng, columns[-len(value_types) :]) if kind == "keyed" else {}
        order_by = None
        if keyed and rng.random() < 0.4:
            order_by = len(columns)
            columns.append(Column(order_by, "o", rng.choice(ORDER_TYPES)))
        model = Model(kind, key, order_by, combine)
        by_key = [c.type.values for c in columns[: len(key_types)]]
        return Scenario(
            tuple(columns),
            model,
            evolve=rng.random() < 0.4,
            dimension=dimension("p") if partitioned else None,
            partition=partition,
            partition_values=part_values if partitioned else (),
            clustered=bool(key_types) and key_types[0].ranges and rng.random() < 0.3,
            small_files=rng.random() < 0.6,
            keys=tuple(tuple(rng.choice(values) for values in by_key) for _ in range(8)),
        )

    def channel(self, columns: tuple[Column, ...], renamed: dict[str, str] | None = None) -> nova.Channel:
        """The definition with these columns."""
        key = [c.name for k in self.model.key for c in columns if c.identity == k]
        return nova.Channel(
            "table",
            merge=merge_model(self.model, columns),
            schema=", ".join(f"{c.name} {c.type.ddl}" for c in columns),
            partitions=() if self.dimension is None else (self.dimension,),
            on_schema_change="evolve" if self.evolve else "freeze",
            cluster_by=key[0] if self.clustered else (),
            renamed=renamed,
        )

    def model_of_one_block(self, rng: random.Random, columns: tuple[Column, ...]) -> Model | None:
        """Another merge model that a single delta may have; None if there is none."""
        if self.model.kind in ("append", "multiset"):
            return None if self.model.kind == "append" else Model("append")
        if rng.random() < 0.5 and (self.model.kind == "keyed" or self.model.order_by is not None):
            return Model("upsert", self.model.key)
        free = [c for c in columns if c.identity not in self.fixed and _fits("max", c.type)]
        return Model("keyed", self.model.key, None, {rng.choice(free).identity: "max"}) if free else None

    @property
    def fixed(self) -> frozenset[int]:
        """The columns that no redefinition touches."""
        own = {*self.model.key, *self.model.combine, self.model.order_by, self.partition}
        return frozenset(c for c in own if c is not None)

    def rows(self, rng: random.Random, columns: tuple[Column, ...], most: int) -> list[dict[str, Any]]:
        """Random rows by column name, whose keys come from ``keys``."""
        return [self._row(rng, columns) for _ in range(rng.randint(0, most))]

    def _row(self, rng: random.Random, columns: tuple[Column, ...]) -> dict[str, Any]:
        row: dict[str, Any] = {}
        key = dict(zip([c for c in self.model.key if c != self.partition], rng.choice(self.keys), strict=True))
        for column in columns:
            if column.identity == self.partition:
                row[column.name] = rng.choice(self.partition_values)
            elif column.identity in key:
                row[column.name] = key[column.identity]
            else:
                row[column.name] = None if rng.random() < 0.2 else rng.choice(column.type.values)
        return row


def merge_model(model: Model, columns: tuple[Column, ...]) -> Any:
    """The model as users write it."""
    names = {c.identity: c.name for c in columns}
    key = [names[c] for c in model.key]
    order_by = None if model.order_by is None else names[model.order_by]
    if model.kind == "upsert":
        return nova.Upsert(key=key, order_by=order_by)
    if model.kind == "keyed":
        return nova.Keyed(key=key, combine={names[c]: f for c, f in model.combine.items()}, order_by=order_by)
    return nova.Multiset() if model.kind == "multiset" else nova.Append()


def canonical_row(row: dict[str, Any], columns: tuple[Column, ...]) -> dict[int, Any]:
    """A raw row by column name as a row of the naive channel."""
    return {c.identity: canonical(row.get(c.name), c.type) for c in columns}


def widened(column: Column) -> Column | None:
    """The column with the type into which it may be widened; None where there is none."""
    return None if column.type.wider is None else replace(column, type=WIDER_TYPES[column.type.wider])


def _combine(rng: random.Random, columns: list[Column]) -> dict[int, str]:
    found = {}
    for column in columns:
        fitting = [f for f in COMBINERS if _fits(f, column.type)]
        if fitting and rng.random() < 0.8:
            found[column.identity] = rng.choice(fitting)
    return found


def _fits(combiner: str, type_: ColumnType) -> bool:
    if combiner == "sum":
        return type_.summable
    if combiner.startswith("bool"):
        return type_.ddl == "boolean"
    return type_ in ORDER_TYPES
