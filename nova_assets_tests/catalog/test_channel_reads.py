"""Reads of a channel's state: unread data, outlines, timelines."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import nova_assets as nova
from nova_assets.catalog.catalog import Catalog
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.model.block import Origin
from nova_assets.model.channel_state import BlockSpan, ChannelOutline, UnreadData
from nova_assets.model.commit import CommitRequest, MoveCursor
from nova_assets.model.execution import BeginRequest
from nova_assets.model.seal import AddSeal
from nova_assets.model.timeline import TimelinePosition
from nova_assets_tests.catalog.commit_requests import LAYOUT, PLACEMENT, begin_execution, build_commit_request


def test_manifests_come_back_exactly(catalog: Catalog) -> None:
    request = build_commit_request(begin_execution(catalog))
    catalog.commits.commit(request)
    (block,) = catalog.histories.of("c").blocks
    assert block.manifest == request.added_blocks[0].manifest
    assert block.manifest.files[0].ranges == {"k": (1, 5)} and block.manifest.files[0].key_placement == PLACEMENT
    assert block.manifest.layout == LAYOUT
    assert (block.lo, block.hi, block.range) == (0, 1, "Δ(0→1)")


def test_unread_counts_what_came_after_a_number(catalog: Catalog) -> None:
    moments = [catalog.commits.commit(build_commit_request(begin_execution(catalog), rows=n)).at for n in (2, 3, 4)]
    assert catalog.histories.unread_data("c", 0) == UnreadData(3, 9, 30, moments[0])
    assert catalog.histories.unread_data("c", 1) == UnreadData(2, 7, 20, moments[1])
    assert catalog.histories.unread_data("c", 3) == UnreadData()


def test_each_channel_has_the_size_of_its_own_blocks(catalog: Catalog) -> None:
    catalog.definitions.register([nova.Channel("empty")])
    for rows in (2, 3):
        catalog.commits.commit(build_commit_request(begin_execution(catalog), rows))
    sizes = {"c": (5, 20, 2), "empty": (0, 0, 0)}
    assert {s.channel.name: (s.rows, s.bytes, s.blocks) for s in catalog.definitions.channels()} == sizes
    assert [(s.rows, s.bytes, s.blocks) for s in catalog.definitions.channels("c")] == [sizes["c"]]


def test_consumers_that_have_read_something_and_not_all_lag(catalog: Catalog) -> None:
    for _ in range(3):
        catalog.commits.commit(build_commit_request(begin_execution(catalog)))
    moves = tuple(MoveCursor(f"b{n}", "c", 0, n) for n in range(4))
    catalog.commits.commit(CommitRequest(uuid.uuid4().hex, begin_execution(catalog).id, 1, None, (), cursors=moves))
    assert catalog.cursors.lagging("c", 3) == [(1, ""), (2, "")]
    assert catalog.cursors.positions("b2") == {("c", ""): 2}


def test_other_writers_of_a_channel(catalog: Catalog) -> None:
    def commit(binding: str | None, partition: str = "", origin: Origin = "task") -> None:
        execution = catalog.executions.begin(
            BeginRequest(uuid.uuid4().hex, binding, pinned_channels=("c",), partition=partition, owner="test")
        )
        request = build_commit_request(execution)
        blocks = tuple(replace(b, origin=origin, partition=partition) for b in request.added_blocks)
        details = {"tasks": [{"task": "t", "facts": {"partition": partition}}]}
        catalog.commits.commit(replace(request, binding=binding, added_blocks=blocks, details=details))

    def others(partition: str = "", after: int = 0, up_to: int = 9) -> bool:
        return catalog.histories.is_written_by_others("c", "b", partition, after, up_to)

    commit("b")
    assert not others(), "its own commit"
    assert others("day=1"), "an unpartitioned execution, for executions per partition"
    commit("b", "day=1")
    commit("b", "day=2")
    assert others(after=1) and not others("day=1", after=1), "executions per partition"
    commit(None, origin="drop")
    assert not others("day=1", after=3), "retention"
    commit(None, origin="insert")
    assert others("day=1", after=3) and not others("day=1", after=3, up_to=4) and not others("day=1", after=5)
    commit("other")
    assert others("day=1", after=5)
    last = catalog.commits.last("b", "day=2")
    assert last is not None and last.details["tasks"][0]["facts"] == {"partition": "day=2"}
    assert last.heads == {"c": 3}
    commit("b", "day=2")
    assert not others("day=2", after=6) and not others("day=1", after=6), "one commit of its own"
    commit("b", "day=2")
    assert others("day=2", after=6, up_to=8), "a second commit is of another execution"
    assert not others("day=2", after=7), "its own last commit"
    assert catalog.commits.last("b", "day=3") is None
    times = {i.seq: i.at for i in catalog.instants.of("c")}
    assert catalog.partitions.oldest_data_time("c", 0, ["day=2", "day=1"]) == times[2]
    assert catalog.partitions.oldest_data_time("c", 3, ["day=2"]) == times[7], "the oldest one after a number"
    assert catalog.partitions.oldest_data_time("c", 1, [""]) == times[5], "not the drop"
    assert catalog.partitions.oldest_data_time("c", 8, ["day=2"]) is None


def test_instants_after_one_that_is_known(catalog: Catalog) -> None:
    commits = [catalog.commits.commit(build_commit_request(begin_execution(catalog))) for _ in range(3)]
    whole = catalog.instants.summaries("c", 0, 10)
    assert [(i.step, i.commit, i.seq) for i in whole] == [(n, c.id, n) for n, c in enumerate(commits, 1)]
    assert catalog.instants.summaries("c", 1, 10) == whole[1:] and catalog.instants.summaries("c", 1, 1) == whole[1:2]
    first = TimelinePosition(whole[0].step, whole[0].prefix)
    for limit in (1, 10):
        later = catalog.timelines.steps_without_blocks("c", first, limit)
        assert later is not None and [s.commit_id for s in later] == [c.id for c in commits[1:][:limit]]
    assert catalog.timelines.steps_without_blocks("c", TimelinePosition(1, "another"), 10) is None


def test_seals_are_those_of_one_channel(catalog: Catalog) -> None:
    catalog.definitions.register([nova.Channel("a"), nova.Channel("d")])
    for name in ("a", "c", "d"):
        seal = AddSeal(name, "2024-01-01", "day=2024-01-01", 1, 0, 0, 0, 0)
        catalog.commits.commit(CommitRequest(uuid.uuid4().hex, begin_execution(catalog).id, 1, None, (), seals=(seal,)))
    assert [s.channel for s in catalog.seals.find("c")] == ["c"] and catalog.seals.count("c") == 1


def test_outlines_say_where_blocks_lie_and_how_far_consumers_are(catalog: Catalog) -> None:
    def reading(since: int, up_to: int) -> None:
        move = MoveCursor("b", "c", since, up_to)
        catalog.commits.commit(
            CommitRequest(uuid.uuid4().hex, begin_execution(catalog).id, 1, "b", (), cursors=(move,))
        )

    catalog.definitions.register([nova.Channel("empty")])
    for _ in range(3):
        catalog.commits.commit(build_commit_request(begin_execution(catalog)))
    compaction = build_commit_request(begin_execution(catalog))
    base = replace(compaction.added_blocks[0], kind="base", origin="compact", span=(3, 3))
    catalog.commits.commit(replace(compaction, added_blocks=(base,)))
    reading(0, 2)
    deltas = [BlockSpan("delta", n - 1, n, "insert") for n in (1, 2, 3)]
    compacted = BlockSpan("base", 3, 3, "compact")
    found = catalog.histories.outlines(["c", "empty", "unknown"])
    assert set(found) == {"c", "empty"} and found["empty"] == ChannelOutline("empty", 0, (), ())
    assert (found["c"].head, found["c"].spans) == (3, (*deltas, compacted))
    assert [s.rows for s in found["c"].spans] == [b.manifest.rows for b in compaction.added_blocks] * 4
    assert [(c.binding, c.seq, c.lag) for c in found["c"].cursors] == [("b", 2, 1)]
    assert catalog.histories.outlines(["c"], version_limit=1)["c"].spans == (deltas[2], compacted)
    reading(2, 3)
    catalog.garbage.collect("c")
    assert catalog.histories.outlines(["c"])["c"].spans == (*(replace(d, collected=True) for d in deltas), compacted)


def test_outlines_put_partitions_together_or_show_one(catalog: Catalog) -> None:
    catalog.definitions.register(
        [nova.Channel("p", schema="d string, e string", partitions=[nova.dynamic("d"), nova.dynamic("e")])]
    )
    for days in ("12", "1", "2"):
        like = build_commit_request(execution := begin_execution(catalog, "p")).added_blocks[0]
        publish = [replace(like, block_id=uuid.uuid4().hex, channel="p", partition=f"d={d}/e=x") for d in days]
        catalog.commits.commit(CommitRequest(uuid.uuid4().hex, execution.id, execution.epoch, None, tuple(publish)))
    scopes = ("d=1", "d=2", "e=x", "")
    moves = tuple(MoveCursor("b", "p", 0, 2, partition=s, channel_partition=s) for s in scopes)
    catalog.commits.commit(CommitRequest(uuid.uuid4().hex, begin_execution(catalog, "p").id, 1, "b", (), cursors=moves))

    def seen(scope: str) -> tuple[list[int], set[tuple[str, int]]]:
        found = catalog.histories.outlines(["p"], scope=scope)["p"]
        assert (found.head, found.scope) == (3, scope)
        return [s.hi for s in found.spans], {(c.channel_partition, c.lag) for c in found.cursors}

    assert seen("") == ([1, 2, 3], {("d=1", 0), ("d=2", 1), ("e=x", 1), ("", 1)})
    assert seen("d=1/e=x") == ([1, 2], {("d=1", 0), ("e=x", 1), ("", 1)})
    assert seen("d=2") == ([1, 3], {("d=2", 1), ("e=x", 1), ("", 1)})


def test_a_timeline_is_in_the_order_of_commits_whatever_the_clock_says(tmp_path: Path) -> None:
    """Processes read the database's clock over connections of different speed."""
    moments = iter(datetime(2024, 1, 1, tzinfo=UTC) - timedelta(milliseconds=n) for n in range(10_000))
    catalog = open_catalog(f"sqlite:///{tmp_path / 'c.db'}", clock=lambda: next(moments))
    catalog.definitions.register([nova.Channel("c", schema="id bigint")], ())
    for _ in range(3):
        catalog.commits.commit(build_commit_request(begin_execution(catalog)))
    assert [i.seq for i in catalog.instants.of("c")] == [1, 2, 3]
    catalog.close()
