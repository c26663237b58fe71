"""``nova notify`` and what ``nova doctor`` says about notifications, without starting Spark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.model.execution import BeginRequest
from nova_assets.model.notification import NotifierSubscription
from nova_assets_tests.cli.conftest import CommandOutput, Nova
from nova_assets_tests.notify.receivers import HttpReceiver, http_receiver

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def receiver() -> Iterator[HttpReceiver]:
    with http_receiver() as running:
        yield running


@pytest.fixture(autouse=True)
def project(folder: Path, receiver: HttpReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A project with one notifier, whose address is a secret."""
    monkeypatch.setenv("OPS_HOOK", f"{receiver.url}/sEcr3t-path")
    (folder / "pyproject.toml").write_text('[tool.nova.notify.to.ops]\nkind = "webhook"\nurl_env = "OPS_HOOK"\n')


def fail_binding(folder: Path, name: str = "dedup", reason: str = "ValueError: no price") -> None:
    with closing(open_catalog(f"sqlite:///{folder}/.nova/catalog.db")) as catalog:
        execution = catalog.executions.begin(BeginRequest(uuid.uuid4().hex, name, pinned_channels=()))
        catalog.executions.fail(execution.id, execution.epoch, reason)


def findings(output: CommandOutput) -> list[Any]:
    return [c for c in output.json["checks"] if c["name"].startswith("notif")]


def test_what_fails_is_delivered_once(nova: Nova, folder: Path, receiver: HttpReceiver) -> None:
    assert nova("notify").out == "0 notifications delivered\n"
    fail_binding(folder)
    shown = nova("notify", "--dry-run", "--json").json["notifications"]
    assert [(q["notifier"], q["event"], q["binding"], q["undeliverable"]) for q in shown] == [
        ("ops", "failed", "dedup", False)
    ]
    assert "dedup has failed" in nova("notify", "--dry-run").out and receiver.bodies == []
    assert nova("notify", "--json").json == {
        **{"delivered": 1, "failed": 0, "given_up": 0, "dropped": 0},
        **{"errors": {}, "busy": []},
    }
    assert receiver.texts == ["dedup has failed: ValueError: no price"]
    assert nova("notify", "--dry-run").out == "no notification waits\n"


def test_records_that_are_set_aside_are_notified(
    nova: Nova, folder: Path, receiver: HttpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "landing").mkdir()
    (folder / "arriving_notified.py").write_text(
        "import nova_assets as nova\n"
        "source = nova.files('landing', format='json', min_age='1s')\n"
        "project = nova.Project(channels=[nova.Channel('orders', schema='id bigint', source=source)])\n"
    )
    monkeypatch.setenv("NOVA_PROJECT", "arriving_notified:project")
    (folder / "landing" / "a.json").write_text('{"id": 1}\n{"id": "one"}\n')
    os.utime(folder / "landing" / "a.json", (1e9, 1e9))
    nova("notify")
    assert nova("receive", "orders").code == 0 and receiver.bodies == []
    assert nova("notify").out == "1 notification delivered\n"
    [body] = receiver.bodies
    assert (body["event"], body["channel"], body["details"]["files"]) == ("set_aside", "orders", ["a.json"])
    reason = "line 2: column 'id': 'one' is no bigint"
    assert body["text"] == f"orders: 1 record set aside in orders_quarantine\nfor example: {reason}"


def test_a_dry_run_makes_no_catalog(nova: Nova, folder: Path) -> None:
    assert nova("notify", "--dry-run").out == "no notification waits\n" and not (folder / ".nova").exists()


def test_a_failing_delivery_exits_with_1_and_is_repeated_on_request(
    nova: Nova, folder: Path, receiver: HttpReceiver
) -> None:
    nova("notify")
    fail_binding(folder)
    receiver.statuses = [500]
    output = nova("notify")
    assert output.code == 1 and "0 notifications delivered, 1 failed, to be tried again" in output.out
    assert "status 500" in output.out and "sEcr3t" not in output.out
    assert nova("notify").code == 0 and receiver.bodies == [], "it waits"
    assert nova("notify", "--retry").out == "1 notification delivered\n"


def test_a_test_notification_tells_which_notifier_works(nova: Nova, folder: Path, receiver: HttpReceiver) -> None:
    assert nova("notify", "--test").out == "ops: delivered\n" and receiver.bodies[0]["event"] == "test"
    assert not (folder / ".nova").exists()
    receiver.statuses = [404]
    output = nova("notify", "ops", "--test", "--json")
    assert output.code == 1 and "status 404" in output.json["tested"]["ops"]
    assert "did you mean 'ops'" in nova("notify", "op", "--test").err


@pytest.mark.parametrize(
    "arguments",
    [("--follow", "--test"), ("ops",), ("--forget",), ("--retry", "--dry-run"), ("a", "--test", "--forget")],
)
def test_options_that_contradict_each_other_are_refused(nova: Nova, arguments: tuple[str, ...]) -> None:
    assert nova("notify", *arguments).code == 2


@pytest.mark.core
@pytest.mark.slow
def test_the_doctor_lists_what_could_not_be_delivered(
    nova: Nova, folder: Path, receiver: HttpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    nova("init")
    [finding] = findings(nova("doctor", "--json"))
    assert finding["status"] == "warning" and "no process has delivered to it yet" in finding["says"]
    nova("notify")
    [finding] = findings(nova("doctor", "--json"))
    assert (finding["status"], finding["says"]) == ("ok", "webhook, 0 waiting, 0 undeliverable")
    fail_binding(folder)
    with closing(open_catalog(f"sqlite:///{folder}/.nova/catalog.db")) as catalog:
        [queued] = catalog.notifications.queued()
        catalog.notifications.record_failed_delivery(queued, "status 410: the channel is gone", retry_at=None)
        catalog.notifications.register_notifiers([NotifierSubscription("former", ("failed",))])
    ops, former = findings(nova("doctor", "--json"))
    assert ops["status"] == "warning" and ops["next"] == "nova notify --test ops, then nova notify --retry"
    assert "dedup has failed: ValueError: no price: status 410: the channel is gone" in ops["says"]
    assert former["says"] == "not configured here, 0 waiting, 0 undeliverable"
    assert nova("notify", "former", "--forget", "--dry-run").out == "no notification waits\n"
    assert nova("notify", "former", "--forget").out == "former is forgotten\n"
    monkeypatch.delenv("OPS_HOOK")
    output = nova("doctor", "--json")
    [finding] = findings(output)
    assert output.code == 1 and finding["status"] == "wrong" and "OPS_HOOK is empty" in finding["says"]
    (folder / "pyproject.toml").write_text('[tool.nova.notify.to.ops]\nkind = "pager"\n')
    [finding] = findings(nova("doctor", "--json"))
    assert finding["name"] == "notify" and "has no valid kind" in finding["says"]


@pytest.mark.slow
@pytest.mark.crash
def test_a_process_that_dies_after_a_delivery_delivers_again(
    nova: Nova, nova_forked: Nova, folder: Path, receiver: HttpReceiver
) -> None:
    nova("notify")
    fail_binding(folder, reason="one")
    fail_binding(folder, reason="two")
    killed = nova_forked("notify", NOVA_CRASH_AT="notify.delivered")
    assert killed.code == -signal.SIGKILL and receiver.texts == ["dedup has failed: one"]
    assert nova("notify").out == "2 notifications delivered\n", "the lease of a dead process is not awaited"
    assert receiver.texts == [f"dedup has failed: {n}" for n in ("one", "one", "two")]
    assert receiver.bodies[0]["id"] == receiver.bodies[1]["id"] == receiver.headers[1]["Idempotency-Key"]


@pytest.mark.slow
def test_a_service_delivers_beside_its_other_work(nova: Nova, folder: Path, receiver: HttpReceiver) -> None:
    nova("notify")
    fail_binding(folder)
    command = [sys.executable, "-m", "nova_assets.cli", "serve", "--port", "0"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    with subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 60
        while not receiver.texts and time.monotonic() < deadline:
            time.sleep(0.02)
        process.terminate()
        assert process.wait(60) == 0
    assert receiver.texts == ["dedup has failed: ValueError: no price"] and nova("notify").out[0] == "0"


@pytest.mark.slow
def test_follow_delivers_until_it_is_interrupted(nova: Nova, folder: Path, receiver: HttpReceiver) -> None:
    nova("notify")
    command = [sys.executable, "-m", "nova_assets.cli", "notify", "--follow", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        fail_binding(folder)
        first_pass = process.stderr.readline()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert json.loads(first_pass)["delivered"] == json.loads(out)["delivered"] == 1
    assert receiver.texts == ["dedup has failed: ValueError: no price"]
