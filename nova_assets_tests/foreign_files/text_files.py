"""CSV and JSON files of DuckDB, polars, pyarrow and pandas, compressed as nova accepts it."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import zstandard
from pyarrow import csv as arrow_csv

from nova_assets_tests.foreign_files.foreign_file import ForeignFile, Rows
from nova_assets_tests.foreign_files.parquet_files import ROWS

DDL = "id bigint, name string, f double"
_ROWS: Rows = [{"id": n, "name": f'a, "{n}"' if n % 4 else f"é{n}", "f": n / 4} for n in range(ROWS)]
_COLUMNS = {name: [row[name] for row in _ROWS] for name in ("id", "name", "f")}


def _duckdb(path: Path, options: str) -> None:
    with duckdb.connect() as connection:
        connection.register("rows", pa.table(_COLUMNS))
        connection.execute(f"COPY (SELECT * FROM rows) TO '{path}' ({options})")


def _pandas_csv(path: Path) -> None:
    pd.DataFrame(_COLUMNS).to_csv(path, index=False)


def _pandas_json(path: Path) -> None:
    pd.DataFrame(_COLUMNS).to_json(path, orient="records", lines=True, force_ascii=False)


_WRITERS: Mapping[tuple[str, str], Callable[[Path], object]] = {
    ("DuckDB", "csv"): lambda path: _duckdb(path, "FORMAT csv, HEADER"),
    ("DuckDB", "json"): lambda path: _duckdb(path, "FORMAT json"),
    ("polars", "csv"): lambda path: pl.DataFrame(_COLUMNS).write_csv(path),
    ("polars", "jsonl"): lambda path: pl.DataFrame(_COLUMNS).write_ndjson(path),
    ("pyarrow", "csv"): lambda path: arrow_csv.write_csv(pa.table(_COLUMNS), path),
    ("pandas", "csv"): _pandas_csv,
    ("pandas", "jsonl"): _pandas_json,
}

_COMPRESSIONS: Mapping[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": zstandard.ZstdCompressor(write_checksum=True).compress,
    ".zstd": zstandard.ZstdCompressor(write_checksum=False).compress,
}


def text_files() -> Iterator[ForeignFile]:
    for (writer, format_), write in _WRITERS.items():
        for suffix, compress in _COMPRESSIONS.items():
            yield _text_file(f"{writer} {format_}{suffix}", f".{format_}{suffix}", write, compress)


def _text_file(
    name: str, suffix: str, write: Callable[[Path], object], compress: Callable[[bytes], bytes]
) -> ForeignFile:
    def write_compressed(path: Path) -> None:
        plain = path.with_name("plain")
        write(plain)
        path.write_bytes(compress(plain.read_bytes()))

    return ForeignFile(name, suffix, write_compressed, _read, _ROWS, schema=DDL)


def _read(path: Path) -> Rows:
    """Rows by Python's own parsers, which stop at a damaged byte."""
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    elif path.suffix.startswith(".zst"):
        content = zstandard.ZstdDecompressor().decompressobj().decompress(content)
    text = content.decode()
    if ".csv" in path.suffixes:
        return [_row_of_csv(row) for row in csv.DictReader(io.StringIO(text, newline=""))]
    return [_row_of_json(json.loads(line)) for line in text.splitlines() if line.strip()]


def _row_of_csv(row: Mapping[str, str]) -> dict[str, Any]:
    return {
        "id": int(row["id"]) if row.get("id") else None,
        "name": row.get("name") or None,
        "f": float(row["f"]) if row.get("f") else None,
    }


def _row_of_json(row: Mapping[str, Any]) -> dict[str, Any]:
    number = row.get("f")
    return {"id": row.get("id"), "name": row.get("name"), "f": None if number is None else float(number)}
