"""A warehouse in HDFS by Arrow and WebHDFS alone, on a server that stands for Hadoop's. ``test_hdfs.py`` has Hadoop's
own, and Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import nova_assets as nova
from nova_assets.engine.storage import file_io
from nova_assets_tests.cloud.webhdfs_server import run_webhdfs_server

pytestmark = pytest.mark.slow

LOGS = nova.Channel("logs", schema="id bigint, n bigint")
PEOPLE = nova.Channel("people", nova.Upsert(key="id"), "id bigint, n bigint")


@pytest.fixture
def hdfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a cluster whose files lie in ``hdfs`` in the folder of the test."""
    (tmp_path / "hdfs").mkdir()
    file_io._hdfs_filesystem.cache_clear()
    with run_webhdfs_server(tmp_path / "hdfs") as address:
        monkeypatch.setenv("WEBHDFS_URL", f"http://{address}")
        monkeypatch.setenv("no_proxy", "*")
        yield f"hdfs://{address}"
    file_io._hdfs_filesystem.cache_clear()


def test_blocks_are_written_read_compacted_and_deleted_in_hdfs(
    hdfs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    project = nova.Project(channels=[LOGS, PEOPLE])
    with nova.open(project, catalog=f"sqlite:///{tmp_path}/c.db", warehouse=f"{hdfs}/lake/wh") as store:

        def rows(channel: str) -> list[tuple[int, int]]:
            return sorted((r["id"], r["n"]) for r in store.read(channel).to_arrow().to_pylist())

        def block_files() -> list[str]:
            folder = tmp_path / "hdfs" / "lake" / "wh"
            return sorted(str(p.relative_to(folder)) for p in folder.rglob("*.parquet"))

        def listed_files() -> list[str]:
            blocks = [b for c in ("logs", "people") for b in store.catalog.histories.of(c).blocks]
            return sorted(f.path for b in blocks for f in b.manifest.files)

        for n in range(3):
            store.insert("logs", [{"id": n, "n": n}])
            store.insert("people", [{"id": 0, "n": n}, {"id": n + 1, "n": n}])
        store.insert("people", [{"id": 1, "n": 0, "_deleted": True}])
        expected = [(0, 0), (1, 1), (2, 2)], [(0, 2), (2, 1), (3, 2)]
        assert (rows("logs"), rows("people")) == expected
        assert block_files() == listed_files() and len(block_files()) == 7
        assert [p.name for p in (tmp_path / "here").rglob("*.parquet")] == []

        for channel in ("logs", "people"):
            assert store.compact(channel) is not None
            assert store.collect_garbage(channel).blocks
        store._retention.deletion_delay = 0.0
        assert store.delete_collected() > 0
        assert (rows("logs"), rows("people")) == expected
        assert block_files() == listed_files() and len(block_files()) < 7


def test_a_folder_in_hdfs_is_taken_over(hdfs: str, tmp_path: Path) -> None:
    old = tmp_path / "hdfs" / "lake" / "logs"
    for day in (1, 2):
        (old / f"day={day}").mkdir(parents=True)
        rows = pa.table({"n": pa.array([day * 10], pa.int32()), "id": pa.array([day], pa.int64())})
        pq.write_table(rows, old / f"day={day}" / "part-0.snappy.parquet")
    before = {str(p): p.read_bytes() for p in old.rglob("*.parquet")}
    table = nova.hive(f"{hdfs}/lake/logs_v2")
    logs = nova.Channel("logs", schema="day int, id bigint, n bigint", partitions=nova.dynamic("day"), publish=table)
    project = nova.Project(channels=[logs])
    with nova.open(project, catalog=f"sqlite:///{tmp_path}/c.db", warehouse=f"{hdfs}/lake/wh") as store:
        assert [v.rows for v in store.publish("logs", take_over_from=f"{hdfs}/lake/logs")] == [2]
    for day in (1, 2):
        [file] = (tmp_path / "hdfs/lake/logs_v2" / f"day={day}" / "manifest").read_text().splitlines()
        local = tmp_path / "hdfs" / file.removeprefix(f"{hdfs}/")
        expected = pq.read_table(old / f"day={day}" / "part-0.snappy.parquet", partitioning=None)
        actual = pq.read_table(local, partitioning=None)
        assert actual.schema.remove_metadata() == expected.schema and actual.to_pylist() == expected.to_pylist()
    assert {str(p): p.read_bytes() for p in old.rglob("*.parquet")} == before
    assert ds.dataset(old, partitioning="hive").count_rows() == 2
