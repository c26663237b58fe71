"""Tools that know nothing of a channel read it where it is published, while it is written to, compacted and collected:
whatever any of them reads is exactly some commit's snapshot.

    python -m nova_assets_tests.publish.readers FOLDER --seconds 600
"""

from __future__ import annotations

import argparse
import itertools
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import nova_assets as nova
from nova_assets_tests.publish.shop import Row, Shop, rows

KEYS = [(day, action, n) for n, (day, action) in enumerate(itertools.product(("2024-01-01", "2024-01-02"), "abc"))]
"""Where each commit puts a row: in six partitions."""

Reader = Callable[[Shop], Iterable[int]]
"""The commits of whose rows it reads: one number for each row."""


def _numbers(table: pa.Table) -> list[int]:
    return table.column("n").to_pylist()  # type: ignore[no-any-return]


def _spark(shop: Shop) -> Iterable[int]:
    session = SparkSession.getActiveSession()
    assert session is not None
    return [r[0] for r in session.read.parquet(str(shop.resolved)).where("dt >= '2024-01-01'").select("n").collect()]


def _duckdb_of_iceberg(shop: Shop) -> Iterable[int]:
    found = shop.iceberg().scan().to_arrow()  # DuckDB finds it by this name
    assert found is not None
    return [r[0] for r in duckdb.sql("SELECT n FROM found").fetchall()]


READERS: dict[str, Reader] = {
    "pyarrow, a dataset": lambda s: _numbers(ds.dataset(s.resolved, partitioning=None).to_table(columns=["n"])),
    "pyarrow, a table": lambda s: _numbers(pq.read_table(s.resolved, columns=["n"], partitioning=None)),
    "pandas": lambda s: pd.read_parquet(s.resolved, partitioning=None)["n"],
    "polars": lambda s: (
        pl.scan_parquet(s.resolved / "**/*.parquet", hive_partitioning=True)
        .filter(pl.col("action").is_in(["a", "b", "c"]))
        .collect()["n"]
        .to_list()
    ),
    "duckdb": lambda s: [
        r[0]
        for r in duckdb.execute(
            "SELECT n FROM read_parquet(?, hive_partitioning = true) WHERE dt >= DATE '2024-01-01'",
            [f"{s.resolved}/**/*.parquet"],
        ).fetchall()
    ],
    "spark": _spark,
    "pyiceberg": lambda s: _numbers(s.iceberg().scan().to_arrow()),
    "pyiceberg, one partition's worth": lambda s: _numbers(
        s.iceberg().scan(row_filter="action in ('a', 'b', 'c')").to_arrow()
    ),
    "duckdb, of pyiceberg": _duckdb_of_iceberg,
}


@dataclass
class Seen:
    """What came of it: reads by reader, how many different commits they saw, and what was no commit's snapshot."""

    reads: Counter[str] = field(default_factory=Counter)
    commits: set[int] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    written: int = 0
    editions: int = 0


def watch(root: Path, seconds: float, *, keyed: bool, readers: Sequence[str] = tuple(READERS)) -> Seen:
    """Write, compact and collect for so long, and read all the while.

    Args:
        keyed: each commit replaces every row; otherwise it adds some.
    """
    merge = nova.Upsert(key=["dt", "action", "id"]) if keyed else nova.Append()
    shop = Shop(root, merge, grace=10.0)
    seen, over, failed = Seen(), threading.Event(), list[BaseException]()
    _commit(shop, seen)
    for name in readers:  # what a tool takes to start is not the grace's business
        list(READERS[name](shop))

    def write() -> None:
        try:
            while not over.is_set():
                _commit(shop, seen)
                if seen.written % 5 == 0:
                    shop.store.compact("actions")
                    shop.store.collect_garbage("actions")
                    shop.store.delete_collected()
        except BaseException as error:
            failed.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    until = time.monotonic() + seconds
    try:
        for name in itertools.cycle(readers):
            if time.monotonic() > until or failed:
                break
            _judge(seen, name, list(READERS[name](shop)), keyed)
    finally:
        over.set()
        writer.join()
    if failed:
        raise failed[0]
    seen.editions = max(e.number for e in shop.store.published("actions"))
    return seen


def _commit(shop: Shop, seen: Seen) -> None:
    n = seen.written + 1
    some: list[Row] = [(day, action, i, n) for day, action, i in KEYS]
    assert shop.store.insert("actions", rows(*some)).seq == n
    shop.publish()
    seen.written = n


def _judge(seen: Seen, name: str, found: list[int], keyed: bool) -> None:
    """A commit's snapshot has six rows of that commit alone, where it replaces; else of every commit up to it."""
    counts, last = Counter(found), max(found, default=0)
    right = {last: len(KEYS)} if keyed else dict.fromkeys(range(1, last + 1), len(KEYS))
    seen.reads[name] += 1
    seen.commits.add(last)
    if counts != right:
        seen.wrong.append(f"{name}: {dict(counts)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=600.0)
    asked: Any = parser.parse_args()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from nova_assets.engine.session.spark_session import get_or_build_session

    get_or_build_session("local", asked.folder, {})
    for keyed in (False, True):
        seen = watch(asked.folder / ("keyed" if keyed else "append"), asked.seconds / 2, keyed=keyed)
        print(f"{'Upsert' if keyed else 'Append'}: {seen.written} commits, {seen.editions} editions")
        for name, n in seen.reads.items():
            print(f"  {name}: {n} reads")
        print(f"  {len(seen.commits)} different commits seen; {len(seen.wrong)} reads that were none's")
        for line in seen.wrong[:10]:
            print(f"    {line}")


if __name__ == "__main__":
    main()
