"""Parquet files merged by Polars."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.data import COLUMNS
from benchmarks.peers.system import Answer
from benchmarks.peers.systems.plain import Plain

os.environ.setdefault("POLARS_MAX_THREADS", "2")


class Polars(Plain):
    name = "polars"
    lines = "Parquet files rewritten by Polars, without Spark: no commits, no versions, no changes"

    def versions(self) -> dict[str, str]:
        import polars

        return {"polars": polars.__version__}

    def read(self) -> Answer:
        import polars as pl

        c = pl.col
        sums = [
            c("id") % 1000003,
            c("day").cast(pl.Int32).cast(pl.Int64),
            c("name").str.len_chars().cast(pl.Int64),
            (c("price") * 1000000).floor().cast(pl.Int64) % 1000003,
            c("quantity").cast(pl.Int64),
            (c("amount") * 100).cast(pl.Int64),
            c("at").dt.timestamp("us") % 1000003,
            c("note").str.len_chars().cast(pl.Int64),
        ]
        found: Any = self._scan(self.files).select(pl.len(), *(s.sum().alias(f"s{n}") for n, s in enumerate(sums)))
        return [str(v) for v in found.collect(engine="streaming").row(0)]

    def _merge(self, files: Sequence[Path], batches: Sequence[Path], gone: Sequence[Path], into: Path) -> None:
        import polars as pl

        rows = self._scan(files)
        if batches:
            latest = self._scan(batches)
            if len(batches) > 1:
                latest = latest.collect().unique("id", keep="last", maintain_order=True).lazy()
            rows = pl.concat([rows.join(latest, on="id", how="anti"), latest])
        if gone:
            rows = rows.join(self._scan(gone, ["id"]), on="id", how="anti")
        rows.sink_parquet(into, compression="zstd", maintain_order=False)

    def _scan(self, files: Sequence[Path], columns: Sequence[str] = COLUMNS) -> Any:
        import polars as pl

        return pl.scan_parquet([str(f) for f in files]).select(columns)
