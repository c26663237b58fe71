"""R13 over each catalog: what an execution looks at, and what it does not wait for or run into."""

from __future__ import annotations

from typing import Any

import pytest

import nova_assets as nova
from nova_assets.model.declared_schema import schema_from_declaration
from nova_assets.model.timeline import History
from nova_assets_tests.execution.conftest import Opener
from nova_assets_tests.stub_merge import Row

pytestmark = pytest.mark.slow

DDL = "p string, k bigint, v bigint"
source = nova.Channel("source", schema=DDL, partitions=nova.dynamic("p"))
table = nova.Channel("table", merge=nova.Upsert(key=["p", "k"]), schema=DDL, partitions=nova.dynamic("p"))


def rows(*partitions: str, v: int = 0) -> list[Row]:
    return [{"p": p, "k": 1, "v": v} for p in partitions]


@nova.task(consumes=nova.new(source), produces=nova.delta(table))
def copy(source: list[Row]) -> list[Row]:
    return source


def project(**how: Any) -> nova.Project:
    return nova.Project([nova.bind(nova.Workflowette("w", [copy]), **how)])


def test_a_run_that_touches_three_of_many_partitions_looks_at_three(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(project(partitions=[]))
    store.insert("source", rows(*(f"p{n}" for n in range(500))))
    store.run("w")
    looked: list[int] = []
    history = store.catalog.histories.of

    def watched(*args: Any, **how: Any) -> History:
        found = history(*args, **how)
        looked.append(len(found.blocks))
        return found

    monkeypatch.setattr(store.catalog.histories, "of", watched)
    store.insert("source", rows("p1", "p2", "p3", v=1))
    done = store.run("w")
    assert done.commit is not None and len(done.commit.blocks) == 3
    assert sum(looked) == 3


def test_r6_executions_of_different_partitions_do_not_meet(opened: Opener) -> None:
    @nova.task(consumes=[nova.new(source), nova.all(table)], produces=nova.delta(table))
    def fill(source: list[Row], table: list[Row]) -> list[Row]:
        for other in others:
            store.insert("table", rows(other, v=9))
        others.clear()
        return source

    others = ["b"]
    store = opened(nova.Project([nova.bind(nova.Workflowette("w", [fill]))]))
    store.insert("source", rows("a", "b"))
    first = store.run("w", partition="a")
    assert first.commit is not None and first.commit.numbers == {"table": 2}
    others.append("b")
    second = store.run("w", partition="b")  # the insert into its own partition makes it begin again
    assert second.commit is not None and second.commit.numbers == {"table": 4}
    assert sorted(e.state for e in store.executions("w")) == ["aborted", "committed", "committed"]
    assert [(c.partition, c.channel_partition, c.seq) for c in store.cursors("w")] == [
        ("p=a", "p=a", 1),
        ("p=b", "p=b", 1),
    ]


def test_a_cursor_lags_behind_its_own_partition_alone(opened: Opener) -> None:
    store = opened(project())
    store.insert("source", rows("a", "b"))
    store.run("w", partition="a")
    store.run("w", partition="b")
    store.insert("source", rows("b"))
    store.insert("source", rows("b"))
    assert {c.partition: (c.seq, c.head, c.lag) for c in store.cursors("w")} == {"p=a": (1, 1, 0), "p=b": (1, 3, 2)}


def test_r13_a_binding_reads_whole_or_partition_by_partition(opened: Opener) -> None:
    store = opened(project())
    store.insert("source", rows("a", "b"))
    store.run("w", partition="a")
    with pytest.raises(nova.PartitionError, match=r"has run for single partitions \(such as p=a\), and would read"):
        store.run("w")
    again = opened(project(name="again"))
    done = again.run("again")
    assert done.commit is not None and {b.partition for b in done.commit.blocks} == {"p=a", "p=b"}
    with pytest.raises(nova.PartitionError, match="'again' has run whole"):
        again.run("again", partition="p=b")
    assert {(c.binding, c.partition) for c in store.cursors()} == {("w", "p=a"), ("again", "")}


def test_r13_of_two_first_executions_of_both_kinds_one_wins(opened: Opener) -> None:
    store = opened(project())
    store.insert("source", rows("a", "b"))
    part, whole = store.runtime.begin("w", "p=a"), store.runtime.begin("w")
    for begun in (part, whole):
        store.runtime.run_task(begun, "copy")
    store.runtime.commit(part)
    with pytest.raises(nova.CommitConflict, match="has run meanwhile for p=a"):
        store.runtime.commit(whole)


def test_r13_given_by_the_run_where_no_input_has_the_dimension(opened: Opener) -> None:
    plain = nova.Channel("plain", schema=DDL)

    @nova.task(consumes=nova.new(plain), produces=nova.delta(table))
    def pick(ctx: nova.Context, plain: list[Row]) -> list[Row]:
        return [r for r in plain if f"p={r['p']}" == ctx.partition]

    store = opened(nova.Project([nova.bind(nova.Workflowette("pick", [pick]))]))
    store.insert("plain", rows("a", "b"))
    done = store.run("pick", partition={"p": "a"})
    assert done.commit is not None and [b.partition for b in done.commit.blocks] == ["p=a"]


def test_r6_one_live_execution_per_partition(opened: Opener) -> None:
    store = opened(project(), owner="one")
    store.insert("source", rows("a", "b"))
    store.runtime.begin("w", "p=a")
    store.runtime.begin("w", "p=b")
    with pytest.raises(nova.ExecutionInProgress):
        store.runtime.begin("w", "p=a")


def test_r13_a_base_empties_what_it_leaves_out_and_a_second_one_need_not(opened: Opener) -> None:
    store = opened()
    store.register(table)
    store.insert("table", rows("a", "b"))
    emptied = store.insert("table", rows("a"), kind="base")
    assert {(b.partition, b.rows) for b in emptied.blocks} == {("p=a", 1), ("p=b", 0)}
    again = store.insert("table", rows("a"), kind="base")
    assert [b.partition for b in again.blocks] == ["p=a"]
    store.engine.default = schema_from_declaration(DDL)  # type: ignore[attr-defined]
    nothing = store.insert("table", [], kind="base", partition="c")
    assert [(b.partition, b.kind, b.rows) for b in nothing.blocks] == [("p=c", "base", 0)] and nothing.seq == 4


def test_r18_a_changed_model_takes_effect_by_a_base_of_the_whole_channel(opened: Opener) -> None:
    store = opened()
    store.register(table)
    store.insert("table", rows("a", "b"))
    changed = nova.Channel("table", merge=nova.Append(), schema=DDL, partitions=nova.dynamic("p"))
    store.register(changed, replace=True)
    for how in ({}, {"kind": "base", "partition": "a"}):
        with pytest.raises(nova.ModelChanged, match="merge model of channel 'table' was changed"):
            store.insert("table", rows("a"), **how)  # type: ignore[arg-type]
    assert store.insert("table", rows("a"), kind="base").seq == 2
    assert store.insert("table", rows("b")).seq == 3


@pytest.mark.core
def test_what_is_wrong_with_partitions_is_told_when_definitions_load() -> None:
    day = nova.Channel("day", schema="p date", partitions=nova.daily("p", start="2024-01-01"))
    plain = nova.Channel("plain", schema="p date")

    @nova.task(consumes=nova.new(source), produces=nova.delta(day))
    def mixed(source: Any) -> Any: ...

    @nova.task(consumes=nova.new(source), produces=nova.base(plain))
    def whole(source: Any) -> Any: ...

    with pytest.raises(
        nova.DefinitionError, match="not the same on all its channels: daily on 'day', dynamic on 'source'"
    ):
        nova.Project([nova.bind(nova.Workflowette("w", [mixed]))])
    with pytest.raises(nova.DefinitionError, match="writes bases of channel 'plain', which is not"):
        nova.Project([nova.bind(nova.Workflowette("w", [whole]), partitions=["p"])])
    with pytest.raises(nova.DefinitionError, match="names 'q', which is no partition column"):
        nova.Project([nova.bind(nova.Workflowette("w", [copy]), partitions=["q"])])
    with pytest.raises(nova.DefinitionError, match="daily partition column 'p' is bigint; expected date or string"):
        nova.Channel("x", schema="p bigint", partitions=nova.daily("p", start="2024-01-01"))


def triggered(**how: Any) -> nova.Project:
    return project(when=nova.on_data(source), **how)


def test_r13_a_binding_triggered_per_partition_is_not_run_whole_by_leaving_the_partition_out(opened: Opener) -> None:
    store = opened(triggered())
    store.insert("source", rows("a", "b"))
    for ask in (store.plan, store.run):
        with pytest.raises(nova.PartitionError, match="triggered per partition") as refused:
            ask("w")
        assert refused.value.unread == 2 and "--missing" in str(refused.value) and "--whole" in str(refused.value)
    assert store.cursors() == [] and store.unread("w") == ["p=a", "p=b"]
    for partition in store.unread("w"):
        store.run("w", partition)
    assert store.unread("w") == []


def test_r13_switched_to_partitions_and_back_each_row_is_read_once(opened: Opener) -> None:
    store = opened(triggered(), schema=DDL)
    read: list[int] = []

    def run(*partitions: str | None) -> list[int]:
        done = [store.run("w", p, whole=p is None) for p in partitions]
        return [t.read["source"] or 0 for d in done for t in d.tasks]

    store.insert("source", rows("a", "b"))
    read += run(None)
    store.insert("source", rows("b", "c", v=1))
    with pytest.raises(nova.PartitionError, match="nova switch w --to partitions"):
        store.run("w", "b")
    planned = store.plan_switch("w", "partitions")
    assert {(c.partition, c.seq) for c in planned.after} == {("p=a", 1), ("p=b", 1), ("p=c", 1)}
    assert [c.partition for c in store.cursors()] == [""]  # a dry run
    store.switch("w", "partitions")
    assert store.unread("w") == ["p=b", "p=c"]
    read += run("a", "b", "c")
    assert read == [2, 0, 1, 1]
    store.insert("source", rows("d", v=2))
    with pytest.raises(nova.PartitionError, match="1 partitions have unread data") as refused:
        store.switch("w", "whole")
    assert refused.value.found == "p=d"
    read += run("d")
    store.switch("w", "whole")
    assert [(c.partition, c.seq) for c in store.cursors()] == [("", 3)]
    store.insert("source", rows("a", v=3))
    read += run(None)
    assert sum(read) == 6 and {(r["p"], r["v"]) for r in store.read("table").to_arrow().to_pylist()} == {
        ("a", 3), ("b", 1), ("c", 1), ("d", 2)
    }  # fmt: skip


def test_a_switch_waits_for_no_execution_that_is_alive_and_ends_those_that_failed(opened: Opener) -> None:
    store = opened(triggered(), owner="elsewhere:1")
    store.insert("source", rows("a"))
    store.run("w", whole=True)
    begun = store.runtime.begin("w", whole=True)
    with pytest.raises(nova.ExecutionInProgress):
        store.switch("w", "partitions")
    store.runtime.fail(begun, OSError("the disk is gone"))
    store.switch("w", "partitions")
    with pytest.raises(nova.ExecutionNotLive, match="the cursors were switched"):
        store.run("w", resume=begun.id)
    assert [(c.partition, c.seq) for c in store.cursors()] == [("p=a", 1)]


def test_an_empty_base_of_a_partitioned_channel_has_no_partition(opened: Opener) -> None:
    store = opened(nova.Project(channels=[table]), schema=DDL)
    store.register(table)
    assert store.restore("table", 0).seq == 1, "an empty base takes a number (R1)"
    assert store.partitions("table") == [] and store.read("table").to_arrow().num_rows == 0
    store.insert("table", rows("a"))
    assert [p.partition for p in store.partitions("table")] == ["p=a"]
    whole = nova.Channel("whole", schema=DDL)
    store.register(whole)
    store.restore("whole", 0)
    assert [p.partition for p in store.partitions("whole")] == [""]
