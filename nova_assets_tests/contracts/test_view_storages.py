"""What every storage of views does, whichever the setting ``views`` names."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nova_assets.errors import StorageFailed
from nova_assets.file_views.sqlite_storage import open_storage
from nova_assets.file_views.storage import KEYSPACE_BYTES, MemoryStorage, Storage
from nova_assets.settings import VIEW_STORAGES
from nova_assets_tests.effort import examples

A, B, C = (name * KEYSPACE_BYTES for name in (b"a", b"b", b"c"))

SMALL = 64 * 2**10
"""Bytes of memory. Less than the tests write, so that a storage with a limit uses its file."""


@pytest.fixture(params=VIEW_STORAGES)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def storage(kind: str, tmp_path: Path) -> Iterator[Storage]:
    opened = open_storage(kind, tmp_path / "views", SMALL, "me")
    yield opened
    opened.close()


def content(storage: Storage) -> dict[bytes, dict[bytes, bytes]]:
    with storage.open_snapshot() as snapshot:
        return {name: dict(snapshot.scan(name)) for name in snapshot.keyspaces()}


def test_a_snapshot_shows_one_state_whatever_is_written_meanwhile(storage: Storage) -> None:
    storage.write({A: {b"1": b"x", b"2": b"y"}, B: {b"1": b"z"}})
    with storage.open_snapshot() as snapshot:
        scan = snapshot.scan(A)
        assert next(scan) == (b"1", b"x")
        storage.write({A: None, B: {b"1": b"other", b"2": b"new"}, C: {b"1": os.urandom(2 * SMALL)}})
        assert snapshot.get(B, b"1") == b"z" and snapshot.get(B, b"2") is None
        assert list(scan) == [(b"2", b"y")] == list(snapshot.scan(A, b"2"))
        assert set(snapshot.keyspaces()) == {A, B}
    with storage.open_snapshot() as snapshot:
        assert list(snapshot.scan(A)) == [] and snapshot.get(B, b"1") == b"other"


def test_a_write_whose_precondition_fails_changes_nothing(storage: Storage) -> None:
    assert storage.write({A: {b"1": b"x"}}, (A, b"1", None))
    assert not storage.write({A: {b"1": b"y"}, B: {b"1": b"y"}}, (A, b"1", None))
    assert storage.write({A: {b"1": b"z"}}, (A, b"1", b"x"))
    assert content(storage) == {A: {b"1": b"z"}}


def test_a_scan_of_a_partition_stays_within_it_in_both_directions(storage: Storage) -> None:
    """More entries than one batch of any storage; the neighbours begin and end right beside them."""
    numbers = [n.to_bytes(8, "big") for n in range(300)]
    storage.write({A: {b"\xff" * 9: b"a"}, B: {n: b"b" + n for n in numbers}, C: {b"": b"c"}})
    with storage.open_snapshot() as snapshot:
        assert [k for k, _ in snapshot.scan(B)] == numbers
        assert [k for k, _ in snapshot.scan(B, numbers[200])] == numbers[200:]
        assert [k for k, _ in snapshot.scan_backwards(B, b"\xff")] == numbers[::-1]
        assert [k for k, _ in snapshot.scan_backwards(B, numbers[130])] == numbers[129::-1]
        assert list(snapshot.scan_backwards(B, b"")) == []
        one, other = snapshot.scan(B), snapshot.scan_backwards(B, b"\xff")
        for up, down in zip(numbers, numbers[::-1], strict=True):  # two scans of one snapshot do not disturb each other
            assert (next(one)[0], next(other)[0]) == (up, down) and snapshot.get(B, up) == b"b" + up


Write = dict[bytes, dict[bytes, bytes | None] | None]
_KEYS = st.sampled_from([b"", b"1", b"2", b"2\x00", b"3", b"\xff\xff"])
_VALUES = st.none() | st.builds(
    lambda size, of: of * size, st.sampled_from([0, 1, 9000, 40_000]), st.binary(max_size=1)
)
_WRITES: st.SearchStrategy[list[Write]] = st.lists(
    st.dictionaries(st.sampled_from([A, B, C]), st.none() | st.dictionaries(_KEYS, _VALUES)), max_size=12
)


@pytest.mark.slow
@settings(max_examples=examples(20, 200), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(writes=_WRITES, data=st.data())
def test_a_storage_is_a_dictionary_of_dictionaries_also_once_reopened(
    kind: str, tmp_path_factory: pytest.TempPathFactory, writes: list[Write], data: st.DataObject
) -> None:
    """Under a limit of 64 KiB, so that entries leave memory, are read again, and changed."""
    folder, expected = tmp_path_factory.mktemp("views"), dict[bytes, dict[bytes, bytes]]()
    storage = open_storage(kind, folder, SMALL, "me")
    for write in writes:
        storage.write(write)
        for name, change in write.items():
            merged = {} if change is None else {**expected.get(name, {}), **change}
            expected[name] = {k: v for k, v in merged.items() if v is not None}
        if data.draw(st.sampled_from([False, False, True])):
            storage.close()
            storage = open_storage(kind, folder, SMALL, "me")
        assert content(storage) == {name: entries for name, entries in expected.items() if entries}
    storage.close()


def test_views_of_another_catalog_are_deleted(kind: str, tmp_path: Path) -> None:
    mine = open_storage(kind, tmp_path, SMALL, "me")
    mine.write({A: {b"1": b"x"}})
    mine.close()
    for owner, expected in (("me", [A]), ("you", []), ("me", [])):
        storage = open_storage(kind, tmp_path, SMALL, owner)
        assert list(content(storage)) == expected
        storage.close()


def test_a_second_service_keeps_its_views_in_memory(kind: str, tmp_path: Path) -> None:
    first = open_storage(kind, tmp_path, SMALL, "me")
    second = open_storage(kind, tmp_path, SMALL, "me")
    first.write({A: {b"1": b"x"}})
    second.write({A: {b"1": b"y"}})
    assert isinstance(second, MemoryStorage) and content(second) == {A: {b"1": b"y"}}
    second.close()
    first.close()
    third = open_storage(kind, tmp_path, SMALL, "me")
    assert content(third) == {A: {b"1": b"x"}}
    third.close()


def test_a_folder_that_cannot_be_used_stops_no_service(kind: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    storage = open_storage(kind, tmp_path / "file", SMALL, "me")
    assert isinstance(storage, MemoryStorage) and storage.write({A: {b"1": b"x"}})


_WRITER = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    from nova_assets.file_views.sqlite_storage import open_storage
    from nova_assets.file_views.storage import KEYSPACE_BYTES
    storage = open_storage(sys.argv[1], Path(sys.argv[2]), 2**16, "me")
    for n in range(1_000_000):
        storage.write({k.to_bytes(KEYSPACE_BYTES, "big"): {b"n": b"%06d" % n + bytes(500)} for k in range(1, 50)})
        if n % 40 == 20:
            storage.save()
            print(n, flush=True)
    """
)


def test_a_killed_writer_leaves_one_saved_state(kind: str, tmp_path: Path) -> None:
    """Each write is there as a whole or not at all, and nothing that was saved is lost."""
    with subprocess.Popen(
        [sys.executable, "-c", _WRITER, kind, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        for _ in range(3):
            assert writer.stdout.readline()
        writer.send_signal(signal.SIGKILL)
        saved = max((int(line) for line in writer.stdout.read().split()), default=100)
    storage = open_storage(kind, tmp_path, SMALL, "me")
    [value] = {entries[b"n"] for entries in content(storage).values()}
    assert len(content(storage)) == 49 and int(value[:6]) >= saved
    storage.close()


_ON_A_FULL_DISK = textwrap.dedent(
    """
    import os, resource, sys
    from pathlib import Path
    from nova_assets.errors import StorageFailed
    from nova_assets.file_views.sqlite_storage import open_storage
    from nova_assets.file_views.storage import KEYSPACE_BYTES
    storage = open_storage(sys.argv[1], Path(sys.argv[2]), 2**16, "me")
    A, B = b"a" * KEYSPACE_BYTES, b"b" * KEYSPACE_BYTES
    storage.write({A: {b"1": b"x"}})
    storage.save()
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, resource.RLIM_INFINITY))  # no file can grow further
    failed = 0
    for n in range(8):
        try:
            storage.write({B: {b"%d" % n: os.urandom(100_000)}})
            storage.save()
        except StorageFailed:
            failed += 1
    with storage.open_snapshot() as snapshot:
        assert snapshot.get(A, b"1") in (b"x", None)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert storage.write({A: {b"2": b"y" * 100_000}})
    storage.close()
    storage = open_storage(sys.argv[1], Path(sys.argv[2]), 2**16, "me")
    with storage.open_snapshot() as snapshot:
        assert snapshot.get(A, b"2") == b"y" * 100_000
    print(failed)
    """
)


def test_a_full_disk_is_an_error_and_writes_succeed_once_there_is_space(kind: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", _ON_A_FULL_DISK, kind, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == 8


@pytest.mark.parametrize("damage", ["garbage", "cut", "empty", "flipped"])
def test_damaged_files_never_give_wrong_answers(kind: str, tmp_path: Path, damage: str) -> None:
    """An answer is what was written, or nothing is there, or an error; and the next write succeeds, and is saved."""
    rows = {n.to_bytes(KEYSPACE_BYTES, "big"): {b"1": os.urandom(2000)} for n in range(1, 100)}
    storage = open_storage(kind, tmp_path, SMALL, "me")
    storage.write(rows)
    storage.close()
    largest = max((f for f in tmp_path.rglob("*") if f.is_file()), key=lambda f: f.stat().st_size)
    original = largest.read_bytes()
    half = len(original) // 2
    largest.write_bytes(
        {
            "garbage": os.urandom(len(original)),
            "cut": original[:half],
            "empty": b"",
            "flipped": original[:half] + bytes(b ^ 255 for b in original[half : half + 8]) + original[half + 8 :],
        }[damage]
    )
    storage = open_storage(kind, tmp_path, SMALL, "me")
    try:
        assert all(rows[name] == entries for name, entries in content(storage).items())
    except StorageFailed:
        assert content(storage) == {}
    assert storage.write({A: {b"1": b"x"}}) and content(storage)[A] == {b"1": b"x"}
    storage.close()
    reopened = open_storage(kind, tmp_path, SMALL, "me")
    assert content(reopened)[A] == {b"1": b"x"}, "what is written after the damage is saved again"
    reopened.close()


def test_threads_share_a_storage(storage: Storage) -> None:
    """Readers see each write in all keyspaces or in none."""
    names = [n.to_bytes(KEYSPACE_BYTES, "big") for n in range(1, 30)]
    storage.write({name: {b"n": bytes(3000)} for name in names})
    ended, states = threading.Event(), list[set[bytes | None]]()

    def read() -> None:
        while not ended.is_set():
            with storage.open_snapshot() as snapshot:
                states.append({snapshot.get(name, b"n") for name in names})

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for n in range(60):
        storage.write({name: {b"n": bytes([n]) * 3000} for name in names})
    ended.set()
    for reader in readers:
        reader.join()
    assert states and all(len(state) == 1 and None not in state for state in states)
