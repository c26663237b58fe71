"""Killed at every point on the way to an edition: readers see the one before or that one, and the next is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from nova_assets_tests.effort import long_except
from nova_assets_tests.forked import run_python
from nova_assets_tests.publish.shop import Shop

POINTS = [
    *("begin.before", "begin.after", "edition.opened", "edition.made", "edition.made:2", "edition.shown"),
    *("edition.shown:2", "commit.before", "commit.inside", "commit.after", "commit.after:2", "edition.known"),
]

WORKER = """
import sys
from pathlib import Path
from nova_assets_tests.publish.shop import Shop
Shop(Path(sys.argv[1])).publish()
"""

FIRST = [("2024-01-01", "login", 1, 10)]
THEN = [("2024-01-01", "login", 2, 20), ("2024-01-02", "view", 3, 30)]


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.parametrize("point", long_except(POINTS, "edition.made", "edition.shown"))
def test_killed_and_published_again(point: str, tmp_path: Path) -> None:
    shop = Shop(tmp_path, grace=0.001)
    shop.insert(*FIRST)
    shop.publish()
    shop.insert(*THEN)

    dead = run_python(["-c", WORKER, str(tmp_path)], {"NOVA_CRASH_AT": point})
    assert dead.returncode == -9, "it was killed there"
    for seen in (shop.in_folder(), shop.in_iceberg()):
        assert seen in (FIRST, sorted(FIRST + THEN)), "whole editions, one or the other"
    listed = [*shop.resolved.rglob("*.parquet"), *map(_path, shop.iceberg().inspect.files().to_pylist())]
    shop.store.compact("actions")
    shop.store.collect_garbage("actions")
    shop.store.delete_collected()
    assert all(p.exists() for p in listed), "nothing that is listed is deleted"
    shop.publish()
    assert shop.publish() == []
    assert shop.in_folder() == shop.in_iceberg() == shop.in_channel() == sorted(FIRST + THEN)
    assert {e.state for e in shop.store.published("actions") if e.superseded_at is None} == {"shown"}
    assert len(list(shop.folder.with_name(".actions.editions").glob("0*"))) == len(shop.iceberg().snapshots()) == 1


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.parametrize("point", ["edition.made", "edition.exchanging", "edition.shown"])
def test_killed_while_a_folder_is_taken_over(point: str, tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.insert(*FIRST)
    shop.folder.mkdir(parents=True)
    (shop.folder / "theirs").write_text("precious")
    worker = WORKER.replace(".publish()", ".publish(take_over=True)")
    dead = run_python(["-c", worker, str(tmp_path)], {"NOVA_CRASH_AT": point})
    assert dead.returncode == -9, "it was killed there"
    shop.publish(take_over=True)
    assert shop.in_folder() == FIRST
    [before] = [p for p in shop.folder.parent.glob("actions.before-*") if not p.is_symlink()]
    assert (before / "theirs").read_text() == "precious"
    shop.store.unpublish("actions")
    assert (before / "theirs").read_text() == "precious"


def _path(file: dict[str, str]) -> Path:
    return Path(file["file_path"].removeprefix("file://"))
