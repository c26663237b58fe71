"""Successive snapshots of real tables: the changes between them are found, and the changes alone give them back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import nova_assets as nova

pytestmark = pytest.mark.spark

Table = list[tuple[Any, ...]]


def as_rows(table: pa.Table, columns: list[str]) -> Table:
    return sorted(zip(*(table[c].to_pylist() for c in columns), strict=True), key=repr)


def deltas(changes: pa.Table, seq: int, columns: list[str]) -> pa.Table:
    """What the file says changed at ``seq``, as a delta: deletions marked."""
    part = changes.filter(pc.equal(changes["seq"], seq))
    return part.select(columns).append_column("_deleted", pc.equal(part["op"], "D"))


@pytest.mark.parametrize("name", ["cdc_sp500_constituents", "cdc_covid19_countries"])
def test_snapshots_in_changes_out_and_back(name: str, shared_data: Path, tmp_path: Path, spark: Any) -> None:
    folder = shared_data / name
    manifest = json.loads((folder / "manifest.json").read_text())
    key, columns = manifest["key"], manifest["columns"]
    snapshots = [folder / "snapshots" / s["file"] for s in manifest["snapshots"]]
    if name == "cdc_covid19_countries":
        snapshots = snapshots[:12]  # 55,000 rows each; the rest adds time and no new kind of change
    changes = pq.read_table(folder / "changes.parquet")

    by_base = nova.Channel("by_base", merge=nova.Upsert(key=key))
    by_delta = nova.Channel("by_delta", merge=nova.Upsert(key=key))

    def opened() -> nova.Store:
        return nova.open(catalog=f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "wh"), spark=spark)

    with opened() as store:
        store.register([by_base, by_delta])
        for n, path in enumerate(snapshots, start=1):
            assert store.insert("by_base", path, kind="base").seq == n
            first = pq.read_table(path).select(columns)
            given = first if n == 1 else deltas(changes, n - 1, columns)
            assert store.insert("by_delta", given).seq == n

    with opened() as store:  # as another process would find it
        checked = range(2, len(snapshots) + 1)
        for n in _sample(checked):
            found = store.read("by_base", since=n - 1, at=n).to_arrow()
            expected = deltas(changes, n - 1, columns)
            assert as_rows(found, [*columns, "_deleted"]) == as_rows(expected, [*columns, "_deleted"]), (
                f"changes {n - 1} to {n}"
            )
        for n in _sample(range(1, len(snapshots) + 1)):
            expected = as_rows(pq.read_table(snapshots[n - 1]), columns)
            for channel in ("by_base", "by_delta"):
                assert as_rows(store.read(channel, at=n).to_arrow(), columns) == expected, (channel, n)


_sample: Callable[[range], range] = lambda versions: versions  # noqa: E731  every version
