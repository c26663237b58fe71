"""The outbox of notifications: it belongs to the transaction of the event, and loses nothing."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

import pytest

from nova_assets.catalog.catalog import Catalog
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.errors import CommitConflict, ExecutionNotLive
from nova_assets.model.arrival import Arrival, ArrivalOutcome
from nova_assets.model.commit import CommitRequest
from nova_assets.model.execution import BeginRequest, Execution
from nova_assets.model.notification import NOTIFICATION_EVENTS, Notification, NotifierSubscription
from nova_assets_tests.catalog.commit_requests import channel

ALL = NotifierSubscription("ops", NOTIFICATION_EVENTS)


def begin(catalog: Catalog, binding: str = "b", partition: str = "") -> Execution:
    request = BeginRequest(uuid.uuid4().hex, binding, pinned_channels=("c",), partition=partition, run_id="r1")
    return catalog.executions.begin(request)


def commit(catalog: Catalog, execution: Execution, outcomes: tuple[tuple[str, ArrivalOutcome], ...] = ()) -> None:
    request = CommitRequest(
        uuid.uuid4().hex, execution.id, execution.epoch, execution.binding, (), arrival_outcomes=outcomes
    )
    catalog.commits.commit(request)


def texts(catalog: Catalog) -> list[str]:
    return [q.notification.text for q in catalog.notifications.queued()]


def test_executions_are_notified_in_the_order_of_their_events(catalog: Catalog) -> None:
    catalog.notifications.register_notifiers([ALL])
    first = begin(catalog, partition="dt=2024-01-01")
    catalog.executions.fail(first.id, first.epoch, "ValueError: no")
    second = begin(catalog)
    commit(catalog, second)
    assert texts(catalog) == [
        "b dt=2024-01-01 was launched",
        "b dt=2024-01-01 has failed: ValueError: no",
        "b was launched",
        "b has finished",
    ]
    failed = catalog.notifications.queued()[1].notification
    assert (failed.event, failed.binding, failed.partition, failed.run_id) == ("failed", "b", "dt=2024-01-01", "r1")
    assert failed.execution_id == first.id and failed.subject == "binding b"


def test_nobody_is_notified_without_a_notifier_and_each_gets_what_it_wants(catalog: Catalog) -> None:
    begin(catalog, "early")
    catalog.notifications.register_notifiers(
        [NotifierSubscription("all", NOTIFICATION_EVENTS), NotifierSubscription("one", ("failed",), ("b",))]
    )
    for binding in ("a", "b"):
        execution = begin(catalog, binding)
        catalog.executions.fail(execution.id, execution.epoch, "no")
    queue = [(q.notifier, q.notification.title) for q in catalog.notifications.queued()]
    assert [t for n, t in queue if n == "one"] == ["b has failed: no"]
    assert [t for n, t in queue if n == "all"] == [
        *("a was launched", "a has failed: no", "b was launched", "b has failed: no")
    ]


def test_an_event_that_is_not_committed_notifies_nobody(catalog: Catalog) -> None:
    catalog.notifications.register_notifiers([NotifierSubscription("ops", ("finished",))])
    execution = begin(catalog)
    catalog.executions.abort(execution.id, "no longer needed", counts_as_failure=False)
    with pytest.raises((CommitConflict, ExecutionNotLive)):
        commit(catalog, execution)
    assert texts(catalog) == []


def test_a_failure_is_notified_once_however_it_ends(catalog: Catalog) -> None:
    catalog.notifications.register_notifiers([NotifierSubscription("ops", ("failed",))])
    lost, failed, retried, planned = (begin(catalog, n) for n in ("lost", "failed", "retried", "planned"))
    catalog.executions.abort(lost.id, "its run r1 was lost")
    catalog.executions.fail(failed.id, failed.epoch, "no")
    catalog.executions.abort(failed.id, "superseded")  # it was notified when it failed
    catalog.executions.fail(retried.id, retried.epoch, "again", counts_as_failure=False)
    catalog.executions.abort(planned.id, "a channel has changed", counts_as_failure=False)
    assert texts(catalog) == ["lost has failed: its run r1 was lost", "failed has failed: no"]


def test_a_firing_that_is_given_up_is_notified_even_if_no_execution_began(catalog: Catalog) -> None:
    catalog.notifications.register_notifiers([NotifierSubscription("ops", ("failed",))])
    firing = catalog.firings.record("b", 0, {})
    assert firing is not None and catalog.firings.retry(firing.id, 1) is not None
    for _ in range(2):
        catalog.firings.end(firing.id, "abandoned", "its run could not start")
    assert texts(catalog) == ["b gave up firing 1 after attempt 2: its run could not start"]


def test_inserts_and_readers_are_not_notified(catalog: Catalog) -> None:
    catalog.notifications.register_notifiers([ALL])
    insert = catalog.executions.begin(BeginRequest(uuid.uuid4().hex, None, pinned_channels=("c",)))
    reader = catalog.executions.begin(BeginRequest(uuid.uuid4().hex, "asset", pinned_channels=("c",), purpose="read"))
    catalog.executions.abort(insert.id, "no")
    catalog.executions.abort(reader.id, "no")
    assert texts(catalog) == []


def test_data_that_a_commit_sets_aside_is_notified_with_it(catalog: Catalog) -> None:
    catalog.notifications.register_notifiers([NotifierSubscription("ops", ("set_aside",))])
    arrivals = [Arrival(name, "1", 10) for name in ("good.json", "bad.json", "whole.json")]
    catalog.arrivals.announce("c", arrivals)
    outcomes = (
        ArrivalOutcome(arrivals[0], "taken", rows=5),
        ArrivalOutcome(arrivals[1], "taken", rows=1, bad=3, reason="column 'price': dear"),
        ArrivalOutcome(arrivals[2], "refused", bad=1, reason="no JSON"),
    )
    commit(catalog, begin(catalog), tuple(("c", o) for o in outcomes))
    [queued] = catalog.notifications.queued()
    said = "c: 3 records and 1 whole file set aside in c_quarantine\nfor example: column 'price': dear"
    assert queued.notification.text == said and queued.notification.channel == "c"
    assert queued.notification.details["files"] == ["bad.json", "whole.json"]


def test_only_one_process_delivers_to_a_notifier(catalog: Catalog) -> None:
    catalog.notifications.register_notifiers([ALL])
    assert catalog.notifications.claim_notifier("ops", "one", 60) and catalog.notifications.claim_notifier(
        "ops", "one", 60
    )
    assert not catalog.notifications.claim_notifier("ops", "two", 60)
    assert catalog.notifications.claim_notifier("ops", "two", 60, dead_owners=["one"])
    catalog.notifications.release_notifier("ops", "one")  # it holds nothing any more
    assert not catalog.notifications.claim_notifier("ops", "one", 60)
    catalog.notifications.release_notifier("ops", "two")
    assert catalog.notifications.claim_notifier("ops", "one", 60) and not catalog.notifications.claim_notifier(
        "missing", "one", 60
    )


def test_later_notifications_of_a_subject_wait_for_its_first(catalog: Catalog) -> None:
    catalog.notifications.register_notifiers([ALL])
    for binding in ("a", "b", "a"):
        execution = begin(catalog, binding)
        catalog.executions.abort(execution.id, "no")
    first = catalog.notifications.first_waiting("ops")
    assert [q.notification.text for q in first] == ["a was launched", "b was launched"]
    catalog.notifications.mark_delivered(first[0])
    catalog.notifications.record_failed_delivery(first[1], "no", retry_at=None)
    following = catalog.notifications.first_waiting("ops")
    assert [q.notification.text for q in following] == ["a has failed: no", "b has failed: no"]
    [given_up] = catalog.notifications.queued(undeliverable=True)
    assert (given_up.notification, given_up.attempts, given_up.error) == (first[1].notification, 1, "no")
    assert catalog.notifications.retry() == 1
    assert {q.n for q in catalog.notifications.first_waiting("ops")} == {first[1].n, following[0].n}
    [status] = catalog.notifications.notifiers()
    assert (status.waiting, status.undeliverable) == (5, 0)
    assert (
        catalog.notifications.forget_notifier("ops")
        and not catalog.notifications.notifiers()
        and not catalog.notifications.queued()
    )


def test_a_problem_is_notified_once_until_it_ends(catalog: Catalog) -> None:
    catalog.notifications.register_notifiers([NotifierSubscription("ops", ("late",))])

    def start() -> bool:
        return catalog.notifications.start_problem("late", "b", Notification("late", catalog.now(), "b is late", "b"))

    assert [start(), start()] == [True, False] and list(catalog.notifications.open_problems("late")) == ["b"]
    assert [catalog.notifications.end_problem("late", "b"), catalog.notifications.end_problem("late", "b")] == [
        True,
        False,
    ]
    catalog.notifications.forget_notifier("ops")
    catalog.notifications.register_notifiers([NotifierSubscription("ops", ("failed",))])
    assert not start(), "nobody wants to know of it"
    catalog.notifications.register_notifiers([NotifierSubscription("ops", ("late",))])
    assert start() and texts(catalog) == ["b is late"]
    assert catalog.notifications.open_problems("upkeep_failing") == {}


def test_a_text_that_a_database_cannot_store_does_not_fail_the_event(catalog: Catalog) -> None:
    catalog.notifications.register_notifiers([NotifierSubscription("ops", ("failed",))])
    execution = begin(catalog)
    catalog.executions.fail(execution.id, execution.epoch, "zero \x00, half \ud800, password=hunter22x " + "y" * 10_000)
    [text] = texts(catalog)
    assert "zero , half" in text and "hunter22x" not in text and len(text) == 4000


def test_a_notifier_that_nobody_serves_gets_no_more(url: str) -> None:
    now = [datetime(2024, 1, 1, tzinfo=UTC)]
    catalog = open_catalog(url, clock=lambda: now[0])
    catalog.definitions.register([channel])
    catalog.notifications.register_notifiers([ALL])
    now[0] += timedelta(days=6)
    begin(catalog)
    now[0] += timedelta(days=2)
    begin(catalog, "unheard")
    catalog.notifications.register_notifiers([ALL])
    begin(catalog, "heard")
    assert texts(catalog) == ["b was launched", "heard was launched"]
    catalog.close()


def test_the_oldest_notifications_beyond_a_number_are_dropped_and_counted(catalog: Catalog) -> None:
    catalog.notifications.register_notifiers(
        [NotifierSubscription("ops", ("failed",)), NotifierSubscription("mail", ("failed",))]
    )
    for name in "abcde":
        execution = begin(catalog, name)
        catalog.executions.fail(execution.id, execution.epoch, "no")
    first = catalog.notifications.first_waiting("ops")[0]
    catalog.notifications.record_failed_delivery(first, "no answer", None)
    assert [catalog.notifications.drop_oldest("ops", kept) for kept in (5, 3, 3, 2)] == [0, 2, 0, 1]
    queue = [(q.notifier, q.notification.binding) for q in catalog.notifications.queued()]
    assert [b for n, b in queue if n == "ops"] == ["d", "e"] and len(queue) == 2 + 5
    assert {s.name: (s.waiting, s.undeliverable, s.dropped) for s in catalog.notifications.notifiers()} == {
        "ops": (2, 0, 3),
        "mail": (5, 0, 0),
    }
