"""Histories of a chain of datasets whose queries change between ticks. Spark's recompute is the judge."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import nova_assets as nova
from nova_assets.model.channel_registration import ReplacementPreview
from nova_assets.testing.world import for_tiny_queries
from nova_assets_tests.fuzz.random_datasets import Column, Query, change_chain, draw_chain

ORDERS = nova.Channel("orders", merge=nova.Upsert(key="id"), schema="id int, k int, a int, b int, s string")
COLUMNS = (Column("k", "number"), Column("a", "number"), Column("b", "number"), Column("s", "text"))

Row = dict[str, Any]


@dataclass
class Copy:
    """A dataset as a reader keeps it by hand, from the changes of each version.

    Args:
        rows: the rows at ``version``, each with its number.
        columns: columns at ``version``.
    """

    version: int = 0
    columns: tuple[str, ...] = ()
    rows: Counter[tuple[Any, ...]] = field(default_factory=Counter)

    def follow(self, store: nova.Store, dataset: str, head: int) -> None:
        """Read the versions up to the head. Ended columns leave the rows, and new ones are null in them."""
        for version in range(self.version + 1, head + 1):
            changes = store.read(dataset, since=version - 1, at=version).to_arrow().to_pylist()
            columns = tuple(store.read(dataset, at=version).to_arrow().column_names)
            rows: Counter[tuple[Any, ...]] = Counter()
            for row, count in self.rows.items():
                values = dict(zip(self.columns, row, strict=True))
                rows[tuple(values.get(name) for name in columns)] += count
            for change in changes:
                rows[tuple(change[name] for name in columns)] += -1 if change["_deleted"] else 1
            negative = {row: count for row, count in rows.items() if count < 0}
            assert not negative, f"version {version} of {dataset} deletes rows that are not there: {negative}"
            self.version, self.columns, self.rows = version, columns, +rows


class History:
    """A store with a chain of datasets, and the steps that were done.

    Args:
        refresh: how each dataset is brought up to date.
    """

    def __init__(self, spark: Any, root: Path, seed: int, refresh: Literal["auto", "full"]) -> None:
        self.spark, self.root, self.rng, self.refresh = spark, root, random.Random(seed), refresh
        self.steps: list[str] = []
        self.chain = draw_chain(self.rng, COLUMNS, self.rng.randint(2, 3))
        self.copies = {name: Copy() for name in self.chain}
        self.store = self._open(self.chain)
        self.store.register(self.store.project)

    def _open(self, chain: dict[str, Query]) -> nova.Store:
        folder = self.root / "sql"
        folder.mkdir(exist_ok=True)
        for name, query in chain.items():
            (folder / f"{name}.sql").write_text(query.sql)
        datasets = nova.datasets(folder, channels=[ORDERS], refresh=self.refresh)
        project = nova.Project(bindings=datasets, channels=[ORDERS])
        return nova.open(project, f"sqlite:///{self.root}/catalog.db", self.root / "warehouse", self.spark)

    def play(self, steps: int) -> None:
        with for_tiny_queries(self.store):
            self.write()
            self.tick()
            for _ in range(steps):
                self.rng.choice((self.write, self.change, self.change, self.compact))()
                if self.rng.random() < 0.7:
                    self.tick()
            self.tick()
        self.store.close()

    def write(self) -> None:
        rows = [
            {
                "id": self.rng.randrange(12),
                "k": self.rng.choice((None, 1, 2, 3)),
                "a": self.rng.choice((None, -2, 1, 3, 5)),
                "b": self.rng.randrange(4),
                "s": self.rng.choice((None, "x", "y", "Z")),
                "_deleted": self.rng.random() < 0.2,
            }
            for _ in range(self.rng.randint(1, 6))
        ]
        self.steps.append(f"write {rows}")
        self.store.insert("orders", list({row["id"]: row for row in rows}.values()))

    def compact(self) -> None:
        name = self.rng.choice(list(self.chain))
        self.steps.append(f"compact {name}")
        self.store.compact(name)

    def change(self) -> None:
        """Change queries, and register them. What is refused changes nothing."""
        chain = change_chain(self.rng, COLUMNS, self.chain)
        self.steps.append("\n  ".join(["change", *(query.sql for query in chain.values())]))
        stored = {name: self.rows(name) for name in self.chain}
        self.store.close()
        store = self._open(chain)
        preview = store.catalog.definitions.preview_replacements(store.project.channels, store.project.bindings)
        try:
            store.register(store.project, replace=True)
        except nova.DefinitionError as error:
            self.steps.append(f"refused: {error.what}")
            assert preview.refused and "cannot become" in str(error), error
            store.close()
            store = self._open(self.chain)
        else:
            assert not preview.refused, preview
            self.chain = chain
        self.store = store
        self._check_present_columns(stored, preview)

    def _check_present_columns(self, stored: dict[str, list[Row]], preview: ReplacementPreview) -> None:
        """No registration changes what stored rows say (R23): a column has its values, or is new."""
        for name, rows in stored.items():
            now, columns = self.rows(name), {c for row in rows for c in row}
            assert name not in preview.by_base or not now or set(now[0]) == columns, f"{name} has its next columns"
            now = [{c: row[c] for c in columns if c in row} for row in now]
            assert bag(now) == bag(rows), f"{name} has other rows since its query was registered"

    def tick(self) -> None:
        """Tick until nothing is to do, then compare each dataset with Spark's recompute, and each copy with it."""
        self.steps.append("tick")
        for _ in range(10):
            planned = self.store.next_tick()
            assert not planned.waits or planned.run, planned
            if not planned.run:
                break
            outcomes = self.store.tick(planned)
            assert all(o.error is None for o in outcomes), outcomes
        preview = self.store.catalog.definitions.preview_replacements(
            self.store.project.channels, self.store.project.bindings
        )
        assert not preview.by_base, f"a base has come, and columns still wait: {preview}"
        heads = {state.channel.name: state.head for state in self.store.channels()}
        self.spark.createDataFrame(self.store.read("orders").to_arrow()).createOrReplaceTempView("orders")
        for name, query in self.chain.items():
            recomputed = self.spark.sql(query.sql).toArrow()
            self.spark.createDataFrame(recomputed).createOrReplaceTempView(name)
            table = self.store.read(name).to_arrow()
            assert table.column_names == recomputed.column_names, name
            assert bag(table.to_pylist()) == bag(recomputed.to_pylist()), f"{name} differs from Spark's recompute"
            if self.refresh == "auto":  # the rows of other datasets cannot be deleted
                copy = self.copies[name]
                copy.follow(self.store, name, heads[name])
                assert copy.rows == Counter(tuple(row.values()) for row in table.to_pylist()), f"the copy of {name}"

    def rows(self, name: str) -> list[Row]:
        rows: list[Row] = self.store.read(name).to_arrow().to_pylist()
        return rows


def bag(rows: list[Row]) -> Counter[tuple[tuple[str, Any], ...]]:
    """Rows without their order, and without the order of their columns."""
    return Counter(tuple(sorted(row.items())) for row in rows)


def play(spark: Any, root: Path, seed: int, steps: int) -> None:
    """Play one history. The error of a difference lists the steps."""
    history = History(spark, root, seed, "full" if seed % 4 == 3 else "auto")
    try:
        history.play(steps)
    except Exception as error:
        raise AssertionError(f"seed {seed}:\n{chr(10).join(history.steps)}\n{error}") from error
