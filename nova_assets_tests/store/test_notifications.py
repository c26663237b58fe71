"""Notifications from an event to a real receiver: at least once, in order, and without holding up a commit."""

from __future__ import annotations

import json
import os
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.model.notification import parse_notify_settings
from nova_assets.store.notify_thread import notifications_in_background
from nova_assets.store.store import Store
from nova_assets_tests.execution.conftest import Opener, TestClock
from nova_assets_tests.notify.receivers import HttpReceiver, http_receiver
from nova_assets_tests.stub_merge import Row

pytestmark = pytest.mark.slow

DDL = "k bigint, v bigint"
source = nova.Channel("source", merge=nova.Upsert(key="k"), schema=DDL)
copies = nova.Channel("copies", merge=nova.Upsert(key="k"), schema=DDL)
others = nova.Channel("others", merge=nova.Upsert(key="k"), schema=DDL)


@nova.task(consumes=nova.new(source), produces=nova.delta(copies))
def copy(source: list[Row]) -> list[Row]:
    if any(r["v"] < 0 for r in source):
        raise ValueError("a negative value")
    return source


@nova.task(consumes=nova.new(source), produces=nova.delta(others))
def also(source: list[Row]) -> list[Row]:
    return source


project = nova.Project([nova.bind(nova.Workflowette(n, [t])) for n, t in (("copy", copy), ("also", also))])


@pytest.fixture
def catalog_url(tmp_path: Path) -> str:
    """One catalog: the tests of the catalog run the outbox over each."""
    return f"sqlite:///{tmp_path}/catalog.db"


@pytest.fixture
def receiver() -> Iterator[HttpReceiver]:
    with http_receiver() as running:
        yield running


@pytest.fixture
def store(opened: Opener, tmp_path: Path, receiver: HttpReceiver) -> Store:
    """A store whose notifier ``ops`` is registered, and wants everything."""
    events = '["launched", "finished", "failed", "late", "upkeep_failing", "publication_failing"]'
    (tmp_path / "pyproject.toml").write_text(
        f"""[tool.nova.notify.late]
lag = 2
freshness = "1h"
[tool.nova.notify.to.ops]
kind = "webhook"
url = "{receiver.url}"
events = {events}
"""
    )
    opened_store = opened(project)
    opened_store.register(project)
    opened_store.notify()
    return opened_store


def insert(store: Store, v: int = 1) -> None:
    store.insert("source", [{"k": 1, "v": v}])


def test_failures_and_successes_arrive_in_their_order(store: Store, receiver: HttpReceiver) -> None:
    insert(store, v=-1)
    with pytest.raises(nova.TaskFailed):
        store.run("copy")
    insert(store)
    store.run("copy")
    assert receiver.bodies == [], "a commit waits for no receiver"
    report = store.notify()
    assert (report.delivered, report.failed, report.errors) == (4, 0, ())
    launched, failed, *rest = receiver.texts
    assert launched == "copy was launched" and failed.startswith("copy has failed: TaskFailed: ")
    assert "a negative value" in failed and rest == ["copy was launched", "copy has finished"]
    assert store.notify().delivered == 0 and store.notifications() == []


def test_a_receiver_that_is_down_is_tried_again_later_and_loses_nothing(
    store: Store, receiver: HttpReceiver, clock: TestClock
) -> None:
    insert(store)
    receiver.statuses = [503, 503]
    for binding in ("copy", "also"):
        store.run(binding)
    first = store.notify()
    assert (first.delivered, first.failed) == (0, 1) and "status 503" in dict(first.errors)["ops"]
    assert store.notify().failed == 1, "the other binding is tried; after that, all of it waits"
    assert store.notify().delivered == 0 and receiver.texts == []
    clock.advance(13)
    assert store.notify().delivered == 4
    by_binding = {b: [x["event"] for x in receiver.bodies if x["binding"] == b] for b in ("copy", "also")}
    assert by_binding == {"copy": ["launched", "finished"], "also": ["launched", "finished"]}


def test_a_refused_notification_holds_up_its_own_binding_only(
    store: Store, receiver: HttpReceiver, clock: TestClock
) -> None:
    insert(store)
    receiver.refused_binding = "copy"
    for binding in ("copy", "also"):
        store.run(binding)
    assert store.notify().delivered == 2 and {b["binding"] for b in receiver.bodies} == {"also"}
    for _ in range(14):
        clock.advance(4400)
        assert store.notify().failed == 1
    assert [q.is_undeliverable for q in store.notifications()] == [False, False]
    clock.advance(4400)
    report = store.notify()  # the first is given up, and the second of its binding is tried
    assert (report.given_up, report.failed) == (1, 1)
    given_up, waiting = store.notifications()
    assert (given_up.is_undeliverable, given_up.attempts) == (True, 16) and "status 400" in (given_up.error or "")
    assert (waiting.notification.event, waiting.attempts) == ("finished", 1)
    receiver.refused_binding = None
    assert store.retry_notifications() == 2 and store.notify().delivered == 2
    assert [b["event"] for b in receiver.bodies if b["binding"] == "copy"] == ["launched", "finished"]


def test_an_unexpected_error_is_a_failed_delivery(
    store: Store, receiver: HttpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nova_assets.notify.webhook import WebhookNotifier

    insert(store)
    store.run("copy")
    with monkeypatch.context() as patch:
        patch.setattr(WebhookNotifier, "deliver", lambda *_: 1 / 0)
        report = store.notify()
    assert report.failed == 1 and "ZeroDivisionError" in dict(report.errors)["ops"]
    store.retry_notifications()
    assert store.notify().delivered == 2


def test_two_processes_do_not_mix_the_order(
    store: Store, opened: Opener, receiver: HttpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert(store)
    store.run("copy")
    other, reports = opened(project), []
    answer = receiver.answer

    def answer_slowly(body: dict[str, Any], headers: dict[str, str]) -> int:
        if not reports:
            reports.append(other.notify())  # while the first delivery is under way
        return answer(body, headers)

    monkeypatch.setattr(receiver, "answer", answer_slowly)
    assert store.notify().delivered == 2
    assert [(r.delivered, r.busy) for r in reports] == [(0, ("ops",))]
    assert [b["event"] for b in receiver.bodies] == ["launched", "finished"]


def test_a_delivery_that_is_not_recorded_is_repeated(
    store: Store, receiver: HttpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert(store)
    store.run("copy")
    with monkeypatch.context() as patch:
        patch.setattr(
            type(store.catalog.notifications), "mark_delivered", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
        )
        with pytest.raises(KeyboardInterrupt):
            store.notify()
    assert store.notify().delivered == 2
    assert [b["event"] for b in receiver.bodies] == ["launched", "launched", "finished"]
    assert receiver.bodies[0]["id"] == receiver.bodies[1]["id"]


def test_a_time_limit_ends_a_pass_between_two_deliveries(store: Store, receiver: HttpReceiver) -> None:
    insert(store)
    store.run("copy")
    assert store.notify(time_limit=0).delivered == 0 and receiver.bodies == []
    assert store.notify(time_limit=60).delivered == 2


@pytest.mark.core
def test_a_thread_delivers_beside_other_work(store: Store, receiver: HttpReceiver) -> None:
    insert(store)
    with notifications_in_background(store, interval=0.02):
        store.run("copy")
        deadline = time.monotonic() + 30
        while len(receiver.bodies) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert [b["event"] for b in receiver.bodies] == ["launched", "finished"]
    store.run("also")
    time.sleep(0.1)
    assert len(receiver.bodies) == 2, "the thread has ended"


def test_a_late_binding_is_notified_once_until_it_has_caught_up(
    store: Store, receiver: HttpReceiver, clock: TestClock
) -> None:
    for n in range(3):
        insert(store, n)
    assert store.notify().delivered == 2
    assert receiver.texts == [f"{b} is late: 3 commits of source are unread, more than 2" for b in ("copy", "also")]
    assert store.notify().delivered == 0
    store.run("copy")
    store.run("also")
    store.notify()
    receiver.bodies.clear()
    insert(store)
    clock.advance(3700)
    assert store.notify().delivered == 2
    assert "data of source has been unread for 37" in receiver.texts[0]


def test_failing_upkeep_is_notified_once_until_it_succeeds(
    store: Store, receiver: HttpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert(store, 1)
    insert(store, 2)

    def fail(*_: object, **__: object) -> None:
        raise OSError("the disk is full, password=hunter22x")

    with monkeypatch.context() as patch:
        patch.setattr(store._compaction, "add_compacted_blocks", fail)
        for _ in range(3):
            with pytest.raises(OSError):
                store.compact("source")
    with pytest.raises(nova.ChannelNotFound):
        store.compact("no_such_channel")
    store.notify()
    [body] = receiver.bodies
    assert body["event"] == "upkeep_failing" and body["channel"] == "source"
    assert body["text"] == "the compaction of source is failing: OSError: the disk is full, password=***"
    assert store.compact("source") is not None and store.catalog.notifications.open_problems("upkeep_failing") == {}


def test_a_failing_publication_is_notified(
    opened: Opener, store: Store, receiver: HttpReceiver, tmp_path: Path
) -> None:
    shown = nova.Channel("shown", schema=DDL, publish=nova.hive("exports/shown"))
    (tmp_path / "exports" / "shown").mkdir(parents=True)
    (tmp_path / "exports" / "shown" / "theirs.txt").write_text("x")
    publishing = opened(nova.Project(channels=[shown]))
    publishing.insert("shown", [{"k": 1, "v": 1}])
    for _ in range(2):
        with pytest.raises(nova.TableTaken):
            publishing.publish("shown")
    store.notify()
    [body] = receiver.bodies
    assert (body["event"], body["channel"]) == ("publication_failing", "shown")
    assert body["text"].startswith("the publication of shown in hive:exports/shown is failing: ")


def test_a_notifier_without_its_secret_keeps_its_notifications(
    store: Store, tmp_path: Path, opened: Opener, receiver: HttpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert(store)
    store.run("copy")
    pyproject = tmp_path / "pyproject.toml"
    working = pyproject.read_text()
    pyproject.write_text(working.replace(f'url = "{receiver.url}"', 'url_env = "NO_SUCH_HOOK"'))
    report = opened(project).notify()
    assert "NO_SUCH_HOOK is empty" in dict(report.errors)["ops"] and report.failed == 0
    monkeypatch.setenv("NO_SUCH_HOOK", receiver.url)
    assert opened(project).notify().delivered == 2


def test_test_notifiers_say_what_is_wrong(store: Store, receiver: HttpReceiver) -> None:
    assert store.test_notifiers() == {"ops": None} and receiver.bodies[0]["event"] == "test"
    receiver.statuses = [404]
    assert "status 404" in (store.test_notifiers("ops")["ops"] or "")
    with pytest.raises(nova.SettingsError, match="did you mean 'ops'"):
        store.test_notifiers("op")


HOOK = "https://chat.example.org/services/T0/0nly-runs-a?sig=0nly-runs-b"
MAIL_PASSWORD = "onlyrunswithletters"


@nova.task(consumes=nova.new(source), produces=nova.delta(copies))
def post(source: list[Row]) -> list[Row]:
    if any(r["v"] < 0 for r in source):
        target = os.environ["HOOK"].removeprefix("https://chat.example.org")
        raise ConnectionError(f"{os.environ['HOOK']}: no answer for url: {target} with {os.environ['HOOK_TOKEN']}")
    return source


@nova.check(nova.new(copies), blocking=False)
def answers(copies: list[Row]) -> bool:
    raise ConnectionError(f"login of {os.environ['MAIL_PASSWORD']} refused")


def test_a_process_that_only_runs_masks_the_secrets_that_the_settings_name(
    opened: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that failed never opened a notifier, so only its settings could tell the secrets."""
    for name, value in (("HOOK", HOOK), ("HOOK_TOKEN", "0nly-runs-c"), ("MAIL_PASSWORD", MAIL_PASSWORD)):
        monkeypatch.setenv(name, value)
    addresses = (
        f"mailtos://nova:{password}@mail.example.org?to=ann@a.org" for password in ("0nly-runs-d", MAIL_PASSWORD)
    )
    monkeypatch.setenv("MAIL", " ".join(addresses))
    (tmp_path / "pyproject.toml").write_text(
        """[tool.nova.notify.to.chat]
kind = "webhook"
url_env = "HOOK"
token_env = "HOOK_TOKEN"
events = ["failed"]
[tool.nova.notify.to.mail]
kind = "apprise"
url_env = "MAIL"
events = ["failed"]
"""
    )
    runs = opened(nova.Project([nova.bind(nova.Workflowette("post", [post], checks=[answers]))]))
    runs.register(runs.project)
    runs.catalog.notifications.register_notifiers(
        [c.subscription for c in parse_notify_settings(runs.settings.notify).notifiers]
    )
    insert(runs)
    [report] = runs.run("post").checks
    insert(runs, v=-1)
    with pytest.raises(nova.TaskFailed) as failed:
        runs.run("post")
    told = "".join(traceback.format_exception(failed.value)) + repr(runs.catalog.executions.find())
    told += json.dumps([report.as_json(), *(q.notification.as_json() for q in runs.notifications())])
    assert told.count("no answer for url: /*** with ***") >= 3 and "login of *** refused" in told
    assert "0nly-runs" not in told and "onlyruns" not in told


def test_a_receiver_that_stays_down_does_not_fill_the_catalog(
    store: Store, receiver: HttpReceiver, clock: TestClock, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    from nova_assets.store import notifications

    monkeypatch.setattr(notifications, "MAX_QUEUED", 4)
    receiver.statuses = [503] * 100
    for n in range(6):
        insert(store, n)
        store.run("copy")
        clock.advance(4000)
        store.notify()
    kept = [q.notification for q in store.notifications()]
    assert [n.event for n in kept] == [
        "launched",
        "finished",
    ] * 2 and "dropped the oldest 2 notifications" in caplog.text
    assert [s.dropped for s in store.catalog.notifications.notifiers()] == [9], (
        "of 12 of copy, and one of the other binding, which is late"
    )
    receiver.statuses.clear()
    clock.advance(4000)
    report = store.notify()
    assert (report.delivered, report.dropped) == (4, 0) and len(receiver.bodies) == 4, "none is dropped that arrives"
