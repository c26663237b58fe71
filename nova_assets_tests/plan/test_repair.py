"""What is damage, what is somebody's work under way, and whose files are whose: decided from facts alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from nova_assets.model.commit import Commit
from nova_assets.model.damage import CatalogPaths, Damage, UnfinishedUpload, WarehouseEntry
from nova_assets.model.execution import Execution, Firing
from nova_assets.plan.repair import (
    dagster_mismatch_damage,
    leftover_damage,
    orphan_damage,
    unfinished_upload_damage,
    unreported_commit_damage,
    waiting_firing_damage,
)

NOW = datetime(2024, 1, 1, 12, tzinfo=UTC)
GRACE = timedelta(seconds=60)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def execution(state: Any, lease_until: datetime, finished_at: datetime | None = None) -> Execution:
    return Execution("x" * 32, "b", "", state, 1, {}, "somebody", ago(9999), lease_until, finished_at)


@pytest.mark.parametrize(
    ("state", "lease_over", "finished", "kind", "cure"),
    [
        ("running", -50, None, "staged", None),  # under way
        ("running", 30, None, "lapsed", None),  # it may only have slept
        ("running", 61, None, "lapsed", "sweep"),
        ("failed", -80_000, 10, "staged", None),  # it can be resumed
        ("failed", 61, 90_000, "staged", "sweep"),
        ("aborted", -50, 30, "staged", None),
        ("aborted", -50, 61, "staged", "sweep"),
        ("committed", -50, 61, "staged", "sweep"),
    ],
)
def test_what_an_execution_staged_is_swept_when_lease_and_grace_are_over(
    state: str, lease_over: float, finished: float | None, kind: str, cure: str | None
) -> None:
    found = leftover_damage(
        execution(state, ago(lease_over), None if finished is None else ago(finished)), 2, NOW, GRACE
    )
    assert found is not None and (found.kind, found.cure, found.wrong) == (kind, cure, cure is not None)
    assert "2 staged blocks" in found.what and (cure is not None or "swept from 2024-01-" in (found.next or ""))


def test_an_execution_that_staged_nothing_is_only_told_of_when_it_has_lapsed() -> None:
    assert leftover_damage(execution("running", ago(-50)), 0, NOW, GRACE) is None
    assert leftover_damage(execution("failed", ago(61), ago(90_000)), 0, NOW, GRACE) is None
    lapsed = leftover_damage(execution("running", ago(61)), 0, NOW, GRACE)
    assert lapsed is not None and lapsed.cure == "sweep" and lapsed.mending.startswith("the execution is aborted")


def test_a_commit_is_left_to_who_made_it_for_a_minute() -> None:
    def commit(at: datetime) -> Commit:
        return Commit("c1", "x", None, at, {"orders": 3}, ())

    assert unreported_commit_damage([commit(ago(59))], NOW) == []
    [found] = unreported_commit_damage([commit(ago(61))], NOW)
    assert (found.kind, found.subject, found.cure) == ("unpublished", "c1", "publish") and "orders 3" in found.what


def test_dagster_and_the_catalog_may_differ_either_way() -> None:
    assert dagster_mismatch_damage("orders", frozenset({"a"}), {"a": True, "b": False}) == []
    [unknown] = dagster_mismatch_damage("orders", frozenset({"a", "z"}), {"a": True})
    assert (unknown.kind, unknown.cure, unknown.concerns) == ("event", "rebuild", ("z",))
    [forgotten] = dagster_mismatch_damage("orders", frozenset({"a"}), {"a": True, "b": True})
    assert (forgotten.kind, forgotten.cure, forgotten.concerns) == ("unpublished", "rebuild", ("b",))


def test_a_firing_may_wait_for_an_hour() -> None:
    def firing(at: datetime) -> Firing:
        return Firing("f", "b", 1, {}, 1, "requested", at)

    assert waiting_firing_damage(firing(ago(3600)), NOW) is None
    found = waiting_firing_damage(firing(ago(3601)), NOW)
    assert found is not None and not found.wrong and "requests the run again" in (found.next or "")


OLD, YOUNG = ago(7200), ago(10)
KNOWN = CatalogPaths(frozenset({"blocks/k/a", "blocks/w/a"}), frozenset({"blocks/empty"}), frozenset({"blocks/s"}))


def found_in(*entries: tuple[str, datetime], marks: str = "me", known: CatalogPaths = KNOWN) -> list[Damage]:
    """A path that ends with / is a folder."""
    there = [
        WarehouseEntry(path.rstrip("/"), 0 if path.endswith("/") else 5, at, path.endswith("/")) for path, at in entries
    ]
    return orphan_damage(there, known, frozenset(marks.split()), "me", NOW, timedelta(hours=1))


def test_what_is_listed_or_staged_is_no_orphan() -> None:
    there = [(f"blocks/{p}", OLD) for p in ("k/", "k/a", "w/", "w/a", "empty/", "s/", "s/part-0", "s/_temporary/")]
    assert found_in(*there) == []


def test_folders_and_files_that_nobody_lists_are_orphans_when_they_are_old() -> None:
    found = found_in(
        ("blocks/gone/", OLD),
        ("blocks/gone/part-0", OLD),
        ("blocks/k/", OLD),
        ("blocks/k/a", OLD),
        ("blocks/k/.a.crc", OLD),
        ("blocks/k/young", YOUNG),
        ("blocks/busy/", OLD),
        ("blocks/busy/part-0", YOUNG),
        ("blocks/hollow/", OLD),
    )
    assert [(d.subject, d.cure) for d in found] == [
        ("blocks/gone", "set aside"),
        ("blocks/hollow", "set aside"),
        ("blocks/k/.a.crc", "set aside"),
    ]
    assert "1 file, 5 bytes" in found[0].what and "empty" in found[1].what


@pytest.mark.parametrize(
    ("marks", "means"),
    [
        ("me other", "shared with 1 other catalog"),
        ("other", "shared with 1 other catalog"),
        ("", "no catalog has written its marker file"),
    ],
)
def test_what_may_be_somebody_elses_is_told_and_left(marks: str, means: str) -> None:
    [damage] = found_in(("blocks/a/", OLD), ("blocks/a/x", OLD), ("blocks/b/x", OLD), marks=marks)
    assert damage.cure is None and not damage.wrong and means in damage.means
    assert damage.what.startswith("2 files, 10 bytes in 2 paths")


def test_what_nova_cannot_have_made_is_left() -> None:
    [damage] = found_in(("blocks/notes.txt", OLD), ("blocks/file", OLD), ("blocks/my data/", OLD))
    assert damage.cure is None and not damage.wrong and "blocks/file, blocks/my data, blocks/notes.txt" in damage.what


def test_uploads_are_left_while_somebody_may_be_at_them() -> None:
    known = CatalogPaths(frozenset(), frozenset(), frozenset({"blocks/staged"}))
    young, staged, old = (
        UnfinishedUpload(f"blocks/{name}/part-0", name, ago(age))
        for name, age in (("young", 59), ("staged", 999), ("old", 61))
    )
    [damage] = unfinished_upload_damage([young, staged, old], known, frozenset({"me"}), "me", NOW, GRACE)
    assert damage.subject == "blocks/old/part-0" and damage.cure == "abort" and damage.concerns == ("old",)
    [shared] = unfinished_upload_damage([old], known, frozenset({"me", "other"}), "me", NOW, GRACE)
    assert shared.cure is None and not shared.wrong and "shared" in shared.what
    assert unfinished_upload_damage([young], known, frozenset({"me", "other"}), "me", NOW, GRACE) == []
