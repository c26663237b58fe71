"""What a random history is about: one channel of random columns, model, partitions and layout."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

import nova_assets as nova
from nova_assets_tests.fuzz.models import draw_combiners, merge_model
from nova_assets_tests.fuzz.naive import Column, Kind, Model
from nova_assets_tests.fuzz.values import KEY_TYPES, ORDER_TYPES, TYPES, WIDER_TYPES, ColumnType, canonical

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


KINDS: tuple[Kind, ...] = ("append", "upsert", "upsert", "keyed", "keyed")


@dataclass(frozen=True)
class Scenario:
    """A channel as it is defined at first.

    Args:
        keys: raw values of the key columns, from which rows take theirs; few, so that rows meet.
        partition_values: raw values of the partition column; empty for an unpartitioned channel.
        small_files: whether a few rows fill several buckets and files.
        possible_keys: types that a key may have.
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
    possible_keys: tuple[ColumnType, ...] = tuple(KEY_TYPES)

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
        combine = draw_combiners(rng, columns[-len(value_types) :]) if kind == "keyed" else {}
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
            possible_keys=tuple(possible_keys),
        )

    def channel(
        self, columns: tuple[Column, ...], model: Model | None = None, renamed: dict[str, str] | None = None
    ) -> nova.Channel:
        """The definition with these columns, and this merge model or the first one."""
        model = model or self.model
        key = [c for k in model.key for c in columns if c.identity == k]
        return nova.Channel(
            "table",
            merge=merge_model(model, columns),
            schema=", ".join(f"{c.name} {c.type.ddl}" for c in columns),
            partitions=() if self.dimension is None else (self.dimension,),
            on_schema_change="evolve" if self.evolve else "freeze",
            cluster_by=key[0].name if self.clustered and key and key[0].type.ranges else (),
            renamed=renamed,
        )

    def rows(
        self, rng: random.Random, columns: tuple[Column, ...], most: int, key: Collection[int] = ()
    ) -> list[dict[str, Any]]:
        """Random rows by column name. The first key of the channel comes from ``keys``.

        Args:
            key: columns of the present key, which are never null.
        """
        return [self._row(rng, columns, key) for _ in range(rng.randint(0, most))]

    def _row(self, rng: random.Random, columns: tuple[Column, ...], key: Collection[int]) -> dict[str, Any]:
        row: dict[str, Any] = {}
        first_key = dict(zip([c for c in self.model.key if c != self.partition], rng.choice(self.keys), strict=True))
        for column in columns:
            if column.identity == self.partition:
                row[column.name] = rng.choice(self.partition_values)
            elif column.identity in first_key:
                row[column.name] = first_key[column.identity]
            else:
                is_null = rng.random() < 0.2 and column.identity not in key
                row[column.name] = None if is_null else rng.choice(column.type.values)
        return row


def canonical_row(row: dict[str, Any], columns: tuple[Column, ...]) -> dict[int, Any]:
    """A raw row by column name as a row of the naive channel."""
    return {c.identity: canonical(row.get(c.name), c.type) for c in columns}


def widened(column: Column) -> Column | None:
    """The column with the type into which it may be widened; None where there is none."""
    return None if column.type.wider is None else replace(column, type=WIDER_TYPES[column.type.wider])
