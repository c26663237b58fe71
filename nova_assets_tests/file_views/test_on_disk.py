"""Views in a file: as large as the disk, in little memory; whole after a kill; thrown away where they are not ours."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from nova_assets.errors import StorageFailed
from nova_assets.file_views.sqlite_storage import SqliteStorage, open_storage
from nova_assets.file_views.storage import KEYSPACE_BYTES, MemoryStorage
from nova_assets.settings import VIEW_STORAGES
from nova_assets_tests.effort import long_except

A, B = b"a" * KEYSPACE_BYTES, b"b" * KEYSPACE_BYTES

_UNDER_A_CAP = textwrap.dedent(
    """
    import os, resource, sys
    from pathlib import Path
    from nova_assets.file_views.sqlite_storage import open_storage
    from nova_assets.file_views.storage import KEYSPACE_BYTES
    kind, folder, most = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    storage = open_storage(kind, folder, 64 * 2**20, "me")
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
@pytest.mark.parametrize("kind", long_except(VIEW_STORAGES, "disk"))
def test_a_view_of_a_gigabyte_under_a_cap_of_a_quarter_of_that(tmp_path: Path, kind: str) -> None:
    """In memory it does not fit; with a limit of 64 MiB it does."""
    command = [sys.executable, "-c", _UNDER_A_CAP, kind, str(tmp_path), str(256 * 2**20)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=200)
    if kind == "memory":
        assert run.returncode != 0 and "MemoryError" in run.stderr
    else:
        assert run.returncode == 0, run.stderr
        assert int(run.stdout) > 1_000_000_000


def test_the_file_does_not_grow_by_outdated_views(tmp_path: Path) -> None:
    """A reader of an older state goes on reading it meanwhile; the space of what is outdated is used again."""
    storage = open_storage("disk", tmp_path, 2**18, "me")
    storage.write({B: {b"1": b"unchanged" * 20_000}})
    with storage.open_snapshot() as snapshot:
        for n in range(5):
            storage.write({A: {b"1": bytes([n]) * 200_000}})
        assert snapshot.get(B, b"1") == b"unchanged" * 20_000 and snapshot.get(A, b"1") is None
    for n in range(200):
        storage.write({A: {b"1": bytes([n]) * 200_000}})
    assert storage.size() < 20 * 2**20, "with its log, of 40 MB that were written"
    storage.close()
    assert (tmp_path / "views.db").stat().st_size < 2**20
    again = open_storage("disk", tmp_path, 2**18, "me")
    with again.open_snapshot() as snapshot:
        assert snapshot.get(B, b"1") == b"unchanged" * 20_000 and snapshot.get(A, b"1") == bytes([199]) * 200_000
    again.close()


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


def test_a_folder_that_cannot_be_used_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(StorageFailed, match="could not be opened"):
        SqliteStorage(tmp_path / "file", "me")
    assert isinstance(open_storage("disk", tmp_path / "file", 2**26, "me"), MemoryStorage), (
        "a service starts all the same"
    )
