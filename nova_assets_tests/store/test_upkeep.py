"""Compaction and collection over each catalog: Nova's own example with real files, and what may not go wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.store.store import Store
from nova_assets_tests.execution.conftest import Opener, TestClock
from nova_assets_tests.stub_merge import Row

pytestmark = pytest.mark.slow

DDL = "k bigint, v bigint"
source = nova.Channel("source", merge=nova.Upsert(key="k"), schema=DDL)
copy = nova.Channel("copy", merge=nova.Upsert(key="k"), schema=DDL)
got: list[list[Row]] = []


@nova.task(consumes=nova.new(source), produces=nova.delta(copy))
def take(source: list[Row]) -> list[Row]:
    got.append(source)
    return source


@nova.task(consumes=[nova.new(source), nova.old(source, as_="before")], produces=nova.delta(copy))
def compare(source: list[Row], before: list[Row]) -> list[Row]:
    got.append(before)
    return source


def bound(task: nova.Task) -> nova.Project:
    return nova.Project([nova.bind(nova.Workflowette("dedup", [task]))])


def row(k: int, v: int) -> Row:
    return {"k": k, "v": v}


def three_deltas_and_a_cursor_at_two(opened: Opener, task: nova.Task = take) -> Store:
    got.clear()
    store = opened(bound(task))
    store.insert("source", [row(1, 1), row(2, 2)])
    store.insert("source", [row(2, 20)])
    store.run("dedup")
    store.insert("source", [row(3, 3), {**row(1, 0), "_deleted": True}])
    assert store.compact("source") is not None
    return store


def ranges(store: Store) -> list[str]:
    return [b.range for b in store.catalog.histories.of("source").blocks]


def files(tmp_path: Path) -> set[str]:
    return {p.name for p in (tmp_path / "wh" / "blocks").iterdir()}


def rows_of(selection: Any) -> dict[int, int]:
    return {r["k"]: r["v"] for r in selection.to_spark()}


def test_novas_example_with_real_files(opened: Opener, tmp_path: Path, clock: TestClock) -> None:
    store = three_deltas_and_a_cursor_at_two(opened)
    assert ranges(store) == ["Δ(0→1)", "Δ(1→2)", "B3", "Δ(2→3)"]
    folders = files(tmp_path)
    taken = store.collect_garbage("source")
    assert [b.range for b in taken.blocks] == ["Δ(0→1)", "Δ(1→2)"] and ranges(store) == ["B3", "Δ(2→3)"]
    assert files(tmp_path) == folders, "who has planned before may still be reading"
    clock.advance(2 * 3600)
    store.collect_garbage("source")
    assert len(folders - files(tmp_path)) == 2
    assert rows_of(store.read("source")) == {2: 20, 3: 3}
    with pytest.raises(nova.BlockCollected, match=r"(?s)expected: 3 or later.*retain=") as gone:
        store.read("source", at=1)
    assert gone.value.oldest == 3
    store.run("dedup")
    assert sorted(r["k"] for r in got[-1]) == [1, 3] and rows_of(store.read("copy")) == {2: 20, 3: 3}


def test_who_reads_old_holds_what_was_there(opened: Opener) -> None:
    store = three_deltas_and_a_cursor_at_two(opened, compare)
    assert store.collect_garbage("source").blocks == ()
    held = {v.block.range: v.held_by for v in store.held("source")}
    assert held["Δ(0→1)"] == ("dedup, for the snapshot at its cursor 2",)
    store.run("dedup")
    assert {r["k"]: r["v"] for r in got[-1]} == {1: 1, 2: 20}


def test_r15_a_first_base_tells_lagging_consumers_what_it_changes(opened: Opener, clock: TestClock) -> None:
    store = three_deltas_and_a_cursor_at_two(opened)
    store.collect_garbage("source")
    clock.advance(2 * 3600)
    store.collect_garbage("source")
    store.insert("source", [row(3, 33), row(4, 4)], kind="base")
    assert ranges(store) == ["B3", "Δ(2→3)", "B4", "Δ(3→4)"]
    store.run("dedup")
    assert rows_of(store.read("copy")) == {3: 33, 4: 4} == rows_of(store.read("source"))
    # From now on bases may come, so what lags is kept, and no base has to say what it changes.
    store.insert("source", [row(5, 5)])
    store.insert("source", [row(6, 6)], kind="base")
    assert ranges(store)[-2:] == ["Δ(4→5)", "B6"]
    store.collect_garbage("source")
    store.run("dedup")
    assert rows_of(store.read("copy")) == {6: 6}


def test_r15_inputs_of_a_live_execution_are_held(opened: Opener, clock: TestClock) -> None:
    store = three_deltas_and_a_cursor_at_two(opened)
    execution = store.runtime.begin("dedup")
    store.insert("source", [row(7, 7)])
    store.compact("source")
    assert "pinned 3" in " ".join(h for v in store.held("source") for h in v.held_by)
    store.collect_garbage("source")
    clock.advance(50)
    store.runtime.run_task(execution, "take")
    assert sorted(r["k"] for r in got[-1]) == [1, 3]
    store.runtime.commit(execution)
    store.run("dedup")
    assert rows_of(store.read("copy")) == rows_of(store.read("source")) == {2: 20, 3: 3, 7: 7}


def test_r14_no_trigger_fires_and_two_compactions_add_one_base(opened: Opener) -> None:
    store = three_deltas_and_a_cursor_at_two(opened)
    other = opened(bound(take))
    heads = {s.channel.name: s.head for s in store.channels()}
    assert store.compact("source") is None, "there is a base at 3 already"
    store.insert("source", [row(9, 9)])
    seen = store.catalog.histories.of("source")

    def meanwhile(*given: Any) -> Any:
        other.compact("source")
        return really(*given)

    really = store.runtime.channel_writer.commit
    store.runtime.channel_writer.commit = meanwhile  # type: ignore[method-assign]
    assert store.compact("source") is None
    assert [b.range for b in store.catalog.histories.of("source").blocks if b.origin == "compact"] == ["B3", "B4"]
    assert len(store.catalog.histories.of("source").blocks) == len(seen.blocks) + 1
    assert {s.channel.name: s.head for s in store.channels()} == {**heads, "source": 4}
    assert [i.action for i in store.timeline("source")].count("compact") == 2
    assert all(c.numbers for c in store.catalog.commits.unreported()), "Dagster hears of what takes a number"


def test_files_that_two_blocks_share_outlive_the_first(opened: Opener, tmp_path: Path, clock: TestClock) -> None:
    from nova_assets.model.compaction import Compaction

    log = nova.Channel("log", schema=DDL)
    store = opened(nova.Project([], channels=[log]))
    for n in range(3):
        store.insert("log", [row(k, n) for k in range(5 if n == 0 else 1)])
    large = Compaction(small=store.catalog.histories.of("log").blocks[0].bytes)
    store.compact("log", policy=large)
    [base] = [b for b in store.catalog.histories.of("log").blocks if b.kind == "base"]
    first = store.catalog.histories.of("log").blocks[0].manifest.files[0].path
    assert first in {f.path for f in base.manifest.files} and len(base.manifest.files) == 2
    store.collect_garbage("log")
    clock.advance(2 * 3600)
    store.collect_garbage("log")
    assert (tmp_path / "wh" / first).is_file() and len(files(tmp_path)) == 2
    assert len(store.read("log").to_spark()) == 7  # type: ignore[arg-type]


def test_partitions_are_compacted_by_themselves(opened: Opener) -> None:
    day = nova.Channel(
        "day", merge=nova.Upsert(key=["p", "k"]), schema=f"p string, {DDL}", partitions=nova.dynamic("p")
    )
    store = opened(nova.Project([], channels=[day]))
    for n in range(3):
        store.insert("day", [{"p": "a", **row(1, n)}, *([{"p": "b", **row(1, n)}] if n < 2 else [])])
    store.insert("day", [{"p": "b", **row(1, 0), "_deleted": True}])
    store.compact("day", partitions=["p=b"])
    bases = [(b.partition, b.range, b.rows) for b in store.catalog.histories.of("day").blocks if b.kind == "base"]
    assert bases == [("p=b", "B4", 0)]
    store.compact("day")
    assert {b.partition: b.range for b in store.catalog.histories.of("day").blocks if b.kind == "base"} == {
        "p=a": "B3",
        "p=b": "B4",
    }
    store.collect_garbage("day")
    assert [(r["p"], r["v"]) for r in store.read("day").to_spark()] == [("a", 2)]  # type: ignore[union-attr]
    with pytest.raises(nova.BlockCollected):
        store.read("day", at=1)


def test_a_partition_is_compacted_whatever_was_collected_of_another(opened: Opener) -> None:
    key = ["p", "k"]
    parts = nova.Channel("source", nova.Upsert(key=key), "p string, k bigint", nova.static("p", ["a", "b"]))
    store = opened(nova.Project(channels=[parts]))
    for k in (1, 2):
        store.insert("source", [{"p": "a", "k": k}, {"p": "b", "k": k}])
    store.compact("source", partitions=["p=a"])
    assert [b.partition for b in store.collect_garbage("source").blocks] == ["p=a", "p=a"]
    commit = store.compact("source", partitions=["p=b"])
    assert commit is not None and [b.partition for b in commit.blocks] == ["p=b"]


def test_what_is_gone_is_an_error_and_never_a_wrong_answer(opened: Opener) -> None:
    channel = nova.Channel("x", merge=nova.Upsert(key="k"), schema=DDL)
    store = opened(nova.Project([], channels=[channel]))
    for n in range(3):
        store.insert("x", [row(n, n)])
    store.compact("x")
    store.collect_garbage("x")
    store.insert("x", [row(9, 9)], kind="base")
    for since in (1, 2):
        with pytest.raises(nova.BlockCollected):
            store.read("x", since=since)
    assert {r["k"] for r in store.read("x", since=3).to_spark() if not r["_deleted"]} == {9}  # type: ignore[union-attr]
    store.collect_garbage("x")
    with pytest.raises(nova.BlockCollected):
        store.read("x", since=3)


def test_time_travel_for_as_long_as_was_said(opened: Opener, clock: TestClock) -> None:
    kept = nova.Channel("kept", merge=nova.Upsert(key="k"), schema=DDL, retain="1d")
    store = opened(nova.Project([], channels=[kept]))
    for n in range(4):
        store.insert("kept", [row(1, n)])
        clock.advance(10 * 3600)
    store.compact("kept")
    store.collect_garbage("kept")
    # A day ago it was at 2: that and what came later can be read, what was before cannot.
    assert [rows_of(store.read("kept", at=n)) for n in (2, 3, 4)] == [{1: 1}, {1: 2}, {1: 3}]
    assert rows_of(store.read("kept", since=2)) == {1: 3}
    assert store.collect_garbage("kept", retain="1s").blocks
    with pytest.raises(nova.BlockCollected):
        store.read("kept", at=2)


def test_r19_a_version_is_restored_by_a_base_and_consumers_are_told(opened: Opener) -> None:
    store = three_deltas_and_a_cursor_at_two(opened)
    done = store.restore("source", 1)
    assert done.seq == 4 and rows_of(store.read("source")) == {1: 1, 2: 2}
    assert {b.origin for b in done.blocks} == {"restore"}
    store.run("dedup")
    assert rows_of(store.read("copy")) == {1: 1, 2: 2}
    assert rows_of(store.read("source", at=3)) == {2: 20, 3: 3}, "what happened is not taken back"
    with pytest.raises(nova.VersionNotFound):
        store.restore("source", 9)

    bag = nova.Channel("bag", schema=DDL)
    store.register(bag)
    store.insert("bag", [row(1, 1)])
    store.insert("bag", [row(2, 2)])
    assert store.restore("bag", 1).seq == 3, "nobody consumes it"


def test_what_is_written_on_for_a_process_that_is_gone_is_swept_again(opened: Opener, clock: TestClock) -> None:
    store = opened(bound(take))
    store.insert("source", [row(1, 1)])
    execution = store.runtime.begin("dedup")
    store.runtime.run_task(execution, "take")
    [staged] = store.catalog.staging.of(execution.id)
    folder = Path(store.settings.warehouse) / staged.folder
    clock.advance(1000)
    assert store.runtime.delete_dead_staging() == 1 and not folder.exists()
    folder.mkdir()
    (folder / "part-1").write_text("Spark had not heard that its client was gone")
    assert store.runtime.delete_dead_staging() == 0, "it may write still"
    clock.advance(1000)
    assert store.runtime.delete_dead_staging() == 1 and not folder.exists()
    clock.advance(1000)
    assert store.runtime.delete_dead_staging() == 0


@pytest.mark.parametrize("by_task", [False, True], ids=["inserted", "by a task"])
def test_r15_a_base_that_nobody_expected_tells_who_cannot_compare(opened: Opener, by_task: bool) -> None:
    """What the consumer had read was collected; then a binding is registered that may give the channel a base."""
    store = three_deltas_and_a_cursor_at_two(opened)
    store.insert("source", [row(5, 5)])
    store.compact("source")
    store.collect_garbage("source")
    wanted = nova.Channel("wanted", merge=nova.Upsert(key="k"), schema=DDL)

    @nova.task(consumes=nova.all(wanted), produces=nova.base(source))
    def rebuild(wanted: list[Row]) -> list[Row]:
        return wanted

    other = opened(nova.Project([nova.bind(nova.Workflowette("rebuild", [rebuild]))]))
    other.register(other.project)
    assert store.catalog.definitions.channel("source").may_get_base
    if by_task:
        other.insert("wanted", [row(8, 8)])
        other.run("rebuild")
    else:
        store.insert("source", [row(8, 8)], kind="base")
    store.run("dedup")
    assert rows_of(store.read("copy")) == {8: 8} == rows_of(store.read("source"))
    assert ranges(store)[-2:] == ["B5", "Δ(4→5)"]
