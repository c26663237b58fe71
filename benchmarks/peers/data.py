"""What is loaded and upserted: made once, from a seed, as Parquet; and what then must be there.

A row is known by its number ``n``. Its key follows from that: ``id`` is spread over all of bigint, ``day`` grows with
``n``. So random numbers are uniform keys, and the latest numbers are the keys of the latest days.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

COLUMNS = ("id", "day", "name", "price", "quantity", "amount", "at", "note")
DDL = "id bigint, day date, name string, price double, quantity int, amount decimal(12,2), at timestamp, note string"

BASE_FILES = 16
DAYS = 365
"""The base covers so many days."""

LATEST_DAYS = 7
"""Clustered updates are of so many days, or of more where those have too few rows."""

UPDATES = 0.8
"""So many of the rows of a batch replace others."""

_FIRST_DAY = (date(2024, 1, 1) - date(1970, 1, 1)).days
_DAY_US = 86_400_000_000
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_WORDS = "red green blue black white small large round light heavy early late warm cold quick slow".split()


@dataclass(frozen=True)
class Data:
    """The files of one size of table.

    Args:
        folder: they are all in there.
        rows: of the base.
    """

    folder: Path
    rows: int

    @property
    def base(self) -> list[Path]:
        found = [self.folder / "base" / f"part-{n:02d}.parquet" for n in range(BASE_FILES)]
        for n, path in enumerate(found):
            start, end = (self.rows * k // BASE_FILES for k in (n, n + 1))
            self._make(path, np.arange(start, end))
        return found

    def batch(self, name: str, rows: int, *, clustered: bool = False, new_from: int = 0) -> Path:
        """Rows to upsert.

        Args:
            new_from: so many rows beyond the base have been inserted already.
        """
        path, rng = self.folder / f"{name}.parquet", _rng(name)
        updates = int(rows * UPDATES)
        start = self.rows + new_from
        if not path.exists():
            window = max(self.rows * LATEST_DAYS // DAYS, 2 * updates) if clustered else self.rows
            old = self.rows - 1 - rng.choice(min(window, self.rows), updates, replace=False)
            numbers = np.concatenate([old, np.arange(start, start + rows - updates)])
            self._make(path, rng.permutation(numbers))
        return path

    def keys(self, name: str, rows: int) -> Path:
        """Keys to delete."""
        path = self.folder / f"{name}.parquet"
        if not path.exists():
            numbers = _rng(name).choice(self.rows, rows, replace=False)
            _write(_rows(numbers, self.rows, _rng(name)).select(["id", "day"]), path)
        return path

    def _make(self, path: Path, numbers: Any) -> None:
        if not path.exists():
            _write(_rows(numbers, self.rows, _rng(path.stem)), path)


def first_day(batch: Path) -> str:
    """The earliest day of a batch: what a pipeline knows of the data that it was just handed."""
    file = pq.ParquetFile(batch)
    day = file.schema_arrow.get_field_index("day")
    return str(min(file.metadata.row_group(n).column(day).statistics.min for n in range(file.num_row_groups)))


def _rng(name: str) -> np.random.Generator:
    return np.random.default_rng(crc32(name.encode()))


def _rows(numbers: Any, rows: int, rng: np.random.Generator) -> pa.Table:
    count = len(numbers)
    ids = (numbers.astype(np.uint64) * _SPREAD) & np.uint64(2**63 - 1)
    days = _FIRST_DAY + numbers // max(1, rows // DAYS)
    hexes = pa.array([f"{n:04x}" for n in range(2**16)])
    words = pa.array(_WORDS)

    def some(values: pa.Array) -> pa.Array:
        return values.take(pa.array(rng.integers(0, len(values), count)))

    cents = pa.array(rng.integers(0, 10**8, count)).cast(pa.decimal128(19, 0))
    amount = pc.multiply(cents, pa.scalar(Decimal("0.01"), pa.decimal128(3, 2))).cast(pa.decimal128(12, 2))
    at = days * _DAY_US + rng.integers(0, _DAY_US, count)
    return pa.table(
        {
            "id": pa.array(ids.astype(np.int64)),
            "day": pa.array(days.astype(np.int32), pa.int32()).cast(pa.date32()),
            "name": pc.binary_join_element_wise("customer", some(hexes), some(hexes), ""),
            "price": pa.array(rng.random(count) * 1000),
            "quantity": pa.array(rng.integers(0, 1000, count).astype(np.int32)),
            "amount": amount,
            "at": pa.array(at, pa.timestamp("us", "UTC")),
            "note": pc.binary_join_element_wise(some(words), some(words), some(words), " "),
        }
    )


def _write(table: pa.Table, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    pq.write_table(table, part, compression="zstd", row_group_size=2**18)
    part.rename(path)


PLAIN = """
    count(*), sum(id % 1000003), sum(day - DATE '1970-01-01'), sum(length(name)),
    sum(CAST(floor(price * 1000000) AS bigint) % 1000003), sum(quantity), sum(CAST(amount * 100 AS bigint)),
    sum(epoch_us("at") % 1000003), sum(length(note))
"""
"""A checksum of all columns that systems without Spark can compute, too; here as duckdb says it."""


def expected(data: Data, batches: Sequence[Path], deleted: Path | None, into: Path) -> list[str]:
    """What must be there after upserts and a deletion: the rows as Parquet, and their plain checksum.

    Every row is looked up naively: the latest batch that has its id decides.
    """
    import duckdb

    into.parent.mkdir(parents=True, exist_ok=True)
    names = ", ".join(f'"{c}"' for c in COLUMNS)
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'")
    con.execute("SET preserve_insertion_order = false")
    con.execute(f"CREATE VIEW base AS SELECT {names} FROM read_parquet({[str(p) for p in data.base]})")
    parts = "".join(
        f" UNION ALL SELECT {names}, {n} AS nth FROM read_parquet('{path}')" for n, path in enumerate(batches)
    )
    con.execute(f"CREATE TABLE changed AS SELECT * FROM (SELECT {names}, -1 AS nth FROM base WHERE false{parts})")
    latest = "SELECT * FROM changed QUALIFY row_number() OVER (PARTITION BY id ORDER BY nth DESC) = 1"
    con.execute(f"CREATE TABLE latest AS SELECT {names} FROM ({latest})")
    state = f"SELECT {names} FROM base ANTI JOIN latest USING (id) UNION ALL SELECT {names} FROM latest"
    if deleted is not None:
        state = f"SELECT {names} FROM ({state}) ANTI JOIN read_parquet('{deleted}') gone USING (id)"
    con.execute(f"COPY ({state}) TO '{into}' (FORMAT parquet, COMPRESSION zstd)")
    return plain(con, f"read_parquet('{into}')")


def plain(con: Any, relation: str) -> list[str]:
    """The plain checksum of a relation of duckdb."""
    return [str(v) for v in con.execute(f"SELECT {PLAIN} FROM {relation}").fetchone()]


def save(path: Path, value: Any) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(value))
    part.rename(path)
