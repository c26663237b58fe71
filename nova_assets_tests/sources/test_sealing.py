"""Days that are complete are sealed once, after all their data; what comes later is never silent. No Spark."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from nova_assets_tests.sources.landing import Landing, row

MIDNIGHT = datetime(2024, 1, 2, tzinfo=UTC)


class Days(Landing):
    """A landing whose channel is sealed day by day, and a clock of the test's."""

    def __init__(self, home: Path, late: Any = "reopen", target: int = 4000, **options: Any) -> None:
        self.target = target
        self.sealing = nova.seal("day", lateness="15m", late=late)
        self.now = MIDNIGHT - timedelta(hours=2)
        super().__init__(home, partitions=[nova.daily("day", start="2024-01-01"), nova.dynamic("action")], **options)

    @property
    def channel(self) -> nova.Channel:
        made = super().channel
        return nova.Channel(
            made.name,
            schema=made.schema,
            partitions=made.partitions,
            source=made.source,
            seal=self.sealing,
            compaction=nova.Compaction(target=self.target),
        )

    def open(self) -> nova.Store:
        store = super().open()
        store.catalog.database.clock = lambda: self.now  # type: ignore[attr-defined]
        store.register([self.channel])
        return store

    def sealed(self) -> list[tuple[str, int, int, int]]:
        """(group, version, rows, files) of each new seal."""
        return [(s.group, s.version, s.rows, s.files) for s in self.store.seal("actions")]

    def after(self, **span: float) -> None:
        self.now = MIDNIGHT + timedelta(**span)


@pytest.fixture
def days(tmp_path: Path) -> Iterator[Days]:
    made = Days(tmp_path)
    yield made
    made.store.close()


def test_a_day_is_sealed_once_when_everything_is_in(days: Days) -> None:
    for n in range(5):
        days.put(f"{n}.json", row(n), row(n + 10, action="buy"))
        days.store.receive("actions")
    assert days.sealed() == []
    due, still = days.store.sealable("actions")
    assert due == [] and still[0].why.startswith("its period ends at")
    days.after(minutes=10)
    assert "late data is accepted until" in days.store.sealable("actions")[1][0].why
    days.put("late.json", row(5))
    days.after(minutes=16)
    assert "has not been listed since" in days.store.sealable("actions")[1][0].why
    assert days.sealed() == []
    days.store.receive("actions")
    assert days.sealed() == [("2024-01-01", 1, 11, 2)], "in their final form: one file a partition"
    assert days.sealed() == [] and [s.state for s in days.store.seals("actions")] == ["sealed"]
    head = days.store.catalog.definitions.channel("actions").head
    assert days.store.seals("actions")[0].seq == head, "a seal takes no number"


def test_a_day_without_data_is_sealed_too(days: Days) -> None:
    days.after(days=2, hours=1)
    days.store.receive("actions")
    assert days.sealed() == [("2024-01-01", 1, 0, 0), ("2024-01-02", 1, 0, 0), ("2024-01-03", 1, 0, 0)]


def test_what_comes_later_reopens_the_day(days: Days) -> None:
    days.put("a.json", row(1))
    days.after(hours=1)
    days.store.receive("actions")
    assert days.sealed() == [("2024-01-01", 1, 1, 1)]
    days.put("b.json", row(2), row(3, day="2024-01-02"))
    days.after(hours=2)
    days.store.receive("actions")
    assert [(s.group, s.state) for s in days.store.seals("actions")] == [("2024-01-01", "reopened")]
    assert days.sealed() == [("2024-01-01", 2, 2, 1)]
    assert [(s.version, s.state) for s in days.store.seals("actions")] == [(2, "sealed"), (1, "reopened")]


def test_or_is_set_aside_and_counted(tmp_path: Path) -> None:
    days = Days(tmp_path, late="quarantine")
    days.put("a.json", row(1))
    days.after(hours=1)
    days.store.receive("actions")
    assert len(days.sealed()) == 1
    days.put("b.json", row(2), row(3, day="2024-01-02"))
    found = days.store.receive("actions")
    assert (found.rows, found.bad) == (1, 1) and days.ids() == [1, 3]
    assert days.quarantined()[0][2].startswith("late: day=2024-01-01 was sealed at 2024-01-02 01:00:00 UTC")
    assert days.store.replay("actions").left == 1, "it is late still"
    assert days.sealed() == []
    with pytest.raises(nova.GroupSealed, match="day=2024-01-01 of channel 'actions' is sealed") as met:
        days.store.insert("actions", [row(9, day=datetime(2024, 1, 1).date())])
    assert "late='reopen'" in str(met.value.next)


def test_a_day_to_which_something_comes_meanwhile_is_not_sealed(days: Days) -> None:
    days.put("a.json", row(1))
    days.after(hours=1)
    days.store.receive("actions")
    commit = days.store.runtime.channel_writer.commit

    def meanwhile(request: Any) -> Any:
        if request.seals:
            days.store.runtime.channel_writer.commit = commit  # type: ignore[method-assign]
            days.store.insert("actions", [row(2, day=datetime(2024, 1, 1).date())])
        return commit(request)

    days.store.runtime.channel_writer.commit = meanwhile  # type: ignore[method-assign]
    assert days.sealed() == []
    assert days.sealed() == [("2024-01-01", 1, 2, 1)]


def test_two_that_seal_at_once_put_one_seal(days: Days) -> None:
    days.after(hours=1)
    days.store.receive("actions")
    with days.open() as other:
        due = other.sealable("actions")[0]
        assert days.sealed() == [("2024-01-01", 1, 0, 0)]
        for group in due:
            with pytest.raises(nova.CommitConflict, match="sealed meanwhile"):
                other._seals._seal_group("actions", group, nova.Compaction())
    assert len(days.store.seals("actions")) == 1


def test_small_files_of_a_base_are_put_together_in_the_end(tmp_path: Path) -> None:
    """Rolling has left several at the newest number already."""
    days = Days(tmp_path, target=10**6)
    for n, count in enumerate((6000, 1000, 4)):
        days.put(f"{n}.json", *(row(10_000 * n + k * k % 9973, action="view") for k in range(count)))
        days.store.receive("actions")
    days.store.compact("actions")
    held = [b for b in days.store.catalog.histories.of("actions").blocks if b.kind == "base"]
    assert len(held) == 1 and len(held[0].manifest.files) > 1, "tiers"
    before = days.store.read("actions").to_arrow().sort_by("id")
    days.after(hours=1)
    days.store.receive("actions")
    sealed = days.sealed()
    assert [(g, v, rows) for g, v, rows, _ in sealed] == [("2024-01-01", 1, 7004)]
    assert sealed[0][3] == 1 and days.store.read("actions").to_arrow().sort_by("id").equals(before)
    days.store.collect_garbage("actions")
    days.after(hours=9)
    assert days.store.delete_collected() > 0
    assert days.store.read("actions").to_arrow().sort_by("id").equals(before)
    assert [i.action for i in days.store.timeline("actions")].count("compact") == 2


def test_a_channel_that_is_not_sealed_is_told(days: Days) -> None:
    days.store.register(nova.Channel("other", schema="id bigint"))
    with pytest.raises(nova.DefinitionError, match="has no seal=, which defines when its days"):
        days.store.seal("other")
    with pytest.raises(nova.DefinitionError, match="expected one of its daily or hourly dimensions"):
        nova.Channel("c", schema="id bigint", seal=nova.seal("day"))
    with pytest.raises(nova.DefinitionError, match="lateness='soon'"):
        nova.seal("day", lateness="soon")


def test_a_day_is_not_sealed_while_what_the_last_look_found_still_waits(days: Days) -> None:
    days.after(hours=1)
    days.put("a.json", row(1))
    receiving = days.store.runtime.channel_writer.commit

    def die(request: Any) -> Any:
        raise nova.CatalogUnavailable("gone for a moment")

    days.store.runtime.channel_writer.commit = die  # type: ignore[method-assign]
    with pytest.raises(nova.CatalogUnavailable):
        days.store.receive("actions")
    days.store.runtime.channel_writer.commit = receiving  # type: ignore[method-assign]
    assert days.store.catalog.arrivals.counts("actions").waiting == 1
    assert days.sealed() == [] and "are still waiting" in days.store.sealable("actions")[1][0].why
    days.store.receive("actions")
    assert days.sealed() == [("2024-01-01", 1, 1, 1)]


def test_a_clock_that_was_ahead_is_no_look(days: Days) -> None:
    days.after(days=5)
    days.store.receive("actions")
    days.after(hours=1)
    days.put("a.json", row(1))
    assert days.sealed() == []
    days.store.receive("actions")
    assert [s[2] for s in days.sealed()] == [1]


def test_the_last_day_of_all_is_never_over(days: Days) -> None:
    days.put("a.json", row(1, day="9999-12-31"), row(2))
    days.after(hours=1)
    days.store.receive("actions")
    assert [s[0] for s in days.sealed()] == ["2024-01-01"]


def test_files_that_the_engine_will_not_write_larger_keep_no_day_open(tmp_path: Path) -> None:
    days = Days(tmp_path, target=10**6)
    for n, count in enumerate((6000, 1000, 4)):
        days.put(f"{n}.json", *(row(10_000 * n + k * k % 9973) for k in range(count)))
        days.store.receive("actions")
    days.store.compact("actions")
    days.store._compaction.add_compacted_blocks = lambda *asked: None  # type: ignore[method-assign]
    days.after(hours=1)
    days.store.receive("actions")
    [sealed] = days.sealed()
    assert sealed[2] == 7004 and sealed[3] > 1
