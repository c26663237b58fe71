"""Files are read in worker processes: one that ends its reader ends nothing else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import nova_assets as nova
from nova_assets.formats import isolated_reader
from nova_assets.formats.input_file import InputFile
from nova_assets.formats.worker_pool import WorkerPool
from nova_assets.model.schema import parse_ddl

pytestmark = pytest.mark.slow

KILLER = Path(__file__).parent / "corpus" / "ends_its_reader.orc"
ON_LINUX = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="/proc tells of other processes")


def killer(path: Path) -> Path:
    """A file that ends whatever reads it."""
    path.write_bytes(KILLER.read_bytes())
    command = [sys.executable, "-c", f"from pyarrow import orc; orc.read_table({str(path)!r})"]
    if subprocess.run(command, capture_output=True).returncode >= 0:
        pytest.skip("this pyarrow survives the file")
    return path


def workers() -> list[int]:
    """The worker processes of this one."""
    children = [c for t in Path("/proc/self/task").iterdir() for c in (t / "children").read_text().split()]
    return [int(c) for c in children if b"parse_worker" in Path(f"/proc/{c}/cmdline").read_bytes()]


def test_a_file_that_ends_its_reader_is_told_by_name(tmp_path: Path) -> None:
    with pytest.raises(
        nova.BadRecord, match=r"(?s)bad\.orc: the file crashes the process that reads it.*SIG\w+, 2 times"
    ):
        isolated_reader.read_table(InputFile(killer(tmp_path / "bad.orc")), "orc", None)
    good = tmp_path / "good.parquet"
    pq.write_table(pa.table({"id": [1, 2]}), good)
    assert isolated_reader.read_table(InputFile(good), "parquet", None).num_rows == 2


@pytest.mark.core
@ON_LINUX
def test_one_worker_reads_many_files(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id\n1\n")
    isolated_reader.read_table(InputFile(path), "csv", None)
    before = workers()
    for _ in range(5):
        assert isolated_reader.read_table(InputFile(path), "csv", parse_ddl("id bigint")).to_pylist() == [{"id": 1}]
    assert workers() == before


@ON_LINUX
def test_a_file_whose_reader_was_ended_once_from_outside_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(json.dumps({"id": n, "x": [1.5] * 20}) for n in range(60_000)))
    small = tmp_path / "b.jsonl"
    small.write_text('{"id": 1}')
    isolated_reader.read_table(InputFile(small), "json", None)
    before = workers()

    def end() -> None:
        time.sleep(0.2)
        for pid in before:
            os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=end)
    thread.start()
    assert isolated_reader.read_table(InputFile(path), "json", None).num_rows == 60_000
    thread.join()
    assert before and not set(before) & set(workers())


@ON_LINUX
def test_a_worker_knows_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOVA_CATALOG", "postgresql://user:secret@host/db")
    pool = WorkerPool("nova_assets.formats.parse_worker", 1)
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": [1]}), path)
    others = set(workers())
    job = {"verb": "footer", "path": str(path), "name": "a", "largest": None, "format": "parquet", "schema": None}
    assert pool.run_job({**job, "drop": False}, memory_bytes=None).fields == {}
    [pid] = set(workers()) - others
    assert b"secret" not in Path(f"/proc/{pid}/environ").read_bytes()
    pool.end_idle_workers()
    assert pid not in workers()


@pytest.mark.core
def test_where_no_worker_starts_that_is_not_the_files_fault() -> None:
    pool = WorkerPool("nova_assets.formats.no_such_module", 1)
    with pytest.raises(nova.NovaError, match=r"(?s)ENGINE-UNAVAILABLE.*no worker process can be started"):
        pool.run_job({}, memory_bytes=None)


@pytest.mark.core
def test_what_was_set_aside_of_a_file_comes_back_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"id":1}\n\nnull\n{"id":"\xff"}\n{"id":2}\n')
    parsed = isolated_reader.read_valid_records(InputFile(path), "json", parse_ddl("id bigint"))
    assert parsed.table.to_pylist() == [{"id": 1}, {"id": 2}] and list(parsed.line_numbers) == [1, 5]
    assert [(r.line, r.raw, r.whole) for r in parsed.refused] == [(3, "null", True), (4, '{"id":"\\xff"}', False)]
