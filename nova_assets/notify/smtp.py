"""Notifications by mail."""

from __future__ import annotations

import smtplib
import ssl
from email.message import EmailMessage
from email.utils import format_datetime
from typing import Literal, get_args

from nova_assets.errors import NotificationFailed
from nova_assets.masking import get_logger, mask
from nova_assets.model.notification import Notification
from nova_assets.notify.notifier_options import NotifierOptions

log = get_logger("nova_assets.notify")

Security = Literal["starttls", "tls", "none"]
_PORTS = {"starttls": 587, "tls": 465, "none": 25}
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_MAX_SUBJECT_LENGTH = 200


class SmtpNotifier:
    """Sends each notification as a mail. Its ``Message-ID`` follows from the notification.

    Args:
        credentials: user and password, if the server wants them.
        timeout: seconds to wait for each answer of the server.
    """

    def __init__(
        self,
        name: str,
        host: str,
        port: int,
        security: str,
        sender: str,
        recipients: tuple[str, ...],
        credentials: tuple[str, str] | None,
        timeout: float,
    ) -> None:
        self.name = name
        self.host = host
        self.port = port
        self.security = security
        self.sender = sender
        self.recipients = recipients
        self.timeout = timeout
        self._credentials = credentials

    def deliver(self, notification: Notification) -> None:
        message = self._compose(notification)
        try:
            with self._connect() as server:
                if self.security == "starttls":
                    server.starttls(context=ssl.create_default_context())
                if self._credentials is not None:
                    server.login(*self._credentials)
                refused = server.send_message(message)
        except smtplib.SMTPRecipientsRefused as error:
            raise self._failure(
                error, unavailable=_is_transient([code for code, _ in error.recipients.values()])
            ) from error
        except (smtplib.SMTPSenderRefused, smtplib.SMTPDataError) as error:
            raise self._failure(error, unavailable=_is_transient([error.smtp_code])) from error
        except (smtplib.SMTPException, OSError) as error:
            raise self._failure(error, unavailable=True) from error
        if refused:  # to send the mail again would double it for the others
            log.warning("the mail of %s reached only some of its recipients: %s", self.name, refused)

    def _connect(self) -> smtplib.SMTP:
        if self.security == "tls":
            context = ssl.create_default_context()
            return smtplib.SMTP_SSL(self.host, self.port, timeout=self.timeout, context=context)
        return smtplib.SMTP(self.host, self.port, timeout=self.timeout)

    def _compose(self, notification: Notification) -> EmailMessage:
        message = EmailMessage()
        title = " ".join(f"[nova] {notification.event}: {notification.title}".split())
        message["Subject"] = title[:_MAX_SUBJECT_LENGTH]
        message["From"] = self.sender
        message["To"] = ", ".join(self.recipients)
        message["Date"] = format_datetime(notification.at)
        message["Message-ID"] = f"<{notification.id}@nova.invalid>"
        facts = {n: v for n, v in notification.as_json().items() if v and n not in ("text", "details")}
        lines = [notification.text, "", *(f"{n}: {v}" for n, v in {**facts, **notification.details}.items())]
        message.set_content("\n".join(lines))
        return message

    def _failure(self, error: Exception, *, unavailable: bool) -> NotificationFailed:
        return NotificationFailed(
            f"the mail server of {self.name} has not accepted a notification",
            found=mask(" ".join(f"{type(error).__name__}: {error}".split())[:500]),
            next=f"nova notify --test {self.name}",
            unavailable=unavailable,
        )


def open_smtp(options: NotifierOptions) -> SmtpNotifier:
    """Mail server with the options of a notifier. Raises SettingsError."""
    host = options.text("host")
    security = options.choice("security", get_args(Security), "starttls")
    credentials = None
    if options.has_secret("user") or options.has_secret("password"):
        password = options.secret("password")
        credentials = (options.text("user") if options.has("user") else options.secret("user"), password)
    if credentials is not None and security == "none" and host not in _LOOPBACK:
        raise options.error("a password needs an encrypted connection", 'security = "none"', '"starttls" or "tls"')
    notifier = SmtpNotifier(
        options.name,
        host,
        int(options.number("port", _PORTS[security])),
        security,
        options.text("from"),
        options.texts("to"),
        credentials,
        options.timeout(),
    )
    options.check_all_read()
    return notifier


def _is_transient(codes: list[int]) -> bool:
    return any(400 <= code < 500 for code in codes)
