"""What a scheduler asks of the catalog, over SQLite and PostgreSQL."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

import nova_assets as nova
from nova_assets.catalog.catalog import Catalog
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.model.block import Kind, Manifest
from nova_assets.model.commit import AddBlock, CommitRequest
from nova_assets.model.execution import BeginRequest, Execution
from nova_assets.model.merge import Append
from nova_assets.model.provenance import ChannelRead
from nova_assets.model.scheduler_state import Backfill, MaterializedPartition, RunningTask
from nova_assets.model.schema import parse_ddl

pytestmark = pytest.mark.slow

NOW = datetime(2022, 4, 1, tzinfo=UTC)
SCHEMA = parse_ddl("n bigint, p string")


@nova.task(consumes=nova.all("a"), produces=nova.base("b"))
def copy(a: object) -> object:
    return a


A, B = (nova.Channel(name, schema=SCHEMA, partitions=[nova.dynamic("p")]) for name in "ab")

BINDING = nova.bind(nova.Workflowette("copy", [copy]), channels={"a": A, "b": B})


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Catalog]:
    sqlite = request.param == "sqlite"
    made = open_catalog(
        f"sqlite:///{tmp_path}/catalog.db" if sqlite else request.getfixturevalue("postgres_catalog_url")
    )
    made.definitions.register([A, B], [BINDING])
    yield made
    made.close()


def begin(catalog: Catalog, binding: str | None = "copy", partition: str = "p=1", lease: float = 60) -> Execution:
    request = BeginRequest(
        uuid.uuid4().hex, binding, ("a", "b"), partition=partition, owner="test", lease_seconds=lease
    )
    return catalog.executions.begin(request)


def commit(catalog: Catalog, execution: Execution, channel: str, *partitions: str, origin: str = "task") -> None:
    kind: Kind = "base"
    publish = tuple(
        AddBlock(uuid.uuid4().hex, channel, kind, Manifest((), SCHEMA), Append(), p, origin)  # type: ignore[arg-type]
        for p in partitions
    )
    reads = (ChannelRead("a", 0, execution.pins["a"].head),) if execution.binding else ()
    catalog.commits.commit(
        CommitRequest(
            uuid.uuid4().hex, execution.id, execution.epoch, execution.binding, added_blocks=publish, reads=reads
        )
    )


def test_partitions_know_what_they_were_made_of(catalog: Catalog) -> None:
    commit(catalog, begin(catalog, None), "a", "p=1", "p=2", origin="insert")
    commit(catalog, begin(catalog), "b", "p=1")
    commit(catalog, begin(catalog, None), "a", "p=2", origin="insert")
    assert catalog.partitions.materialized("a") == {"p=1": MaterializedPartition(1), "p=2": MaterializedPartition(2)}
    assert catalog.partitions.materialized("b") == {"p=1": MaterializedPartition(1, {"a": 1})}
    commit(catalog, begin(catalog, None), "a", "p=1", origin="drop")
    assert catalog.partitions.materialized("a") == {"p=2": MaterializedPartition(2)}


@pytest.mark.core
def test_marks_are_there_until_what_they_mark_is_made(catalog: Catalog) -> None:
    assert catalog.scheduler.mark_dirty("b", ["p=1", "p=2", "p=1"], "backfill-1", "wrong prices") == 2
    assert catalog.scheduler.mark_dirty("b", ["p=2"], "backfill-2") == 0
    assert [(m.partition, m.by, m.why) for m in catalog.scheduler.dirty_partitions()] == [
        ("p=1", "backfill-1", "wrong prices"),
        ("p=2", "backfill-2", ""),
    ]
    commit(catalog, begin(catalog), "b", "p=1")
    assert [m.partition for m in catalog.scheduler.dirty_partitions()] == ["p=2"]
    assert catalog.scheduler.clear_dirty("b") == 1 and catalog.scheduler.dirty_partitions() == []


@pytest.mark.core
def test_a_cancelled_backfill_leaves_a_mark_that_was_there_before(catalog: Catalog) -> None:
    catalog.scheduler.mark_dirty("b", ["p=1"], "", "its query has changed")
    catalog.backfills.start(*asked("one", "p=1", "p=2"))
    catalog.backfills.cancel("one")
    assert [(m.partition, m.why) for m in catalog.scheduler.dirty_partitions()] == [("p=1", "its query has changed")]


@pytest.mark.core
def test_what_is_marked_while_it_is_made_is_made_once_more(catalog: Catalog) -> None:
    execution = begin(catalog)
    catalog.scheduler.mark_dirty("b", ["p=1"])
    commit(catalog, execution, "b", "p=1")
    assert [m.partition for m in catalog.scheduler.dirty_partitions()] == ["p=1"]


@pytest.mark.core
def test_what_runs_and_what_fails(catalog: Catalog) -> None:
    execution = begin(catalog)
    assert catalog.scheduler.running_partitions() == {
        ("copy", "p=1"): RunningTask(execution.owner, execution.lease_until, execution.id)
    }
    catalog.executions.fail(execution.id, execution.epoch, "no")
    begin(catalog, partition="p=2", lease=-1)
    assert catalog.scheduler.running_partitions() == {}
    assert {k: f.consecutive for k, f in catalog.scheduler.failing_partitions().items()} == {("copy", "p=1"): 1}
    again = begin(catalog)
    catalog.executions.fail(again.id, again.epoch, "no")
    assert catalog.scheduler.failing_partitions()["copy", "p=1"].consecutive == 2
    commit(catalog, begin(catalog), "b", "p=1")
    assert catalog.scheduler.failing_partitions() == {}


def asked(id: str, *partitions: str) -> tuple[Backfill, list[tuple[str, str]]]:
    return Backfill(id, "b", NOW, "ada", "wrong prices", "high", ("c",)), [("b", p) for p in partitions]


def states(catalog: Catalog, id: str) -> list[tuple[str, str, int | None]]:
    return [(p.partition, p.state, p.seq) for p in catalog.backfills.parts(id)]


@pytest.mark.core
def test_a_backfill_is_kept_with_what_became_of_each_partition(catalog: Catalog) -> None:
    found = catalog.backfills.start(*asked("one", "p=1", "p=2", "p=3"))
    assert (found.by, found.why, found.priority, found.downstream) == ("ada", "wrong prices", "high", ("c",))
    assert (found.state, found.partition_count) == ("running", 3)
    assert [(m.partition, m.by, m.priority) for m in catalog.scheduler.dirty_partitions()] == [
        (f"p={n}", "one", 1) for n in (1, 2, 3)
    ]

    execution = begin(catalog)
    commit(catalog, execution, "b", "p=1")
    assert states(catalog, "one") == [("p=1", "made", 1), ("p=2", "waiting", None), ("p=3", "waiting", None)]
    assert catalog.backfills.parts("one")[0].execution_id == execution.id

    catalog.backfills.start(*asked("two", "p=2"))
    assert catalog.backfills.cancel("one") == 2
    assert [s for _, s, _ in states(catalog, "one")] == ["made", "cancelled", "cancelled"]
    assert catalog.backfills.cancel("one") == 0
    one, two = sorted(catalog.backfills.find(), key=lambda b: b.id)
    assert (one.state, dict(one.partition_counts)) == ("cancelled", {"made": 1, "cancelled": 2})
    assert (two.state, dict(two.partition_counts)) == ("running", {"waiting": 1})
    assert [m.by for m in catalog.scheduler.dirty_partitions()] == ["two"]

    commit(catalog, begin(catalog, None), "b", "p=2", origin="drop")
    assert states(catalog, "two") == [("p=2", "dropped", None)] and not catalog.scheduler.dirty_partitions()
    assert catalog.backfills.get("two").state == "done"
    with pytest.raises(nova.NovaError, match="there is no backfill 'three'"):
        catalog.backfills.get("three")


@pytest.mark.core
def test_what_a_backfill_made_is_told_from_what_arrived(catalog: Catalog) -> None:
    commit(catalog, begin(catalog), "b", "p=1", "p=2")
    catalog.backfills.start(*asked("one", "p=1"))
    commit(catalog, begin(catalog), "b", "p=1")
    found = catalog.partitions.materialized("b")
    assert (found["p=1"].seq, found["p=1"].last_non_backfill_seq, found["p=1"].has_data_after(1)) == (2, 1, False)
    commit(catalog, begin(catalog), "b", "p=1")
    assert catalog.partitions.materialized("b")["p=1"].has_data_after(2)


@pytest.mark.core
def test_a_mark_that_is_taken_back_by_hand_leaves_no_part_waiting(catalog: Catalog) -> None:
    catalog.backfills.start(*asked("one", "p=1", "p=2"))
    assert catalog.scheduler.clear_dirty("b", ["p=1"]) == 1
    assert [s for _, s, _ in states(catalog, "one")] == ["cancelled", "waiting"]


@pytest.mark.core
def test_what_two_backfills_want_is_made_for_both(catalog: Catalog) -> None:
    catalog.backfills.start(*asked("one", "p=1", "p=2"))
    low = replace(asked("two")[0], priority="low")
    catalog.backfills.start(low, [("b", "p=1"), ("b", "p=2")])
    assert {m.priority for m in catalog.scheduler.dirty_partitions()} == {1}, "the more urgent of the two"
    commit(catalog, begin(catalog), "b", "p=1")
    assert [states(catalog, name)[0][1] for name in ("one", "two")] == ["made", "made"]
    assert catalog.backfills.cancel("two") == 1
    assert [(m.partition, m.by) for m in catalog.scheduler.dirty_partitions()] == [("p=2", "one")]


@pytest.mark.core
def test_who_waits_for_the_same_partition_of_another_dataset_takes_no_mark_over(catalog: Catalog) -> None:
    catalog.backfills.start(*asked("one", "p=1"))
    catalog.backfills.start(replace(asked("two")[0], dataset="a"), [("a", "p=1")])
    assert catalog.backfills.cancel("one") == 1
    assert [(m.channel, m.partition, m.by) for m in catalog.scheduler.dirty_partitions()] == [("a", "p=1", "two")]
    assert states(catalog, "two") == [("p=1", "waiting", None)]


@pytest.mark.core
def test_what_was_made_of_something_marked_stays_marked(catalog: Catalog) -> None:
    catalog.backfills.start(*asked("one", "p=1"))
    execution = begin(catalog)
    publish = (AddBlock(uuid.uuid4().hex, "b", "base", Manifest((), SCHEMA), Append(), "p=1", "task"),)
    given = CommitRequest(
        uuid.uuid4().hex, execution.id, execution.epoch, "copy", added_blocks=publish, keeps_dirty_marks=True
    )
    catalog.commits.commit(given)
    assert [m.partition for m in catalog.scheduler.dirty_partitions()] == ["p=1"] and states(catalog, "one") == [
        ("p=1", "waiting", None)
    ]


@pytest.mark.core
def test_cancelled_while_it_ran_it_is_made_all_the_same(catalog: Catalog) -> None:
    commit(catalog, begin(catalog), "b", "p=1")
    catalog.backfills.start(*asked("one", "p=1"))
    execution = begin(catalog)
    catalog.backfills.cancel("one")
    commit(catalog, execution, "b", "p=1")
    assert states(catalog, "one") == [("p=1", "made", 2)]
    assert not catalog.partitions.materialized("b")["p=1"].has_data_after(1)


@pytest.mark.core
def test_the_first_of_a_partition_has_arrived_whoever_made_it(catalog: Catalog) -> None:
    catalog.backfills.start(*asked("one", "p=1"))
    commit(catalog, begin(catalog), "b", "p=1")
    assert catalog.partitions.materialized("b")["p=1"].has_data_after(0)


@pytest.mark.core
def test_what_was_spent(catalog: Catalog) -> None:
    execution = begin(catalog)
    commit(catalog, execution, "b", "p=1")
    assert catalog.backfills.last_execution_costs(["copy", "other"]).keys() == {("copy", "p=1")}
    assert catalog.backfills.last_execution_costs(["copy"])["copy", "p=1"].seconds >= 0
