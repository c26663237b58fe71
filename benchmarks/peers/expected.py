"""The right answers, found naively from the inputs, and kept beside them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers import data as d
from benchmarks.peers.system import Answer


class Expected:
    """Right answers by what was done to the base."""

    def __init__(self, data: d.Data) -> None:
        self.data = data
        self.folder = data.folder / "expected"

    def after(self, digest: str, batches: Sequence[Path], deleted: Path | None) -> Answer:
        """What a full read gives after upserts and a deletion."""
        named = "+".join([*(b.name for b in batches), *([f"-{deleted.name}"] if deleted else [])])
        return self._known(hashlib.sha1(named.encode()).hexdigest()[:16], digest, batches, deleted)

    def of(self, digest: str, batch: Path) -> Answer:
        """What a reading of a batch alone gives."""
        import duckdb

        if digest == "spark":
            return _by_spark(batch)
        con = duckdb.connect()
        con.execute("SET TimeZone = 'UTC'")
        return d.plain(con, f"read_parquet('{batch}')")

    def _known(self, name: str, digest: str, batches: Sequence[Path], deleted: Path | None) -> Answer:
        file, rows = self.folder / f"{name}.{digest}.json", self.folder / f"{name}.parquet"
        if not file.exists():
            right = d.expected(self.data, batches, deleted, rows)
            d.save(file, right if digest == "plain" else _by_spark(rows))
            rows.unlink()
        found: Answer = json.loads(file.read_text())
        return found


def _by_spark(path: Path) -> Answer:
    """The checksum that only Spark computes, of plain Parquet files that it had no part in: with the session of the
    system at hand, since there is but one in a process."""
    from pyspark.sql import SparkSession

    from benchmarks.peers.session import digest

    return digest(SparkSession.builder.getOrCreate().read.parquet(str(path)))
