"""Parquet files merged by DuckDB."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers import data
from benchmarks.peers.data import COLUMNS
from benchmarks.peers.system import Answer
from benchmarks.peers.systems.plain import Plain

_NAMES = ", ".join(f'"{c}"' for c in COLUMNS)


class DuckDB(Plain):
    name = "duckdb"
    lines = "Parquet files rewritten by DuckDB, without Spark: no commits, no versions, no changes"

    def versions(self) -> dict[str, str]:
        import duckdb

        return {"duckdb": duckdb.__version__}

    def read(self) -> Answer:
        return data.plain(self._connection(), f"read_parquet({[str(f) for f in self.files]})")

    def _merge(self, files: Sequence[Path], batches: Sequence[Path], gone: Sequence[Path], into: Path) -> None:
        con = self._connection()
        rows = f"SELECT {_NAMES} FROM read_parquet({[str(f) for f in files]})"
        if batches:
            parts = " UNION ALL ".join(
                f"SELECT {_NAMES}, {n} AS nth FROM read_parquet('{b}')" for n, b in enumerate(batches)
            )
            latest = f"SELECT * FROM ({parts}) QUALIFY row_number() OVER (PARTITION BY id ORDER BY nth DESC) = 1"
            con.execute(f"CREATE TEMP TABLE latest AS SELECT {_NAMES} FROM ({latest if len(batches) > 1 else parts})")
            rows = f"SELECT {_NAMES} FROM ({rows}) ANTI JOIN latest USING (id) UNION ALL SELECT {_NAMES} FROM latest"
        if gone:
            rows = f"SELECT {_NAMES} FROM ({rows}) ANTI JOIN read_parquet({[str(g) for g in gone]}) USING (id)"
        con.execute(f"COPY ({rows}) TO '{into}' (FORMAT parquet, COMPRESSION zstd)")

    def _connection(self) -> Any:
        import duckdb

        con = duckdb.connect()
        con.execute("SET threads = 2")
        con.execute("SET TimeZone = 'UTC'")
        con.execute("SET preserve_insertion_order = false")
        return con
