"""What the machine may do to whoever receives: no permission, no room, no file handles, a clock that goes back."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

import nova_assets as nova
from nova_assets_tests import mounts
from nova_assets_tests.sources.landing import Landing, row

NOBODY = 65534


@pytest.fixture
def everybodys() -> Iterator[Path]:
    """A folder that every user may reach and fill."""
    made = Path(tempfile.mkdtemp(prefix="nova-"))
    made.chmod(0o777)
    yield made
    shutil.rmtree(made)


@contextmanager
def another_user(home: Path) -> Iterator[None]:
    """A block in which a user works who may do what its folder lets it, and no more."""
    if os.geteuid() != 0:
        yield  # who is not root is held to permissions as it is
        return
    for path in (home, *home.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_file_that_may_not_be_read_is_set_aside_and_received_when_it_may(everybodys: Path) -> None:
    landing = begun(everybodys)
    secret = landing.put("a.json", row(1))
    landing.put("b.json", row(2))
    secret.chmod(0)
    with another_user(everybodys):
        landing.store.receive("actions")
        assert landing.ids() == [0, 2], "it keeps no other waiting"
        assert landing.states() == {"0.json": "taken", "a.json": "refused", "b.json": "taken"}
        [(file, _, reason)] = landing.quarantined()
        assert file == "a.json" and "this user may not read the file" in reason
        secret.chmod(0o644)
        landing.store.replay("actions")
        landing.store.receive("actions")
        assert landing.ids() == [0, 1, 2] and landing.quarantined() == []


def begun(home: Path) -> Landing:
    """With everything imported: another user may not be allowed to read where Python is."""
    landing = Landing(home)
    landing.put("0.json", row(0), b"{oops\n")
    landing.store.receive("actions")
    landing.store.replay("actions", lambda bad: None)
    landing.store.insert("actions_quarantine", landing.store.read("actions_quarantine").to_arrow().slice(0, 0), "base")
    assert landing.ids() == [0] and landing.quarantined() == []
    return landing


def test_a_folder_that_may_not_be_read_is_told_and_nothing_is_lost(everybodys: Path) -> None:
    landing = begun(everybodys)
    landing.put("a.json", row(1))
    hidden = landing.put("deep/b.json", row(2)).parent
    hidden.chmod(0)
    with another_user(everybodys):
        with pytest.raises(nova.SourceUnavailable, match="cannot be read"):
            landing.store.receive("actions")
        hidden.chmod(0o755)
        landing.store.receive("actions")
        assert landing.ids() == [0, 1, 2]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of two megabytes."""
    if not mounts.can_mount():
        pytest.skip("only root may mount, with the commands unshare and mount")
    with mounts.small_disk(tmp_path / "disk", "2m"):
        yield tmp_path / "disk"


def fill(disk: Path) -> Path:
    """Write until there is no room."""
    rest = disk / "rest"
    with rest.open("wb", buffering=0) as f:
        try:
            while True:
                f.write(b"x" * 4096)
        except OSError:
            return rest


def test_a_full_disk_below_the_warehouse(small_disk: Path, tmp_path: Path) -> None:
    landing = Landing(tmp_path)
    (tmp_path / "wh").symlink_to(small_disk)
    landing.put("a.json", row(1))
    landing.store.receive("actions")
    rest = fill(small_disk)
    landing.put("b.json", row(2), b"{oops\n")
    with pytest.raises(nova.WarehouseUnavailable) as caught:
        landing.store.receive("actions")
    assert "No space left" in str(caught.value) and "free disk space" in str(caught.value)
    assert landing.ids() == [1] and landing.states()["b.json"] == "waiting"
    rest.unlink()
    landing.store.receive("actions")
    assert landing.ids() == [1, 2] and len(landing.quarantined()) == 1
    landing.store.runtime.delete_dead_staging()
    listed = {f.path for n in ("actions", "actions_quarantine") for b in landing.store.catalog.histories.of(n).blocks
              for f in b.manifest.files}  # fmt: skip
    assert {p.relative_to(small_disk).as_posix() for p in small_disk.rglob("*.parquet")} == listed


def test_a_full_disk_below_the_catalog(small_disk: Path, tmp_path: Path) -> None:
    landing = Landing(tmp_path)
    landing.store.close()
    (tmp_path / "c.db").unlink()
    (tmp_path / "c.db").symlink_to(small_disk / "c.db")
    landing.store = landing.open()
    landing.put("a.json", row(1))
    landing.store.receive("actions")
    rest = fill(small_disk)
    landing.put("b.json", row(2))
    with pytest.raises(nova.CatalogUnavailable) as caught:
        landing.store.receive("actions")
    assert "full" in str(caught.value) and "free disk space" in str(caught.value)
    rest.unlink()
    landing.store.receive("actions")
    assert landing.ids() == [1, 2] and set(landing.states().values()) == {"taken"}


def test_a_clock_that_goes_back_loses_nothing_and_takes_nothing_twice(tmp_path: Path) -> None:
    landing = Landing(tmp_path)
    database = landing.store.catalog.database  # type: ignore[attr-defined]
    now = database.clock
    landing.put("a.json", row(1))
    landing.store.receive("actions")
    database.clock = lambda: now() - timedelta(days=3)
    landing.put("b.json", row(2))
    landing.store.receive("actions")
    landing.store.receive("actions")
    database.clock = now
    landing.store.receive("actions")
    assert landing.ids() == [1, 2] and set(landing.states().values()) == {"taken"}
