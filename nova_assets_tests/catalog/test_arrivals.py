"""What the catalog promises of arrivals, over SQLite and PostgreSQL: each is taken once, by the commit that says so."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

import nova_assets as nova
from nova_assets.catalog.catalog import Catalog
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.model.arrival import Arrival, ArrivalCounts, ArrivalOutcome
from nova_assets.model.commit import CommitRequest
from nova_assets.model.execution import BeginRequest

pytestmark = pytest.mark.slow

FILE = Arrival("a/b.json", "10-x", 10, datetime(2024, 1, 1, tzinfo=UTC))
OTHER = Arrival("a/b.json", "11-y", 11)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Catalog]:
    sqlite = request.param == "sqlite"
    made = open_catalog(
        f"sqlite:///{tmp_path}/catalog.db" if sqlite else request.getfixturevalue("postgres_catalog_url")
    )
    made.definitions.register([nova.Channel("c", schema="k bigint"), nova.Channel("d", schema="k bigint")])
    yield made
    made.close()


def taking(catalog: Catalog, *takes: ArrivalOutcome) -> CommitRequest:
    execution = catalog.executions.begin(BeginRequest(uuid.uuid4().hex, None, pinned_channels=("c",), owner="test"))
    publish = tuple(("c", t) for t in takes)
    return CommitRequest(uuid.uuid4().hex, execution.id, execution.epoch, None, (), arrival_outcomes=publish)


@pytest.mark.core
def test_what_is_announced_twice_is_one(catalog: Catalog) -> None:
    assert catalog.arrivals.announce("c", [FILE, FILE, OTHER]) == sorted([FILE, OTHER], key=lambda a: a.key)
    assert catalog.arrivals.announce("c", [replace(FILE, modified=None)]) == []
    assert catalog.arrivals.announce("d", [FILE]) == [FILE], "each channel has its own"
    assert {s.arrival.version for s in catalog.arrivals.waiting("c", 10)} == {"10-x", "11-y"}
    assert [s.arrival for s in catalog.arrivals.waiting("d", 10)] == [FILE]
    assert set(catalog.arrivals.by_path_key("c", [FILE.path_key])) == {FILE.path_key}
    assert len(catalog.arrivals.by_path_key("c", [FILE.path_key])[FILE.path_key]) == 2


def test_it_is_taken_by_one_commit(catalog: Catalog) -> None:
    catalog.arrivals.announce("c", [FILE, OTHER])
    first = taking(catalog, ArrivalOutcome(FILE, "taken", 5, 1))
    second = taking(catalog, ArrivalOutcome(OTHER, "taken", 7), ArrivalOutcome(FILE, "taken", 5))
    catalog.commits.commit(first)
    with pytest.raises(nova.CommitConflict, match=r"'a/b.json' was taken by another commit"):
        catalog.commits.commit(second)
    assert [s.arrival for s in catalog.arrivals.waiting("c", 10)] == [OTHER], "nothing of the second is there"
    (taken,) = catalog.arrivals.find("c", "taken")
    assert (taken.rows, taken.bad, taken.commit_id) == (5, 1, first.id)
    counts = catalog.arrivals.counts("c")
    assert (counts.waiting, counts.taken, counts.waiting_bytes, counts.rows, counts.bad) == (1, 1, 11, 5, 1)
    assert counts.oldest is not None and catalog.arrivals.counts("d") == ArrivalCounts()


@pytest.mark.core
def test_what_was_set_aside_can_wait_again(catalog: Catalog) -> None:
    catalog.arrivals.announce("c", [FILE, OTHER])
    catalog.commits.commit(
        taking(
            catalog, ArrivalOutcome(FILE, "refused", bad=1, reason="it is broken"), ArrivalOutcome(OTHER, "taken", 1)
        )
    )
    assert catalog.arrivals.find("c", "refused")[0].reason == "it is broken"
    with pytest.raises(nova.CommitConflict):
        catalog.commits.commit(taking(catalog, ArrivalOutcome(FILE, "waiting"), ArrivalOutcome(OTHER, "waiting")))
    assert catalog.arrivals.waiting("c", 10) == [], "what was taken stays so"
    catalog.commits.commit(taking(catalog, ArrivalOutcome(FILE, "waiting")))
    assert [(s.arrival, s.reason) for s in catalog.arrivals.waiting("c", 10)] == [(FILE, None)]


def test_many_announce_at_once(catalog: Catalog) -> None:
    found = [Arrival(f"{n}.json", "1", 1) for n in range(1200)]
    with ThreadPoolExecutor(4) as pool:
        new = list(pool.map(lambda _: catalog.arrivals.announce("c", found), range(4)))
    assert sum(map(len, new)) == 1200, "each is new to one of them"
    assert catalog.arrivals.counts("c").waiting == 1200
