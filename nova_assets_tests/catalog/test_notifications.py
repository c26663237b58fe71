"""The outbox of notifications: it belongs to the transaction of the event, and loses nothing."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

import pytest

from nova_assets.catalog.catalog import SqlCatalog, open_catalog
from nova_assets.errors import CommitConflict, ExecutionNotLive
from nova_assets.model.arrival import Arrival, ArrivalOutcome
from nova_assets.model.commit import CommitRequest
from nova_assets.model.execution import BeginRequest, Execution
from nova_assets.model.notification import NOTIFICATION_EVENTS, Notification, NotifierSubscription
from nova_assets_tests.catalog.commit_requests import channel

ALL = NotifierSubscription("ops", NOTIFICATION_EVENTS)


def begin(catalog: SqlCatalog, binding: str = "b", partition: str = "") -> Execution:
    request = BeginRequest(uuid.uuid4().hex, binding, pinned_channels=("c",), partition=partition, run_id="r1")
    return catalog.begin(request)


def commit(catalog: SqlCatalog, execution: Execution, outcomes: tuple[tuple[str, ArrivalOutcome], ...] = ()) -> None:
    request = CommitRequest(
        uuid.uuid4().hex, execution.id, execution.epoch, execution.binding, (), arrival_outcomes=outcomes
    )
    catalog.commit(request)


def texts(catalog: SqlCatalog) -> list[str]:
    return [q.notification.text for q in catalog.queued_notifications()]


def test_executions_are_notified_in_the_order_of_their_events(catalog: SqlCatalog) -> None:
    catalog.register_notifiers([ALL])
    first = begin(catalog, partition="dt=2024-01-01")
    catalog.fail(first.id, first.epoch, "ValueError: no")
    second = begin(catalog)
    commit(catalog, second)
    assert texts(catalog) == [
        "b dt=2024-01-01 was launched",
        "b dt=2024-01-01 has failed: ValueError: no",
        "b was launched",
        "b has finished",
    ]
    failed = catalog.queued_notifications()[1].notification
    assert (failed.event, failed.binding, failed.partition, failed.run_id) == ("failed", "b", "dt=2024-01-01", "r1")
    assert failed.execution_id == first.id and failed.subject == "binding b"


def test_nobody_is_notified_without_a_notifier_and_each_gets_what_it_wants(catalog: SqlCatalog) -> None:
    begin(catalog, "early")
    catalog.register_notifiers(
        [NotifierSubscription("all", NOTIFICATION_EVENTS), NotifierSubscription("one", ("failed",), ("b",))]
    )
    for binding in ("a", "b"):
        execution = begin(catalog, binding)
        catalog.fail(execution.id, execution.epoch, "no")
    queue = [(q.notifier, q.notification.title) for q in catalog.queued_notifications()]
    assert [t for n, t in queue if n == "one"] == ["b has failed: no"]
    assert [t for n, t in queue if n == "all"] == [
        *("a was launched", "a has failed: no", "b was launched", "b has failed: no")
    ]


def test_an_event_that_is_not_committed_notifies_nobody(catalog: SqlCatalog) -> None:
    catalog.register_notifiers([NotifierSubscription("ops", ("finished",))])
    execution = begin(catalog)
    catalog.abort(execution.id, "no longer needed", counts_as_failure=False)
    with pytest.raises((CommitConflict, ExecutionNotLive)):
        commit(catalog, execution)
    assert texts(catalog) == []


def test_a_failure_is_notified_once_however_it_ends(catalog: SqlCatalog) -> None:
    catalog.register_notifiers([NotifierSubscription("ops", ("failed",))])
    lost, failed, retried, planned = (begin(catalog, n) for n in ("lost", "failed", "retried", "planned"))
    catalog.abort(lost.id, "its run r1 was lost")
    catalog.fail(failed.id, failed.epoch, "no")
    catalog.abort(failed.id, "superseded")  # it was notified when it failed
    catalog.fail(retried.id, retried.epoch, "again", counts_as_failure=False)
    catalog.abort(planned.id, "a channel has changed", counts_as_failure=False)
    assert texts(catalog) == ["lost has failed: its run r1 was lost", "failed has failed: no"]


def test_a_firing_that_is_given_up_is_notified_even_if_no_execution_began(catalog: SqlCatalog) -> None:
    catalog.register_notifiers([NotifierSubscription("ops", ("failed",))])
    firing = catalog.record_firing("b", 0, {})
    assert firing is not None and catalog.retry_firing(firing.id, 1) is not None
    for _ in range(2):
        catalog.end_firing(firing.id, "abandoned", "its run could not start")
    assert texts(catalog) == ["b gave up firing 1 after attempt 2: its run could not start"]


def test_inserts_and_readers_are_not_notified(catalog: SqlCatalog) -> None:
    catalog.register_notifiers([ALL])
    insert = catalog.begin(BeginRequest(uuid.uuid4().hex, None, pinned_channels=("c",)))
    reader = catalog.begin(BeginRequest(uuid.uuid4().hex, "asset", pinned_channels=("c",), purpose="read"))
    catalog.abort(insert.id, "no")
    catalog.abort(reader.id, "no")
    assert texts(catalog) == []


def test_data_that_a_commit_sets_aside_is_notified_with_it(catalog: SqlCatalog) -> None:
    catalog.register_notifiers([NotifierSubscription("ops", ("set_aside",))])
    arrivals = [Arrival(name, "1", 10) for name in ("good.json", "bad.json", "whole.json")]
    catalog.announce_arrivals("c", arrivals)
    outcomes = (
        ArrivalOutcome(arrivals[0], "taken", rows=5),
        ArrivalOutcome(arrivals[1], "taken", rows=1, bad=3, reason="column 'price': dear"),
        ArrivalOutcome(arrivals[2], "refused", bad=1, reason="no JSON"),
    )
    commit(catalog, begin(catalog), tuple(("c", o) for o in outcomes))
    [queued] = catalog.queued_notifications()
    said = "c: 3 records and 1 whole file set aside in c_quarantine\nfor example: column 'price': dear"
    assert queued.notification.text == said and queued.notification.channel == "c"
    assert queued.notification.details["files"] == ["bad.json", "whole.json"]


def test_only_one_process_delivers_to_a_notifier(catalog: SqlCatalog) -> None:
    catalog.register_notifiers([ALL])
    assert catalog.claim_notifier("ops", "one", 60) and catalog.claim_notifier("ops", "one", 60)
    assert not catalog.claim_notifier("ops", "two", 60)
    assert catalog.claim_notifier("ops", "two", 60, dead_owners=["one"])
    catalog.release_notifier("ops", "one")  # it holds nothing any more
    assert not catalog.claim_notifier("ops", "one", 60)
    catalog.release_notifier("ops", "two")
    assert catalog.claim_notifier("ops", "one", 60) and not catalog.claim_notifier("missing", "one", 60)


def test_later_notifications_of_a_subject_wait_for_its_first(catalog: SqlCatalog) -> None:
    catalog.register_notifiers([ALL])
    for binding in ("a", "b", "a"):
        execution = begin(catalog, binding)
        catalog.abort(execution.id, "no")
    first = catalog.first_waiting_notifications("ops")
    assert [q.notification.text for q in first] == ["a was launched", "b was launched"]
    catalog.mark_delivered(first[0])
    catalog.record_failed_delivery(first[1], "no", retry_at=None)
    following = catalog.first_waiting_notifications("ops")
    assert [q.notification.text for q in following] == ["a has failed: no", "b has failed: no"]
    [given_up] = catalog.queued_notifications(undeliverable=True)
    assert (given_up.notification, given_up.attempts, given_up.error) == (first[1].notification, 1, "no")
    assert catalog.retry_notifications() == 1
    assert {q.n for q in catalog.first_waiting_notifications("ops")} == {first[1].n, following[0].n}
    [status] = catalog.notifiers()
    assert (status.waiting, status.undeliverable) == (5, 0)
    assert catalog.forget_notifier("ops") and not catalog.notifiers() and not catalog.queued_notifications()


def test_a_problem_is_notified_once_until_it_ends(catalog: SqlCatalog) -> None:
    catalog.register_notifiers([NotifierSubscription("ops", ("late",))])

    def start() -> bool:
        return catalog.start_problem("late", "b", Notification("late", catalog.now(), "b is late", "b"))

    assert [start(), start()] == [True, False] and list(catalog.open_problems("late")) == ["b"]
    assert [catalog.end_problem("late", "b"), catalog.end_problem("late", "b")] == [True, False]
    catalog.forget_notifier("ops")
    catalog.register_notifiers([NotifierSubscription("ops", ("failed",))])
    assert not start(), "nobody wants to know of it"
    catalog.register_notifiers([NotifierSubscription("ops", ("late",))])
    assert start() and texts(catalog) == ["b is late"]
    assert catalog.open_problems("upkeep_failing") == {}


def test_a_text_that_a_database_cannot_store_does_not_fail_the_event(catalog: SqlCatalog) -> None:
    catalog.register_notifiers([NotifierSubscription("ops", ("failed",))])
    execution = begin(catalog)
    catalog.fail(execution.id, execution.epoch, "zero \x00, half \ud800, password=hunter22x " + "y" * 10_000)
    [text] = texts(catalog)
    assert "zero , half" in text and "hunter22x" not in text and len(text) == 4000


def test_a_notifier_that_nobody_serves_gets_no_more(url: str) -> None:
    now = [datetime(2024, 1, 1, tzinfo=UTC)]
    catalog = open_catalog(url, clock=lambda: now[0])
    catalog.register([channel])
    catalog.register_notifiers([ALL])
    now[0] += timedelta(days=6)
    begin(catalog)
    now[0] += timedelta(days=2)
    begin(catalog, "unheard")
    catalog.register_notifiers([ALL])
    begin(catalog, "heard")
    assert texts(catalog) == ["b was launched", "heard was launched"]
    catalog.close()


def test_the_oldest_notifications_beyond_a_number_are_dropped_and_counted(catalog: SqlCatalog) -> None:
    catalog.register_notifiers([NotifierSubscription("ops", ("failed",)), NotifierSubscription("mail", ("failed",))])
    for name in "abcde":
        execution = begin(catalog, name)
        catalog.fail(execution.id, execution.epoch, "no")
    first = catalog.first_waiting_notifications("ops")[0]
    catalog.record_failed_delivery(first, "no answer", None)
    assert [catalog.drop_oldest_notifications("ops", kept) for kept in (5, 3, 3, 2)] == [0, 2, 0, 1]
    queue = [(q.notifier, q.notification.binding) for q in catalog.queued_notifications()]
    assert [b for n, b in queue if n == "ops"] == ["d", "e"] and len(queue) == 2 + 5
    assert {s.name: (s.waiting, s.undeliverable, s.dropped) for s in catalog.notifiers()} == {
        "ops": (2, 0, 3),
        "mail": (5, 0, 0),
    }
