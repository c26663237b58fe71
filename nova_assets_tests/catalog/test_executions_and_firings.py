"""Firings, counts of executions, and claims of code locations."""

from __future__ import annotations

import threading
import uuid

import nova_assets as nova
from nova_assets.catalog.catalog import SqlCatalog, open_catalog
from nova_assets.model.commit import CommitRequest
from nova_assets.model.execution import BeginRequest, Execution
from nova_assets_tests.catalog.commit_requests import channel


def test_firings_are_compare_and_set(catalog: SqlCatalog) -> None:
    first = catalog.record_firing("b", 0, {"on_data(c)": 1})
    assert first is not None and first.run_key == "b#1#1"
    assert catalog.record_firing("b", 0, {}) is None, "another made it"
    assert catalog.record_firing("b", 1, {}) is None, "the last is still under way"
    again = catalog.retry_firing(first.id, 1)
    assert again is not None and again.run_key == "b#1#2" and catalog.retry_firing(first.id, 1) is None
    catalog.end_firing(first.id, "committed")
    second = catalog.record_firing("b", 1, {"on_data(c)": 2})
    assert second is not None and second.n == 2


def test_a_firing_keeps_why_it_fired_and_how_it_ended(catalog: SqlCatalog) -> None:
    first = catalog.record_firing("b", 0, {}, why="c is at 1")
    assert first is not None and catalog.firing(first.id) == first and first.why == "c is at 1"
    assert catalog.partitions_with_open_firing("b") == {""} and catalog.firing("nobody") is None
    catalog.end_firing(first.id, "abandoned", "3 runs failed")
    catalog.end_firing(first.id, "committed")
    ended = catalog.firing(first.id)
    assert ended is not None and (ended.state, ended.why) == ("abandoned", "3 runs failed")
    assert catalog.partitions_with_open_firing("b") == frozenset()


def test_what_failed_stays_counted_whatever_becomes_of_it(catalog: SqlCatalog) -> None:
    def begin(n: int, lease: float = 60) -> Execution:
        return catalog.begin(BeginRequest(f"x{n}", "b", ("c",), ("c",), owner="o", lease_seconds=lease))

    def counted() -> tuple[int, ...]:
        return tuple(catalog.execution_counts().get(("b", "", s), 0) for s in ("launched", "succeeded", "failed"))

    task = nova.task(name="t", consumes=nova.new(channel))(lambda c: None)
    catalog.register([channel], [nova.bind(nova.Workflowette("b", [task]))])
    first = begin(1)
    catalog.fail(first.id, first.epoch, "it broke")
    assert counted() == (1, 0, 1)
    again = catalog.resume(first.id, "o", 60)
    catalog.commit(CommitRequest(uuid.uuid4().hex, again.id, again.epoch, "b", ()))
    assert counted() == (1, 1, 1), "it failed once, and then succeeded"
    catalog.abort(begin(2).id, "planned again", counts_as_failure=False)
    assert counted() == (2, 1, 1)
    begin(3, lease=-1)
    begin(4)
    assert counted() == (4, 1, 2), "one whose lease had run out was superseded"


def test_locations_that_claim_at_the_same_time_never_hold_a_channel_together(url: str) -> None:
    start, held = threading.Barrier(3), {}

    def claim(location: str) -> None:
        made = open_catalog(url)
        start.wait()
        held[location] = made.claim_channels(location, {f"of_{location}"}, {"a", "b", "c"})
        made.close()

    open_catalog(url).close()
    threads = [threading.Thread(target=claim, args=(name,)) for name in ("x", "y", "z")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ch for of in held.values() for ch in of) == ["a", "b", "c", "of_x", "of_y", "of_z"]
