"""The queries of TPC-H and TPC-DS as DuckDB 0.9.2 ships them, and their tables. (No results of TPC are claimed.)

That version is installed beside, and not into, the environment of the tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from nova_assets_tests.conftest import missing

_TYPES = {
    "INTEGER": "int",
    "BIGINT": "bigint",
    "VARCHAR": "string",
    "DATE": "date",
    "DOUBLE": "double",
    "TIME": "string",
}

_ASK = """
import duckdb, json
found = {}
for name, generate in (("tpch", "dbgen"), ("tpcds", "dsdgen")):
    con = duckdb.connect()
    con.execute(f"CALL {generate}(sf=0)")
    ask = "SELECT table_name, column_name, data_type FROM information_schema.columns ORDER BY 1, ordinal_position"
    columns = con.execute(ask).fetchall()
    queries = con.execute(f"SELECT query FROM {name}_queries() ORDER BY query_nr").fetchall()
    found[name] = {"columns": columns, "queries": [q for (q,) in queries]}
print(json.dumps(found))
"""


_GENERATE = """
import duckdb, sys
con = duckdb.connect()
con.execute(f"CALL {sys.argv[1]}(sf={sys.argv[2]})")
for (table,) in con.execute("SELECT table_name FROM information_schema.tables").fetchall():
    con.execute(f"COPY {table} TO '{sys.argv[3]}/{table}.parquet' (FORMAT PARQUET)")
"""


@dataclass(frozen=True)
class Benchmark:
    """The queries of one benchmark.

    Args:
        queries: in the order of their numbers, each without a semicolon, and with Spark's quotes around names.
        tables: name -> columns, as in ``CREATE TABLE``.
    """

    queries: Sequence[str]
    tables: Mapping[str, str]


def benchmarks(folder: Path) -> Mapping[str, Benchmark]:
    """``tpch`` and ``tpcds``. Skips where DuckDB 0.9.2 cannot be installed.

    Args:
        folder: to install it into.
    """
    _install_duckdb(folder)
    found = json.loads(_run_with_duckdb(folder, _ASK))
    return {name: Benchmark([*map(_sparks, one["queries"])], _tables(one["columns"])) for name, one in found.items()}


def generate_tpch(folder: Path, target: Path, scale: float) -> None:
    """Write the tables of TPC-H, as ``generate_tables`` does. Scale factor 1 has 1.5 million orders."""
    generate_tables("dbgen", folder, target, scale)


def generate_tables(generator: Literal["dbgen", "dsdgen"], folder: Path, target: Path, scale: float) -> None:
    """Write each table of a benchmark as one Parquet file. Skips where DuckDB 0.9.2 cannot be installed.

    Args:
        generator: DuckDB's function that makes the tables of TPC-H or TPC-DS.
        folder: to install DuckDB 0.9.2 into, unless ``benchmarks`` has installed it there.
        target: existing folder of the files ``TABLE.parquet``.
        scale: scale factor.
    """
    _install_duckdb(folder)
    _run_with_duckdb(folder, _GENERATE, generator, str(scale), str(target))


def _install_duckdb(folder: Path) -> None:
    if (folder / "duckdb").is_dir():
        return
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder), "duckdb==0.9.2"]
    made = subprocess.run(install, capture_output=True, text=True, check=False)
    if made.returncode:
        missing(f"duckdb 0.9.2 cannot be installed: {made.stderr[-300:]}", "let pip reach a package index")


def _run_with_duckdb(folder: Path, code: str, *arguments: str) -> str:
    """Output of Python code that imports DuckDB 0.9.2. The exit code is ignored: this version may abort as it ends."""
    command = [sys.executable, "-c", code, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment).stdout


def _sparks(query: str) -> str:
    return query.strip().rstrip(";").strip().replace('"', "`")


def _tables(columns: Sequence[tuple[str, str, str]]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    for table, column, type_ in columns:
        found.setdefault(table, []).append(f"{column} {_TYPES.get(type_, type_.lower())}")
    return {table: ", ".join(described) for table, described in found.items()}
