"""Firings, counts of executions, and claims of code locations."""

from __future__ import annotations

import threading
import uuid
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest

import nova_assets as nova
from nova_assets.catalog.catalog import Catalog
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.model.block import Manifest, StagedBlock
from nova_assets.model.commit import CommitRequest
from nova_assets.model.execution import BeginRequest, Execution
from nova_assets_tests.catalog.commit_requests import SCHEMA, begin_execution, build_commit_request, channel


def test_firings_are_compare_and_set(catalog: Catalog) -> None:
    first = catalog.firings.record("b", 0, {"on_data(c)": 1})
    assert first is not None and first.run_key == "b#1#1"
    assert catalog.firings.record("b", 0, {}) is None, "another made it"
    assert catalog.firings.record("b", 1, {}) is None, "the last is still under way"
    again = catalog.firings.retry(first.id, 1)
    assert again is not None and again.run_key == "b#1#2" and catalog.firings.retry(first.id, 1) is None
    catalog.firings.end(first.id, "committed")
    second = catalog.firings.record("b", 1, {"on_data(c)": 2})
    assert second is not None and second.n == 2


def test_a_firing_keeps_why_it_fired_and_how_it_ended(catalog: Catalog) -> None:
    first = catalog.firings.record("b", 0, {}, why="c is at 1")
    assert first is not None and catalog.firings.get(first.id) == first and first.why == "c is at 1"
    assert catalog.firings.partitions_with_open_firing("b") == {""} and catalog.firings.get("nobody") is None
    catalog.firings.end(first.id, "abandoned", "3 runs failed")
    catalog.firings.end(first.id, "committed")
    ended = catalog.firings.get(first.id)
    assert ended is not None and (ended.state, ended.why) == ("abandoned", "3 runs failed")
    assert catalog.firings.partitions_with_open_firing("b") == frozenset()


def test_a_firing_is_retried_whatever_else_has_fired(catalog: Catalog) -> None:
    first, other = (catalog.firings.record(name, 0, {}) for name in ("b", "other"))
    assert first is not None and other is not None
    again = catalog.firings.retry(first.id, 1)
    assert again is not None and (again.id, again.attempt) == (first.id, 2) and catalog.firings.get(other.id) == other


def test_the_executions_of_a_firing_say_how_often_they_failed(catalog: Catalog) -> None:
    catalog.definitions.register([channel])
    first = catalog.firings.record("b", 0, {})
    assert first is not None and catalog.firings.executions_of(first) == ()

    def begin(firing_id: str | None = first.id) -> Execution:
        request = BeginRequest(uuid.uuid4().hex, "b", ("c",), firing_id=firing_id, run_id="r")
        return catalog.executions.begin(request)

    planned_again = begin()
    catalog.executions.abort(planned_again.id, "a conflict", counts_as_failure=False)
    by_hand = begin(None)
    catalog.executions.fail(by_hand.id, by_hand.epoch, "no")
    failing = begin()
    catalog.executions.fail(failing.id, failing.epoch, "no")
    running = begin()
    found = {r.id: (r.state, r.failures, r.run_id) for r in catalog.firings.executions_of(first)}
    assert found == {planned_again.id: ("failed", 0, "r"), failing.id: ("failed", 1, "r"), running.id: ("open", 0, "r")}


def test_reads_together_see_one_moment(url: str) -> None:
    with closing(open_catalog(url)) as one, closing(open_catalog(url)) as other:

        def read_around_a_write() -> list[object]:
            before = one.read_together(lambda: one.firings.last("b"))
            other.firings.record("b", 0, {})
            return [before, one.firings.last("b")]

        assert one.read_together(read_around_a_write) == [None, None]
        assert one.firings.last("b") is not None
        with pytest.raises(AssertionError, match="nothing is written"):
            one.read_together(lambda: one.firings.record("b", 1, {}))


def test_what_a_task_staged_before_it_ran_again_is_not_published(catalog: Catalog) -> None:
    execution = begin_execution(catalog)
    for port in ("again", "kept"):
        staged = StagedBlock(f"of {port}", execution.id, "c", port, "delta", f"blocks/{port}", execution.epoch)
        catalog.staging.record([staged])
        catalog.staging.record_manifest(staged.id, Manifest((), SCHEMA))
    catalog.staging.drop(execution.id, ["again"])
    assert [b.port for b in catalog.staging.of(execution.id)] == ["kept"]
    ((_, unswept),) = catalog.staging.executions_with_blocks()
    assert [b.port for b in unswept] == ["again", "kept"], "its files are deleted with the execution"


def test_who_was_taken_over_from_can_do_nothing_more_and_nobody_takes_over_from_who_lives(url: str) -> None:
    now = datetime(2024, 1, 1, tzinfo=UTC)
    catalog = open_catalog(url, clock=lambda: now)
    catalog.definitions.register([channel])
    first = catalog.executions.begin(BeginRequest("x", None, pinned_channels=("c",), owner="first", lease_seconds=60))
    with pytest.raises(nova.ExecutionInProgress, match="first"):
        catalog.executions.resume("x", "second", 60)
    assert catalog.executions.get("x").owner == "first"
    now += timedelta(seconds=61)
    second = catalog.executions.resume("x", "second", 60)
    assert (second.owner, second.epoch, second.pins) == ("second", first.epoch + 1, first.pins)
    assert not catalog.executions.renew_lease("x", first.epoch, 60) and catalog.executions.renew_lease(
        "x", second.epoch, 60
    )
    with pytest.raises(nova.CommitConflict, match="no longer live"):
        catalog.commits.commit(build_commit_request(first))
    assert catalog.commits.commit(build_commit_request(second)).seq == 1
    catalog.close()


def test_what_failed_stays_counted_whatever_becomes_of_it(catalog: Catalog) -> None:
    def begin(n: int, lease: float = 60) -> Execution:
        return catalog.executions.begin(BeginRequest(f"x{n}", "b", ("c",), ("c",), owner="o", lease_seconds=lease))

    def counted() -> tuple[int, ...]:
        return tuple(catalog.executions.counts().get(("b", "", s), 0) for s in ("launched", "succeeded", "failed"))

    task = nova.task(name="t", consumes=nova.new(channel))(lambda c: None)
    catalog.definitions.register([channel], [nova.bind(nova.Workflowette("b", [task]))])
    first = begin(1)
    catalog.executions.fail(first.id, first.epoch, "it broke")
    assert counted() == (1, 0, 1)
    again = catalog.executions.resume(first.id, "o", 60)
    catalog.commits.commit(CommitRequest(uuid.uuid4().hex, again.id, again.epoch, "b", ()))
    assert counted() == (1, 1, 1), "it failed once, and then succeeded"
    catalog.executions.abort(begin(2).id, "planned again", counts_as_failure=False)
    assert counted() == (2, 1, 1)
    begin(3, lease=-1)
    begin(4)
    assert counted() == (4, 1, 2), "one whose lease had run out was superseded"


def test_locations_that_claim_at_the_same_time_never_hold_a_channel_together(url: str) -> None:
    start, held = threading.Barrier(3), {}

    def claim(location: str) -> None:
        made = open_catalog(url)
        start.wait()
        held[location] = made.dagster_publishers.claim(location, {f"of_{location}"}, {"a", "b", "c"})
        made.close()

    open_catalog(url).close()
    threads = [threading.Thread(target=claim, args=(name,)) for name in ("x", "y", "z")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ch for of in held.values() for ch in of) == ["a", "b", "c", "of_x", "of_y", "of_z"]


def test_a_location_keeps_a_channel_while_it_renews_its_claim_and_leaves_it_at_once(url: str) -> None:
    now = datetime(2024, 1, 1, tzinfo=UTC)
    catalog = open_catalog(url, clock=lambda: now)
    assert catalog.dagster_publishers.claim("x", (), {"a", "b"}) == {"a", "b"}
    for _ in range(5):
        now += timedelta(minutes=2)
        assert catalog.dagster_publishers.claim("x", (), {"a", "b"}) == {"a", "b"}
        assert catalog.dagster_publishers.claim("y", (), {"a"}) == frozenset(), "the other lives"
    assert catalog.dagster_publishers.claim("x", (), {"b"}) == {"b"}
    assert catalog.dagster_publishers.claim("y", (), {"a"}) == {"a"}
    assert catalog.dagster_publishers.all() == {"a": ("y", False), "b": ("x", False)}
    catalog.close()
