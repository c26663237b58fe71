"""Receivers of notifications for tests: a real HTTP server and a real SMTP server on this machine."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from nova_assets_tests.conftest import missing


@dataclass
class HttpReceiver:
    """Collects the requests that it gets.

    Args:
        statuses: statuses of the next answers; 200 once they are used up.
        refused_binding: binding whose notifications are answered by 503.
    """

    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    retry_after: str | None = None
    refused_binding: str | None = None

    @property
    def texts(self) -> list[str]:
        return [b["text"] for b in self.bodies]

    def answer(self, body: dict[str, Any], headers: dict[str, str]) -> int:
        if self.refused_binding is not None and body.get("binding") == self.refused_binding:
            return 400
        status = self.statuses.pop(0) if self.statuses else 200
        if status == 200:
            self.bodies.append(body)
            self.headers.append(headers)
        return status


@contextmanager
def http_receiver() -> Iterator[HttpReceiver]:
    receiver = HttpReceiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status = receiver.answer(body, dict(self.headers))
            self.send_response(status)
            if receiver.retry_after is not None and status != 200:
                self.send_header("Retry-After", receiver.retry_after)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}/hook"
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass
class MailReceiver:
    """Collects the mails that it gets, and the passwords of the logins."""

    port: int = 0
    mails: list[EmailMessage] = field(default_factory=list)
    logins: list[tuple[str, str]] = field(default_factory=list)
    refused_recipient: str | None = None


@contextmanager
def mail_receiver(password: str | None = None) -> Iterator[MailReceiver]:
    """A mail server. With a password, a mail needs a login."""
    try:
        from aiosmtpd.controller import Controller
        from aiosmtpd.smtp import AuthResult, LoginPassword
    except ModuleNotFoundError:
        missing("no mail server for tests", "pip install aiosmtpd")

    receiver = MailReceiver()

    class Handler:
        async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
            if address == receiver.refused_recipient:
                return "550 no such mailbox"
            envelope.rcpt_tos.append(address)
            return "250 OK"

        async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
            receiver.mails.append(message_from_bytes(envelope.content, EmailMessage, policy=default))
            return "250 OK"

    def authenticate(server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> Any:
        assert isinstance(data, LoginPassword)
        receiver.logins.append((data.login.decode(), data.password.decode()))
        return AuthResult(success=data.password.decode() == password, handled=False)

    options: dict[str, Any] = {}
    if password is not None:
        options = {"authenticator": authenticate, "auth_required": True, "auth_require_tls": False}
    controller = Controller(Handler(), hostname="127.0.0.1", port=_free_port(), **options)
    controller.start()
    receiver.port = controller.port
    try:
        yield receiver
    finally:
        controller.stop()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
