"""Views that follow timelines: whatever happens, they are what the catalog would load; for each storage."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

import nova_assets as nova
from nova_assets.file_views.channel_view import ChannelView
from nova_assets.file_views.query_handler import ViewQueryHandler
from nova_assets.file_views.sqlite_storage import open_storage
from nova_assets.file_views.storage import MemoryStorage
from nova_assets.file_views.timeline_follower import TimelineFollower
from nova_assets.file_views.view_entries import EncodedBlock, decode_json
from nova_assets.model.block import Block, DataFile
from nova_assets.model.timeline import History, TimelinePosition
from nova_assets.plan.history_excerpt import excerpt_history
from nova_assets_tests.effort import examples
from nova_assets_tests.execution.test_partition_histories import PARTITIONS, PartitionHistories

pytestmark = pytest.mark.slow


def with_files(kept: EncodedBlock) -> Block:
    files = tuple(DataFile.from_json(f) for f in decode_json(kept.files_line))
    return replace(kept.block, manifest=replace(kept.block.manifest, files=files))


def whole(view: ChannelView, scope: str = "", at: int | None = None) -> History:
    """The view's history, its blocks with their files."""
    partitions = [p.name for p in view.loaded_partitions(scope)]
    history, kept = view._load_history(scope, partitions, view.header.head if at is None else at, 0)
    return replace(history, blocks=tuple(with_files(kept[b.id]) for b in history.blocks))


def excerpted(view: ChannelView, scope: str, at: int, **asked: int) -> History:
    history, kept = view.excerpt(scope, at, **asked)
    return replace(history, blocks=tuple(with_files(kept[b.id]) for b in history.blocks))


def said(history: History) -> Any:
    """What plans go by."""
    blocks = {b.id: (b.partition, b.kind, b.lo, b.hi, b.origin, b.manifest, b.merge) for b in history.blocks}
    tracks = {t.partition: (t.numbers, t.floor) for t in history.partition_histories}
    return (
        history.head,
        history.schema,
        history.merge,
        history.last_merge,
        history.schema_at_first_version,
        blocks,
        tracks,
    )


def answered(follower: TimelineFollower, *asked: Any) -> Any:
    """What a desk tells of changes."""
    try:
        return decode_json(ViewQueryHandler(follower).changed_files_answer(*asked))
    except nova.BlockCollected as error:
        return error.what


class FollowedHistories(PartitionHistories):
    """The same histories, while views of them are asked for at any moment, of any scope, by two followers."""

    storage = "memory"

    @initialize()
    def open(self) -> None:
        super().open()
        self.home = tempfile.TemporaryDirectory()
        self.followers = {
            name: TimelineFollower(self.catalog, open_storage(self.storage, Path(self.home.name) / name, 2**14, "me"))
            for name in ("one", "two")
        }
        self.known: list[TimelinePosition] = []

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "followers"):
            for follower in self.followers.values():
                follower.close()
            self.home.cleanup()

    @rule(
        channel=st.sampled_from(["table", "whole", "each"]),
        p=st.sampled_from([None, *PARTITIONS, "z"]),
        who=st.sampled_from(["one", "two"]),
        data=st.data(),
    )
    def ask(self, channel: str, p: str | None, who: str, data: st.DataObject) -> None:
        """What is answered is what the catalog would load; as excerpts, too, and of former numbers."""
        scope = "" if p is None else f"p={p}"
        head = self.catalog.definitions.channel(channel).head
        at = data.draw(st.integers(0, head))
        since = data.draw(st.integers(0, at))
        follower = self.followers[who]
        assert said(follower.ask(channel, lambda v: whole(v, scope), [scope])) == said(
            self.catalog.histories.of(channel, None, scope)
        )
        tells = follower.ask(channel, lambda v: v.has_schema_at(at), [scope])
        if not tells:
            return
        then = follower.ask(channel, lambda v: whole(v, scope, at), [scope])
        assert said(then) == said(self.catalog.histories.of(channel, at, scope))
        for asked in ({"since": since}, {"back_to": since}):
            found = said(self.catalog.histories.of(channel, at, scope, **asked))
            plain = {{"since": "changes_after", "back_to": "snapshots_from"}[k]: v for k, v in asked.items()}
            assert said(excerpt_history(then, **plain)) == found
            assert said(follower.ask(channel, lambda v, a=asked: excerpted(v, scope, at, **a), [scope])) == found

    @rule(channel=st.sampled_from(["whole", "each"]), p=st.sampled_from([None, *PARTITIONS]), data=st.data())
    def ask_what_changed(self, channel: str, p: str | None, data: st.DataObject) -> None:
        """Whether a view has it, or the catalog finds it sooner."""
        at = data.draw(st.integers(0, self.catalog.definitions.channel(channel).head))
        since = data.draw(st.integers(0, at))
        loaded, new = self.followers["one"], TimelineFollower(self.catalog, MemoryStorage())
        loaded.ask(channel, lambda v: None)
        asked = (channel, "" if p is None else f"p={p}", since, at, None)
        assert answered(loaded, *asked) == answered(new, *asked)
        assert not since or p is not None or not new.counts.loaded

    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        """History is not rewritten: what was is put on top, as a base (R19)."""
        state = self.states[data.draw(st.integers(0, len(self.states) - 1))]
        at = self.states.index(state)
        try:
            self.store.restore("table", at)
        except nova.BlockCollected:
            assert self.collected
        except nova.UnrepresentableChange:
            assert not self.may_lose_rows(self.now - state)
        else:
            rows = [json.loads(text) for text, n in state.items() for _ in range(n)]
            self.take("base", rows, None, state)

    @rule(channel=st.sampled_from(["table", "whole", "each"]), p=st.sampled_from(PARTITIONS))
    def roll_back(self, channel: str, p: str) -> None:
        """An execution is aborted after it has written, and its files are removed. This changes no answer."""
        state = self.catalog.definitions.channel(channel)
        with pytest.raises(ZeroDivisionError), self.store.runtime.channel_writer.write(channel) as execution:
            history = self.catalog.histories.of(channel, state.head)
            frame = self.store.engine.frames.to_frame([{"p": p, "k": 1, "v": 1}])
            self.store.runtime.staging.write(execution, channel, "delta", state.channel, history, frame)
            raise ZeroDivisionError
        instant = self.catalog.instants.of(channel, 1)[0]
        assert (instant.action, [b.partition for b in instant.rolled_back]) == ("rollback", [f"p={p}"])

    @rule(who=st.sampled_from(["one", "two"]))
    def ask_with_a_position(self, who: str) -> None:
        """Who knows where it is gets what is there or later, and can see that what it knows is part of it."""
        follower = self.followers[who]
        for known in self.known[-3:]:
            there, chain = follower.ask(
                "table", lambda v, k=known: (v.position, v.instants(k.step)), known_position=known, allow_stale=True
            )
            assert there.step >= known.step
            if len(chain) == there.step - known.step:
                for instant in chain:
                    known = known.with_instant(instant.action, instant.commit)
                assert known == there
        self.known.append(self.catalog.definitions.channel("table").position)

    @rule(channel=st.sampled_from(["table", "whole", "each"]), limit=st.integers(1, 6))
    def look_at_the_latest(self, channel: str, limit: int) -> None:
        """The latest instants are the last of them all."""
        assert self.catalog.instants.of(channel, limit) == self.catalog.instants.of(channel)[-limit:]

    @invariant()
    def the_warehouse_holds_what_the_view_lists(self) -> None:
        """Every file of the view is there, and no other: what was collected is deleted after the grace."""
        if not hasattr(self, "followers"):
            return
        self.store.delete_collected()
        listed: set[str] = set()
        for channel in ("table", "whole", "each"):
            one: tuple[Block, ...] = self.followers["one"].ask(channel, lambda v: whole(v).blocks)
            assert {b.id for b in one} == {b.id for b in self.catalog.histories.of(channel).blocks}
            listed |= {f.path for b in one for f in b.manifest.files}
        root = Path(self.folder.name) / "wh"
        there = {str(f.relative_to(root)) for f in root.rglob("blocks/**/*") if f.is_file()}
        assert there == listed


def machine(model: str, storage: str) -> Any:
    made: Any = type(f"{model}{storage}", (FollowedHistories,), {"model": model, "storage": storage})
    made.TestCase.settings = settings(
        max_examples=examples(5, 10), stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck)
    )
    return made.TestCase


TestAppendInMemory = machine("append", "memory")
TestUpsertOnDisk = machine("upsert", "disk")
TestKeyedOnDisk = machine("keyed", "disk")
