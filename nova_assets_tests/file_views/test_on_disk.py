"""Views in a file: as large as the disk, in little memory; whole after a kill; thrown away where they are not ours."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from nova_assets.errors import StorageFailed
from nova_assets.file_views.open_storage import open_storage
from nova_assets.file_views.sqlite_storage import SqliteStorage
from nova_assets.file_views.storage import KEYSPACE_BYTES, MemoryStorage

A, B = b"a" * KEYSPACE_BYTES, b"b" * KEYSPACE_BYTES

_UNDER_A_CAP = textwrap.dedent(
    """
    import os, resource, sys
    from pathlib import Path
    from nova_assets.file_views.sqlite_storage import SqliteStorage
    from nova_assets.file_views.storage import KEYSPACE_BYTES, MemoryStorage
    kind, folder, most = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    storage = SqliteStorage(folder, "me", 64 * 2**20) if kind == "disk" else MemoryStorage()
    with open("/proc/self/status") as status:
        used = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmData"))
    resource.setrlimit(resource.RLIMIT_DATA, (used + most, used + most))  # of memory that is this process's own
    value = os.urandom(1_000_000)  # which no compression makes smaller
    for n in range(1000):
        storage.write({n.to_bytes(KEYSPACE_BYTES, "big"): {b"k": n.to_bytes(8, "big") + value}})
    with storage.open_snapshot() as looked:
        for n in range(1000):
            assert looked.get(n.to_bytes(KEYSPACE_BYTES, "big"), b"k")[:8] == n.to_bytes(8, "big")
    print(storage.size())
    """
)


@pytest.mark.long
def test_a_view_of_a_gigabyte_under_a_cap_of_a_quarter_of_that(tmp_path: Path) -> None:
    """In memory it does not fit; in a file it does."""
    cap = str(256 * 2**20)

    def run(kind: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", _UNDER_A_CAP, kind, str(tmp_path / kind), cap]
        return subprocess.run(command, capture_output=True, text=True, timeout=200)

    disk = run("disk")
    assert disk.returncode == 0, disk.stderr
    assert int(disk.stdout) > 1_000_000_000
    memory = run("memory")
    assert memory.returncode != 0 and "MemoryError" in memory.stderr


_WRITES = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    from nova_assets.file_views.sqlite_storage import SqliteStorage
    from nova_assets.file_views.storage import KEYSPACE_BYTES
    storage = SqliteStorage(Path(sys.argv[1]), "me")
    for n in range(1_000_000):
        storage.write({k.to_bytes(KEYSPACE_BYTES, "big"): {b"n": str(n).encode()} for k in range(1, 50)})
        print(n, flush=True)
    """
)


def test_killed_while_it_writes_it_is_whole(tmp_path: Path) -> None:
    """Each write is there whole, or not at all; and none that was told of is lost."""
    for _ in range(5):
        writer = subprocess.Popen([sys.executable, "-c", _WRITES, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(0.3)
        writer.send_signal(signal.SIGKILL)
        told = [int(line) for line in writer.stdout.read().split()]
        writer.wait()
        storage = SqliteStorage(tmp_path, "me")
        with storage.open_snapshot() as looked:
            found = {looked.get(k.to_bytes(KEYSPACE_BYTES, "big"), b"n") for k in range(1, 50)}
        storage.close()
        [number] = found
        assert number is not None and int(number) >= max(told, default=0)


def test_a_look_is_a_snapshot(tmp_path: Path) -> None:
    storage = SqliteStorage(tmp_path, "me")
    storage.write({A: {b"1": b"x", b"2": b"y"}, B: {b"1": b"z"}})
    with storage.open_snapshot() as looked:
        storage.write({A: None, B: {b"1": b"other", b"2": b"new"}})
        assert list(looked.scan(A)) == [(b"1", b"x"), (b"2", b"y")]
        assert looked.get(B, b"1") == b"z" and looked.get(B, b"2") is None
    with storage.open_snapshot() as looked:
        assert list(looked.scan(A)) == [] and looked.get(B, b"1") == b"other"
    storage.close()


def test_what_is_not_as_expected_is_not_changed(tmp_path: Path) -> None:
    for storage in (SqliteStorage(tmp_path, "me"), MemoryStorage()):
        assert storage.write({A: {b"1": b"x"}}, (A, b"1", None))
        assert not storage.write({A: {b"1": b"y"}}, (A, b"1", None))
        assert storage.write({A: {b"1": b"y"}}, (A, b"1", b"x"))
        with storage.open_snapshot() as looked:
            assert looked.get(A, b"1") == b"y"
        storage.close()


def test_scans_go_both_ways(tmp_path: Path) -> None:
    for storage in (SqliteStorage(tmp_path, "me"), MemoryStorage()):
        storage.write({A: {b"1": b"x", b"2": b"y", b"3": b"z"}, B: {b"1": b"b"}})
        with storage.open_snapshot() as looked:
            assert [k for k, _ in looked.scan(A, b"2")] == [b"2", b"3"]
            assert [k for k, _ in looked.scan_backwards(A, b"3")] == [b"2", b"1"]
            assert [k for k, _ in looked.scan_backwards(A, b"9")] == [b"3", b"2", b"1"]
            assert [k for k, _ in looked.scan_backwards(B, b"9")] == [b"1"]
            assert sorted(looked.keyspaces()) == [A, B]
        storage.close()


def test_what_is_saved_holds_together_however_many_save(tmp_path: Path) -> None:
    """The one that began first, and is slow, is not overtaken by the one of the end."""
    kept = SqliteStorage(tmp_path, "me")
    real, saving, go_on = kept.write, threading.Event(), threading.Event()

    def slowly(*of: Any) -> bool:
        if not saving.is_set():
            saving.set()
            go_on.wait(5)
        return real(*of)

    kept.write = slowly  # type: ignore[method-assign]
    views = MemoryStorage(kept)
    views.write({A: {b"head": b"1", b"p=1": b""}, B: {b"of p=1": b"blocks"}})
    first = threading.Thread(target=views.save)
    first.start()
    assert saving.wait(5)
    views.write({A: {b"head": b"2"}})
    last = threading.Thread(target=views.close)
    last.start()
    time.sleep(0.1)
    go_on.set()
    first.join()
    last.join()
    storage = SqliteStorage(tmp_path, "me")
    with storage.open_snapshot() as looked:
        assert looked.get(A, b"head") == b"2" and looked.get(B, b"of p=1") == b"blocks"
    storage.close()


def test_what_was_kept_for_another_catalog_is_thrown_away(tmp_path: Path) -> None:
    mine = SqliteStorage(tmp_path, "me")
    mine.write({A: {b"1": b"x"}})
    mine.close()
    for owner, found in (("me", [A]), ("you", []), ("me", [])):
        storage = SqliteStorage(tmp_path, owner)
        with storage.open_snapshot() as looked:
            assert list(looked.keyspaces()) == found
        storage.close()


@pytest.mark.parametrize("kind", ["views.db", "views.db-wal"])
@pytest.mark.parametrize("damage", ["garbage", "cut", "empty", "gone", "flipped"])
def test_files_that_are_damaged_are_never_answered_from(tmp_path: Path, kind: str, damage: str) -> None:
    """What was kept is answered as it was; or it is an error, and then it is all made anew. It ends no process."""
    rows = {n.to_bytes(KEYSPACE_BYTES, "big"): {b"1": os.urandom(2000)} for n in range(1, 300)}
    storage = SqliteStorage(tmp_path / "there", "me")
    storage.write(rows)
    (tmp_path / "views").mkdir()
    for file in (tmp_path / "there").glob("views.db*"):  # as a process leaves them that is killed
        (tmp_path / "views" / file.name).write_bytes(file.read_bytes())
    storage.close()
    if kind == "views.db":
        SqliteStorage(tmp_path / "views", "me").close()  # all of it goes into the file
    for file in (tmp_path / "views").glob(kind):
        content = file.read_bytes()
        half = len(content) // 2
        made = {
            "garbage": os.urandom(len(content)),
            "cut": content[:half],
            "empty": b"",
            "flipped": content[:half] + bytes(b ^ 255 for b in content[half : half + 8]) + content[half + 8 :],
        }
        file.unlink() if damage == "gone" else file.write_bytes(made[damage])
    again = SqliteStorage(tmp_path / "views", "me")
    try:
        with again.open_snapshot() as looked:
            found = {name: looked.get(name, b"1") for name in rows}
        assert all(found[name] in (None, row[b"1"]) for name, row in rows.items())
    except StorageFailed:
        with again.open_snapshot() as looked:
            assert list(looked.keyspaces()) == []
    assert again.write({A: {b"1": b"x"}})
    with again.open_snapshot() as looked:
        assert looked.get(A, b"1") == b"x"
    again.close()


def test_a_checkpoint_has_one_owner_at_a_time_and_nobody_waits_for_it(tmp_path: Path) -> None:
    """The second service keeps its views in memory alone; what the first saves at its end, the third finds."""
    first = open_storage("memory", tmp_path, 2**26, "me")
    second = open_storage("memory", tmp_path, 2**26, "me")
    first.write({A: {b"1": b"x"}})
    second.write({A: {b"1": b"y"}})
    second.close()
    first.close()
    third = open_storage("memory", tmp_path, 2**26, "me")
    with third.open_snapshot() as looked:
        assert looked.get(A, b"1") == b"x"
    third.write({A: None, B: {b"1": b"z"}})
    third.close()
    fourth = open_storage("memory", tmp_path, 2**26, "me")
    with fourth.open_snapshot() as looked:
        assert list(looked.keyspaces()) == [B]
    fourth.close()


def test_a_folder_that_cannot_be_used_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(StorageFailed, match="could not be opened"):
        SqliteStorage(tmp_path / "file", "me")
    assert isinstance(open_storage("disk", tmp_path / "file", 2**26, "me"), MemoryStorage), (
        "a service starts all the same"
    )
