"""Delta Lake without Spark: delta-rs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.peers.data import first_day
from benchmarks.peers.system import Answer, System

_SUMS = """
    count(*), sum(id % 1000003), sum(CAST(day AS int)), sum(character_length(name)),
    sum(CAST(floor(price * 1000000) AS bigint) % 1000003), sum(quantity), sum(CAST(amount * 100 AS bigint)),
    sum(CAST("at" AS bigint) % 1000003), sum(character_length(note))
"""


class DeltaRs(System):
    name = "delta-rs"
    digest = "plain"
    lines = "Delta Lake by delta-rs, without Spark: MERGE rewrites files, change data feed, optimize every fifth commit"

    def versions(self) -> dict[str, str]:
        from importlib.metadata import version

        return {"deltalake": version("deltalake")}

    def settings(self) -> dict[str, str]:
        # https://delta-io.github.io/delta-rs/usage/merging-tables/ and
        # https://delta-io.github.io/delta-rs/usage/optimize/small-file-compaction-with-optimize/
        return {
            "delta.enableChangeDataFeed": "true",
            "writer_properties": "compression=ZSTD",
            "upkeep": "optimize.compact() after every fifth commit",
        }

    @property
    def _table(self) -> Any:
        from deltalake import DeltaTable

        return DeltaTable(str(self.folder / "table"))

    def _writing(self) -> Any:
        from deltalake import WriterProperties

        return WriterProperties(compression="ZSTD")

    def load(self, files: Sequence[Path]) -> None:
        from deltalake import write_deltalake

        for n, file in enumerate(files):
            own = {"configuration": {"delta.enableChangeDataFeed": "true"}} if n == 0 else {}
            path = str(self.folder / "table")
            write_deltalake(path, pq.read_table(file), mode="append", writer_properties=self._writing(), **own)

    def upsert(self, batch: Path) -> None:
        merging = self._merging(pq.read_table(batch), f" AND t.day >= DATE '{first_day(batch)}'")
        merging.when_matched_update_all().when_not_matched_insert_all().execute()

    def delete(self, keys: Path) -> None:
        self._merging(pq.read_table(keys), "").when_matched_delete().execute()

    def _merging(self, rows: pa.Table, bound: str) -> Any:
        on = " AND ".join(f"t.{k} = s.{k}" for k in self.layout.key) + (bound if self.layout.clustered else "")
        names = {"source_alias": "s", "target_alias": "t"}
        return self._table.merge(rows, predicate=on, writer_properties=self._writing(), **names)

    def upkeep(self, *, force: bool = False) -> None:
        if self.is_due(force):
            self._table.optimize.compact(writer_properties=self._writing())

    def read(self) -> Answer:
        from deltalake import QueryBuilder

        found = QueryBuilder().register("t", self._table).execute(f"SELECT {_SUMS} FROM t")
        return _answer(pa.table(found))

    def position(self) -> int:
        return int(self._table.version())

    def changes(self, since: Any) -> Answer:
        from benchmarks.peers import data

        return data.plain(*self._changed(since))

    def collected(self, since: Any) -> int:
        con, rows = self._changed(since)
        return len(con.sql(f"FROM {rows}").to_arrow_table())

    def _changed(self, since: Any) -> tuple[Any, str]:
        """The rows as a relation of DuckDB, which knows Arrow's newer types."""
        import duckdb

        feed = self._table.load_cdf(starting_version=since + 1)
        con = duckdb.connect()
        con.execute("SET TimeZone = 'UTC'")
        con.register("feed", pa.table(feed))
        return con, "(SELECT * FROM feed WHERE _change_type IN ('insert', 'update_postimage'))"

    def live(self) -> tuple[int, int]:
        files = pa.table(self._table.get_add_actions(flatten=True))
        return files.num_rows, sum(files["size_bytes"].to_pylist())


def _answer(row: pa.Table) -> Answer:
    return [str(c[0].as_py()) for c in row.columns]
