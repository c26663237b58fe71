"""Each kind of notifier against a real receiver, with secrets that appear nowhere else."""

from __future__ import annotations

import json
import logging
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from nova_assets.errors import NotificationFailed, SettingsError
from nova_assets.model.notification import Notification, parse_notify_settings
from nova_assets.notify.notifier import Notifier, open_notifier
from nova_assets_tests.notify.receivers import HttpReceiver, MailReceiver, http_receiver, mail_receiver

AT = datetime(2024, 1, 1, 12, tzinfo=UTC)
FAILED = Notification("failed", AT, "dedup has failed: a < b & c\nin line 3", binding="dedup", execution_id="e1")


@pytest.fixture
def receiver() -> Iterator[HttpReceiver]:
    with http_receiver() as running:
        yield running


def opened(root: Path, **options: Any) -> Notifier:
    [config] = parse_notify_settings({"to": {"ops": options}}).notifiers
    return open_notifier(config, root)


def test_a_webhook_posts_json_with_a_key_to_count_it_once(receiver: HttpReceiver, tmp_path: Path) -> None:
    opened(tmp_path, kind="webhook", url=receiver.url).deliver(FAILED)
    assert receiver.bodies == [FAILED.as_json()]
    assert receiver.headers[0]["Idempotency-Key"] == FAILED.id


@pytest.mark.parametrize(("status", "unavailable"), [(503, True), (429, True), (404, False), (302, False)])
def test_a_webhook_tells_a_receiver_that_is_down_from_one_that_refuses(
    receiver: HttpReceiver, tmp_path: Path, status: int, unavailable: bool
) -> None:
    receiver.statuses, receiver.retry_after = [status], "17"
    with pytest.raises(NotificationFailed, match=f"status {status}") as failure:
        opened(tmp_path, kind="webhook", url=receiver.url).deliver(FAILED)
    assert failure.value.unavailable is unavailable and failure.value.retry_after == 17


def test_the_address_and_the_token_of_a_webhook_are_secrets(
    receiver: HttpReceiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("HOOK", receiver.url.replace("/hook", "/services/T0/sEcr3t-path"))
    (tmp_path / "token").write_text("t0ken-of-the-hook\n")
    notifier = opened(tmp_path, kind="webhook", url_env="HOOK", token_file="token")
    notifier.deliver(FAILED)
    assert receiver.headers[0]["Authorization"] == "Bearer t0ken-of-the-hook"
    receiver.statuses = [500]
    with pytest.raises(NotificationFailed) as failure:
        notifier.deliver(FAILED)
    monkeypatch.setenv("HOOK", "http://127.0.0.1:1/services/T0/sEcr3t-path")
    with pytest.raises(NotificationFailed, match="ConnectError") as unreachable:
        opened(tmp_path, kind="webhook", url_env="HOOK").deliver(FAILED)
    said = f"{failure.value}{unreachable.value}{caplog.text}"
    assert "HTTP Request: POST" in caplog.text and "sEcr3t-path" not in said and "t0ken-of-the-hook" not in said


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "webhook", "url": "https://hooks.slack.com/services/T0/B0/x"}, "holds a secret"),
        ({"kind": "webhook", "url": "https://ann:hunter22x@host/"}, "holds a secret"),
        ({"kind": "webhook", "url": "https://host/?token=hunter22x"}, "holds a secret"),
        ({"kind": "webhook", "url": "http://host", "token": "hunter22x"}, "does not belong into pyproject"),
        ({"kind": "webhook"}, "url is missing"),
        ({"kind": "webhook", "url_env": "NO_SUCH_VARIABLE"}, "NO_SUCH_VARIABLE is empty"),
        ({"kind": "webhook", "url_file": "no/such/file"}, "cannot be read"),
        ({"kind": "webhook", "url": "http://host", "timeuot": 3}, "did you mean 'timeout'"),
        ({"kind": "webhook", "url": "http://host", "format": "slack"}, 'kind = "apprise"'),
        ({"kind": "apprise", "url": "mailtos://u:hunter22x@h?to=a@b.org"}, "does not belong into pyproject"),
        ({"kind": "apprise"}, "url is missing"),
        ({"kind": "command"}, "command is missing"),
        ({"kind": "python", "function": "nobody_has_this"}, "no installed package has a notifier"),
        ({"kind": "python", "function": "no_such_module:f"}, "cannot be imported"),
    ],
)  # fmt: skip
def test_wrong_options_say_what_is_wrong_and_no_secret(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message) as refused:
        opened(tmp_path, **options)
    assert "hunter22x" not in str(refused.value)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("nosuchservice://hunter22x", "does not know"),
        ("mailto://nova:hunter22x@mail.example.org?to=a@example.org", "needs an encrypted connection"),
        ("mailtos://nova:hunter22x@mail.example.org?to=a@example.org&mode=insecure", "needs an encrypted connection"),
        ("json://nova:hunter22x@example.org/", "needs an encrypted connection"),
        ("json://example.org/?+X-Api-Key=hunter22x", "needs an encrypted connection"),
        ("gotify://example.org/hunter22xhunter22x", "needs an encrypted connection"),
        ("ntfy://tk_hunter22xhunter22xhunter22xhunter@example.org/topic", "needs an encrypted connection"),
        ("jsons://nova:hunter22x@example.org/?verify=no", "check of certificates off"),
        ("mailtos://nova:hunter22x@mail.example.org?to=a@example.org,b@example.org", "several targets"),
    ],
)
def test_addresses_that_would_tell_others_or_repeat_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, message: str
) -> None:
    monkeypatch.setenv("ADDRESS", address)
    with pytest.raises(SettingsError, match=message) as refused:
        opened(tmp_path, kind="apprise", url_env="ADDRESS")
    assert "hunter22x" not in str(refused.value)


def test_the_log_of_the_library_shows_no_secret_of_the_first_address(tmp_path: Path) -> None:
    program = """
import logging, os, sys
from pathlib import Path
logging.basicConfig(level=logging.DEBUG, stream=sys.stdout)
from nova_assets.errors import SettingsError
from nova_assets.notify.apprise_services import open_apprise
from nova_assets.notify.notifier_options import NotifierOptions
for address in ("pover://hunter22xS", "json://127.0.0.1/?+X-Api-Key=hunter22xS"):
    os.environ["ADDRESS"] = address
    try:
        open_apprise(NotifierOptions("a", {"url_env": "ADDRESS"}, Path(".")))
    except SettingsError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert "does not know" in done.stdout and "hunter22x" not in done.stdout + done.stderr, done.stdout


def mail(root: Path, receiver: MailReceiver, *recipients: str, login: str = "", **options: Any) -> Notifier:
    server = f"mailto://{login}127.0.0.1:{receiver.port}?from=nova@example.org"
    (root / "mail").write_text("\n".join(f"{server}&to={recipient}" for recipient in recipients))
    return opened(root, kind="apprise", url_file="mail", **options)


@pytest.mark.filterwarnings("ignore:Requiring AUTH")
def test_a_mail_names_the_event_and_the_facts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with mail_receiver(password="mail-p4ssword") as receiver:
        mail(tmp_path, receiver, "ann@example.org", login="nova:mail-p4ssword@").deliver(FAILED)
        with pytest.raises(NotificationFailed, match=r"(?i)authentication") as failure:
            mail(tmp_path, receiver, "ann@example.org", login="nova:another-p4ssword@").deliver(FAILED)
    [message] = receiver.mails
    assert message["Subject"] == "[nova] failed: dedup has failed: a < b & c" and "ann@example.org" in message["To"]
    body = message.get_body(("plain",)).get_content().replace("\r\n", "\n")  # type: ignore[union-attr]
    assert "a < b & c\nin line 3\n\n" in body and f"id: {FAILED.id}\n" in body and "execution: e1" in body
    assert receiver.logins[0] == ("nova", "mail-p4ssword") and "p4ssword" not in f"{failure.value}{caplog.text}"


def test_a_text_that_reaches_some_is_not_sent_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with mail_receiver() as receiver:
        receiver.refused_recipient = "bob@example.org"
        mail(tmp_path, receiver, "ann@example.org", "bob@example.org").deliver(FAILED)
    assert len(receiver.mails) == 1 and "only some of its receivers" in caplog.text


def test_a_mail_server_that_is_down_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(NotificationFailed, match="Connection refused") as failure:
        mail(tmp_path, MailReceiver(port=1), "ann@example.org").deliver(FAILED)
    assert failure.value.unavailable is True


def test_a_service_that_is_silent_is_given_up(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        notifier = mail(tmp_path, MailReceiver(port=silent.getsockname()[1]), "ann@example.org", timeout=0.5)
        with pytest.raises(NotificationFailed, match=r"did not finish|timed out") as failure:
            notifier.deliver(FAILED)
    assert failure.value.unavailable is True


def test_other_services_are_named_by_their_addresses(receiver: HttpReceiver, tmp_path: Path) -> None:
    (tmp_path / "chat").write_text(receiver.url.replace("http:", "json:"))
    notifier = opened(tmp_path, kind="apprise", url_file="chat")
    notifier.deliver(FAILED)
    [body] = receiver.bodies
    assert body["title"] == "[nova] failed: dedup has failed: a < b & c" and body["message"].startswith(FAILED.text)
    receiver.statuses = [302]
    with pytest.raises(NotificationFailed, match="302"):
        notifier.deliver(FAILED)


def python(code: str) -> list[str]:
    return [sys.executable, "-S", "-c", code]


def test_a_command_gets_the_notification_without_a_shell(tmp_path: Path) -> None:
    code = "import os, sys; open('got', 'w').write(os.environ['NOVA_NOTIFY_EVENT'] + sys.stdin.read())"
    opened(tmp_path, kind="command", command=python(code)).deliver(FAILED)
    got = (tmp_path / "got").read_text()
    assert got.startswith("failed{") and json.loads(got.removeprefix("failed")) == FAILED.as_json()


def test_a_command_that_fails_or_hangs_has_not_delivered(tmp_path: Path) -> None:
    with pytest.raises(NotificationFailed, match="exit code 3: no such pager"):
        code = "import sys; sys.stderr.write('no such pager'); sys.exit(3)"
        opened(tmp_path, kind="command", command=python(code)).deliver(FAILED)
    with pytest.raises(NotificationFailed, match="FileNotFoundError") as failure:
        opened(tmp_path, kind="command", command=["no-such-command"]).deliver(FAILED)
    assert failure.value.unavailable is True
    child = "import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', 'import time; time.sleep(600)'])"
    started = time.monotonic()
    with pytest.raises(NotificationFailed, match="no end within"):
        opened(tmp_path, kind="command", command=python(child), timeout=0.5).deliver(FAILED)
    assert time.monotonic() - started < 30


def test_a_function_is_named_by_an_entry_point_or_its_import_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pager_of_test.py").write_text(
        "got = []\ndef page(notification, team): got.append((team, notification.id))\n"
        "def fail(notification): raise ValueError('no pager')\n"
    )
    info = tmp_path / "pager_of_test-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pager-of-test\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[nova_assets.notifiers]\npager = pager_of_test:page\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    opened(tmp_path, kind="python", function="pager", options={"team": "data"}).deliver(FAILED)
    opened(tmp_path, kind="python", function="pager_of_test:page", options={"team": "ops"}).deliver(FAILED)
    assert sys.modules["pager_of_test"].got == [("data", FAILED.id), ("ops", FAILED.id)]
    with pytest.raises(NotificationFailed, match="ValueError: no pager"):
        opened(tmp_path, kind="python", function="pager_of_test:fail").deliver(FAILED)
