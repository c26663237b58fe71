"""The systems by name; each is imported when it is used."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from benchmarks.peers.system import System

_WHERE = {
    "nova": "nova:Nova",
    "delta": "delta:Delta",
    "hudi-cow": "hudi:CopyOnWrite",
    "hudi-mor": "hudi:MergeOnRead",
    "iceberg-cow": "iceberg:CopyOnWrite",
    "iceberg-mor": "iceberg:MergeOnRead",
    "delta-rs": "deltars:DeltaRs",
    "polars": "polars:Polars",
    "duckdb": "duckdb:DuckDB",
}

NAMES = tuple(_WHERE)


def system(name: str) -> type[System]:
    module, _, attribute = _WHERE[name].partition(":")
    found: type[System] = getattr(import_module(f"benchmarks.peers.systems.{module}"), attribute)
    return found


def named(names: Sequence[str]) -> list[str]:
    unknown = [n for n in names if n not in _WHERE]
    if unknown:
        raise SystemExit(f"no system {', '.join(unknown)}; there are {', '.join(NAMES)}")
    return [n for n in NAMES if n in names] if names else list(NAMES)
