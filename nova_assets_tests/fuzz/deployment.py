"""The channel ``table`` in a deployment: stores for each read strategy, and bindings that consume the channel."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

import nova_assets as nova
from nova_assets.settings import load_settings
from nova_assets.store.store import Store


class Deployment:
    """A deployment in a folder.

    Args:
        channel: definition of the channel ``table``.
        folder: folder of the catalog and the warehouse.
        spark: session for the strategies that use Spark, and for bindings; None for none of these.

    Attributes:
        channel: the registered definition.
        views: binding -> (old, new, all) as the task of its last run has read them; None for a mode that it lacks.
    """

    def __init__(self, channel: nova.Channel, folder: Path, spark: Any = None) -> None:
        self.spark = spark
        self.views: dict[str, tuple[Any, Any, Any]] = {}
        self._folder = folder
        self._stores: dict[str, Store] = {}
        self.open(channel)

    def open(self, channel: nova.Channel) -> None:
        """Begin anew with a definition of the channel, as another process does."""
        self.close()
        self.channel = channel
        self._project = self._consumers(channel)
        self.store.register(self._project)

    def close(self) -> None:
        for store in self._stores.values():
            store.close()
        self._stores = {}

    @property
    def store(self) -> Store:
        return self._store("arrow")

    def table(self, at: int | None, strategy: str = "arrow", **selection: Any) -> pa.Table:
        """Rows of the channel, as a user reads them by a strategy."""
        store = self._store("arrow" if strategy == "batches" else strategy)
        selected = store.read("table", at=at, **selection)
        if strategy == "arrow":
            return selected.to_arrow()
        if strategy == "batches":
            return selected.to_batches().read_all()
        return store.engine.frames.to_arrow(selected.to_spark())

    def _store(self, strategy: str) -> Store:
        if strategy not in self._stores:
            settings = replace(
                load_settings(
                    start_folder=self._folder,
                    catalog=f"sqlite:///{self._folder / 'catalog.db'}",
                    warehouse=str(self._folder / "warehouse"),
                ),
                gc_grace=1e-6,
                strategy=strategy,
            )
            self._stores[strategy] = nova.open(self._project, spark=self.spark, settings=settings)
        return self._stores[strategy]

    def _consumers(self, table: nova.Channel) -> nova.Project:
        """Two bindings that count what is new: one of them also reads what was there before."""
        counts = [nova.Channel(f"count_{n}", schema="n bigint") for n in ("changes", "new")]

        def count_changes(table: nova.View) -> Any:
            engine = self.store.engine
            self.views["changes"] = tuple(engine.frames.to_arrow(f) for f in (table.old, table.new, table.all))
            return table.new.groupBy().count().withColumnRenamed("count", "n")

        def count_new(table: Any) -> Any:
            self.views["new"] = (None, self.store.engine.frames.to_arrow(table), None)
            return table.groupBy().count().withColumnRenamed("count", "n")

        tasks = [
            nova.task(consumes=nova.changes(table), produces=nova.delta(counts[0]))(count_changes),
            nova.task(consumes=nova.new(table), produces=nova.delta(counts[1]))(count_new),
        ]
        names = ("changes", "new")
        return nova.Project(
            [nova.bind(nova.Workflowette(n, [t]), name=n, partitions=[]) for n, t in zip(names, tasks, strict=True)]
        )
