"""A catalog that is seen through views answers as the catalog does: every history of partitions, over each storage."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

import nova_assets as nova
from nova_assets.file_views.query_handler import ViewQueryHandler
from nova_assets.file_views.sqlite_storage import SqliteStorage
from nova_assets.file_views.storage import MemoryStorage, Storage
from nova_assets.file_views.timeline_follower import TimelineFollower
from nova_assets.file_views.viewed_catalog import catalog_through_views
from nova_assets.store.store import Store
from nova_assets_tests.execution.test_partition_histories import PARTITIONS, PartitionHistories
from nova_assets_tests.file_views.conftest import opened, put

pytestmark = pytest.mark.slow


def test_an_older_number_has_the_schema_and_the_merge_model_of_its_time(store: Store) -> None:
    store.register(nova.Channel("notes", merge=nova.Upsert(key="k"), schema="k bigint", on_schema_change="evolve"))
    seen: Any = catalog_through_views(store.catalog, ViewQueryHandler(TimelineFollower(store.catalog, MemoryStorage())))
    for row in ({"k": 1}, {"k": 2, "text": "a"}, {"k": 2, "text": "b", "more": 1}):
        seen.histories.of("notes")  # a view begins at its first query, and answers for what comes after
        store.insert("notes", [row])
    for number in range(4):
        expected, actual = (catalog.histories.of("notes", number) for catalog in (store.catalog, seen))
        assert (actual.schema, actual.merge, actual.last_merge) == (
            expected.schema,
            expected.merge,
            expected.last_merge,
        )
    assert [len(seen.histories.of("notes", number).schema.fields) for number in (1, 2, 3)] == [1, 2, 3]


def test_reads_of_one_moment_do_not_ask_views(
    store: Store, tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A view follows the timeline to another moment, and waits for a lock whose holder may wait for a connection."""
    desk = ViewQueryHandler(TimelineFollower(store.catalog, MemoryStorage()))
    seen: Any = catalog_through_views(store.catalog, desk)
    put(store, 0)

    def rows_at_head() -> tuple[int, int]:
        asked = seen.histories.of("t")
        return asked.head, sum(b.rows for b in asked.blocks)

    def rows_while_another_process_inserts() -> tuple[int, int]:
        seen.definitions.channel("t")  # the moment
        with opened(tmp_path, url) as other:
            put(other, 1)
        return rows_at_head()

    assert rows_at_head() == (1, 3)
    with monkeypatch.context() as without_views:
        without_views.setattr(desk, "history_answer", lambda *_, **__: pytest.fail("a view was asked"))
        assert seen.read_together(rows_while_another_process_inserts) == (1, 3)
    assert rows_at_head() == (2, 6)


class SeenThroughViews(PartitionHistories):
    """The same histories, by a store that looks at its channels through views, and collects what these tell."""

    disk = False

    @initialize()
    def open(self) -> None:
        super().open()
        self.home = tempfile.TemporaryDirectory()
        storage: Storage = SqliteStorage(Path(self.home.name), "me") if self.disk else MemoryStorage()
        self.desk = ViewQueryHandler(TimelineFollower(self.catalog, storage))
        seen: Any = catalog_through_views(self.catalog, self.desk)
        self.truth = self.catalog
        parts = (self.store._reader, self.store._inserter, self.store._compaction, self.store._retention)
        for part in (self.store.runtime, *parts):
            part.catalog = seen
        self.store.runtime.staging.catalog = self.store.runtime.channel_writer.catalog = seen

    def teardown(self) -> None:
        if hasattr(self, "desk"):
            self.desk.follower.close()
            self.home.cleanup()
        super().teardown()

    @rule(p=st.sampled_from(PARTITIONS))
    def collect_from_the_oldest_retained_instant_on(self, p: str) -> None:
        """What the view tells is all that there is to collect; and where nothing came, nothing is looked at again."""
        for channel in ("table", "whole", "each"):
            self.store.collect_garbage(channel)
            assert self.truth.garbage.collect(channel).blocks == (), "the view has told of everything"
        self.collected = True


def machine(model: str, disk: bool) -> Any:
    made: Any = type(f"{model}{disk}", (SeenThroughViews,), {"model": model, "disk": disk})
    made.TestCase.settings = settings(
        max_examples=10, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck)
    )
    return made.TestCase


TestAppendThroughMemory = machine("append", False)
TestUpsertThroughDisk = machine("upsert", True)
TestKeyedThroughMemory = machine("keyed", False)
