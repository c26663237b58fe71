"""nova_assets itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.peers.data import COLUMNS, DDL
from benchmarks.peers.session import spark_version
from benchmarks.peers.systems.sparked import Sparked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from nova_assets.store.store import Store


class Nova(Sparked):
    name = "nova"
    lines = "a keyed channel (nova.Upsert), upkeep by its default policy after every commit"

    _open: Store | None = None

    def settings(self) -> dict[str, str]:
        by = 'cluster_by="day"' if self.layout.clustered else "no cluster_by"
        return {
            "channel": f"merge=nova.Upsert(key={list(self.layout.key)}), {by}",
            "catalog": "SQLite",
            "gc_grace": "0 (files of collected blocks go at once)",
            "upkeep": "compact(force=False), collect, delete_collected after every commit",
        }

    def versions(self) -> dict[str, str]:
        from importlib.metadata import version

        return {"nova-assets": version("nova-assets"), "spark": spark_version()}

    @property
    def store(self) -> Store:
        if self._open is None:
            import nova_assets as nova
            from nova_assets.settings import load_settings

            by = "day" if self.layout.clustered else ()
            facts = nova.Channel("facts", merge=nova.Upsert(key=list(self.layout.key)), schema=DDL, cluster_by=by)
            place: dict[str, Any] = {"catalog": f"sqlite:///{self.folder}/c.db", "warehouse": f"{self.folder}/wh"}
            config = load_settings(start_folder=self.folder, gc_grace=1e-6, **place)
            self._open = nova.open(nova.Project(channels=[facts]), spark=self.spark, settings=config)
        return self._open

    def load(self, files: Sequence[Path]) -> None:
        self.store.insert("facts", [str(f) for f in files], kind="base")

    def upsert(self, batch: Path) -> None:
        self.store.insert("facts", str(batch))

    def delete(self, keys: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        rows = pq.read_table(keys)
        self.store.insert("facts", rows.append_column("_deleted", pa.repeat(pa.scalar(True), len(rows))))

    def upkeep(self, *, force: bool = False) -> None:
        self.store.compact("facts", force=force)
        self.store.collect_garbage("facts")
        self.store.delete_collected()

    def frame(self) -> DataFrame:
        found: DataFrame = self.store.read("facts").to_spark()
        return found

    def position(self) -> int:
        return next(c.head for c in self.store.channels() if c.channel.name == "facts")

    def changed(self, since: Any) -> DataFrame:
        found: DataFrame = self.store.read("facts", since=since).to_spark()
        return found.where("NOT _deleted")

    def collected(self, since: Any) -> int:
        import pyarrow.compute as pc

        rows = self.store.read("facts", since=since).to_arrow()
        return len(rows.filter(pc.invert(rows["_deleted"])).select(COLUMNS))

    def live(self) -> tuple[int, int]:
        blocks = self.store.catalog.histories.of("facts").blocks
        newest = max((b.hi for b in blocks if b.kind == "base"), default=0)
        files = [f for b in blocks if b.hi > newest or (b.kind == "base" and b.hi == newest) for f in b.manifest.files]
        return len(files), sum(f.bytes for f in files)

    def renew(self) -> None:
        super().renew()
        if self._open is not None:
            self._open.close()
            self._open = None
