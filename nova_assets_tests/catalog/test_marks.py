"""What a scheduler asks of the catalog, over SQLite and PostgreSQL."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import nova_assets as nova
from nova_assets.catalog.catalog import SqlCatalog, open_catalog
from nova_assets.model.block import Kind, Manifest
from nova_assets.model.commit import CommitRequest, Publish
from nova_assets.model.execution import Begin, Execution
from nova_assets.model.mark import Made
from nova_assets.model.merge import Append
from nova_assets.model.schema import parse_ddl

SCHEMA = parse_ddl("n bigint, p string")


@nova.task(consumes=nova.all("a"), produces=nova.base("b"))
def copy(a: object) -> object:
    return a


A, B = (nova.Channel(name, schema=SCHEMA, partitions=[nova.dynamic("p")]) for name in "ab")

BINDING = nova.bind(nova.Workflowette("copy", [copy]), channels={"a": A, "b": B})


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlCatalog]:
    sqlite = request.param == "sqlite"
    made = open_catalog(
        f"sqlite:///{tmp_path}/catalog.db" if sqlite else request.getfixturevalue("postgres_catalog_url")
    )
    made.register([A, B], [BINDING])
    yield made
    made.close()


def begin(catalog: SqlCatalog, binding: str | None = "copy", partition: str = "p=1", lease: float = 60) -> Execution:
    request = Begin(uuid.uuid4().hex, binding, ("a", "b"), partition=partition, owner="test", lease=lease)
    return catalog.begin(request)


def commit(catalog: SqlCatalog, execution: Execution, channel: str, *partitions: str, origin: str = "task") -> None:
    kind: Kind = "base"
    publish = tuple(
        Publish(uuid.uuid4().hex, channel, kind, Manifest((), SCHEMA), Append(), p, origin)  # type: ignore[arg-type]
        for p in partitions
    )
    consumed = {"a": (0, execution.pins["a"].head)} if execution.binding else {}
    catalog.commit(
        CommitRequest(
            uuid.uuid4().hex, execution.id, execution.epoch, execution.binding, publish=publish, consumed=consumed
        )
    )


def test_partitions_know_what_they_were_made_of(catalog: SqlCatalog) -> None:
    commit(catalog, begin(catalog, None), "a", "p=1", "p=2", origin="insert")
    commit(catalog, begin(catalog), "b", "p=1")
    commit(catalog, begin(catalog, None), "a", "p=2", origin="insert")
    assert catalog.made("a") == {"p=1": Made(1), "p=2": Made(2)}
    assert catalog.made("b") == {"p=1": Made(1, {"a": 1})}
    commit(catalog, begin(catalog, None), "a", "p=1", origin="drop")
    assert catalog.made("a") == {"p=2": Made(2)}


def test_marks_are_there_until_what_they_mark_is_made(catalog: SqlCatalog) -> None:
    assert catalog.mark("b", ["p=1", "p=2", "p=1"], "backfill-1", "wrong prices") == 2
    assert catalog.mark("b", ["p=2"], "backfill-2") == 0
    assert [(m.partition, m.by, m.why) for m in catalog.marks()] == [
        ("p=1", "backfill-1", "wrong prices"),
        ("p=2", "backfill-2", ""),
    ]
    commit(catalog, begin(catalog), "b", "p=1")
    assert [m.partition for m in catalog.marks()] == ["p=2"]
    assert catalog.unmark(by="backfill-2") == 1 and catalog.marks() == []


def test_what_is_marked_while_it_is_made_is_made_once_more(catalog: SqlCatalog) -> None:
    execution = begin(catalog)
    catalog.mark("b", ["p=1"])
    commit(catalog, execution, "b", "p=1")
    assert [m.partition for m in catalog.marks()] == ["p=1"]


def test_what_runs_and_what_fails(catalog: SqlCatalog) -> None:
    execution = begin(catalog)
    assert catalog.running() == [("copy", "p=1")]
    catalog.fail(execution.id, execution.epoch, "no")
    begin(catalog, partition="p=2", lease=-1)
    assert catalog.running() == []
    assert {k: f.times for k, f in catalog.failing().items()} == {("copy", "p=1"): 1}
    again = begin(catalog)
    catalog.fail(again.id, again.epoch, "no")
    assert catalog.failing()["copy", "p=1"].times == 2
    commit(catalog, begin(catalog), "b", "p=1")
    assert catalog.failing() == {}
