"""Successive snapshots of real tables: the changes between them are found, and the changes alone give them back."""

from __future__ import annotations

import json
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import nova_assets as nova
from nova_assets.engine.rows.spark_versions import collect_to_arrow
from nova_assets_tests.effort import EXHAUSTIVE, by_hand

pytestmark = pytest.mark.spark

Table = list[tuple[Any, ...]]

AT_ONCE = 12
FEW = 12


def as_rows(table: pa.Table, columns: list[str]) -> Table:
    return sorted(zip(*(table[c].to_pylist() for c in columns), strict=True), key=repr)


def deltas(changes: pa.Table, seq: int, columns: list[str]) -> pa.Table:
    """What the file says changed at ``seq``, as a delta: deletions marked."""
    part = changes.filter(pc.equal(changes["seq"], seq))
    return part.select(columns).append_column("_deleted", pc.equal(part["op"], "D"))


@pytest.mark.parametrize(
    ("name", "count"),
    [
        pytest.param("cdc_covid19_countries", FEW, id="covid19-few", marks=EXHAUSTIVE),
        pytest.param("cdc_covid19_countries", None, id="covid19-all", marks=EXHAUSTIVE),
        pytest.param("cdc_sp500_constituents", FEW, id="sp500-few", marks=EXHAUSTIVE),
        pytest.param("cdc_sp500_constituents", None, id="sp500-all", marks=[pytest.mark.long, by_hand]),
    ],
)
def test_snapshots_in_changes_out_and_back(
    name: str, count: int | None, shared_data: Path, tmp_path: Path, spark: Any
) -> None:
    folder = shared_data / name
    manifest = json.loads((folder / "manifest.json").read_text())
    key, columns = manifest["key"], manifest["columns"]
    snapshots = [folder / "snapshots" / s["file"] for s in manifest["snapshots"][:count]]
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
        found = read_all(store, "by_base", [(n - 1, n) for n in range(2, len(snapshots) + 1)])
        for n, table in found.items():
            expected = deltas(changes, n - 1, columns)
            assert as_rows(table, [*columns, "_deleted"]) == as_rows(expected, [*columns, "_deleted"]), (
                f"{n - 1} to {n}"
            )
        for channel in ("by_base", "by_delta"):
            for n, table in read_all(store, channel, [(None, n) for n in range(1, len(snapshots) + 1)]).items():
                assert as_rows(table, columns) == as_rows(pq.read_table(snapshots[n - 1]), columns), (channel, n)


def read_all(store: nova.Store, channel: str, versions: list[tuple[int | None, int]]) -> dict[int, pa.Table]:
    """Version -> what ``store.read`` gives of it; several at a time in one Spark job, since each is small."""
    found: dict[int, pa.Table] = {}
    for start in range(0, len(versions), AT_ONCE):
        some = versions[start : start + AT_ONCE]
        frames = [store.read(channel, at, since=since).to_spark().withColumn("__at", F.lit(at)) for since, at in some]
        table = collect_to_arrow(reduce(lambda a, b: a.unionByName(b), frames))
        found |= {at: table.filter(pc.equal(table["__at"], at)) for _, at in some}
    return found
