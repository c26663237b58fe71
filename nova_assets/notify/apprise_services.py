"""Notifications by the library apprise: mail, chats, pagers and many other services (decision 0101)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from urllib.parse import urlsplit

from apprise import Apprise, AppriseAsset, AppriseResultStatus, NotifyBase, NotifyFormat, OverflowMode

from nova_assets.errors import NotificationFailed
from nova_assets.masking import get_logger, is_secret_name, mask, remember_whole_secret
from nova_assets.model.notification import Notification
from nova_assets.notify.notifier_options import NotifierOptions

log = get_logger("nova_assets.notify")

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_MAX_TITLE_LENGTH = 200
_MAX_ERROR_LENGTH = 500

_collected: ContextVar[list[str] | None] = ContextVar("collected", default=None)
"""Warnings and exceptions of the delivery in progress. Threads of the library get the context of their call."""


class _FailureFilter(logging.Filter):
    """Drops the library's log records below WARNING, after collecting those that explain a failed delivery.

    Warnings and mentions of an exception are collected, since the library logs the cause of a failure as a detail.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        is_warning, lines = record.levelno >= logging.WARNING, _collected.get()
        if lines is not None and (is_warning or "Exception" in record.getMessage()):
            lines.append(record.getMessage())
        return is_warning


get_logger("urllib3.connectionpool")  # it logs addresses, which are secrets; now they are masked
_library_log = get_logger("apprise")
_library_log.addFilter(_FailureFilter())
_library_log.setLevel(logging.DEBUG)


class AppriseNotifier:
    """Sends each notification as a text with a title to one or several services.

    Args:
        services: services with one target each. So nobody gets a text again because another target has refused it.
        timeout: seconds to wait for all of them.
    """

    def __init__(self, name: str, services: Sequence[NotifyBase], timeout: float) -> None:
        self.name = name
        self.timeout = timeout
        self._apprise = Apprise(list(services))

    def deliver(self, notification: Notification) -> None:
        title = " ".join(f"[nova] {notification.event}: {notification.title}".split())[:_MAX_TITLE_LENGTH]
        lines: list[str] = []
        token = _collected.set(lines)
        try:
            result = self._apprise.notify(
                _compose_body(notification), title, body_format=NotifyFormat.TEXT, timeout=self.timeout
            )
        finally:
            _collected.reset(token)
        if result.status == AppriseResultStatus.SUCCESS:
            return
        found = mask(" ".join(" ".join(lines).split()))[:_MAX_ERROR_LENGTH]
        if result.status == AppriseResultStatus.PARTIAL:  # to send it again would double it for the others
            log.warning("a notification of %s reached only some of its receivers: %s", self.name, found)
            return
        raise NotificationFailed(
            f"the services of {self.name} have not accepted a notification",
            found=found,
            next=f"nova notify --test {self.name}",
            unavailable=True,  # the library does not tell a receiver that is down from one that refuses
        )


def open_apprise(options: NotifierOptions) -> AppriseNotifier:
    """Services with the options of a notifier. Raises SettingsError."""
    timeout = options.timeout()
    services = [_open_service(options, address, timeout) for address in options.secret("url").split()]
    options.check_all_read()
    return AppriseNotifier(options.name, services, timeout)


def _open_service(options: NotifierOptions, address: str, timeout: float) -> NotifyBase:
    asset = AppriseAsset(storage_mode="memory", http_redirects=False)
    service = Apprise.instantiate(address, asset=asset)
    if service is None:
        raise options.error(
            "url holds an address that apprise does not know",
            found="another value, not shown",
            expected="addresses such as mailtos://HOST?to=RECIPIENT, separated by spaces or lines",
        )
    secrets = list(_secrets_of(service))
    for secret in secrets:
        remember_whole_secret(secret)
    if len(service) > 1:
        raise options.error("an address in url has several targets", expected="an address for each target")
    if not service.verify_certificate:
        raise options.error("an address in url turns the check of certificates off", "verify=no")
    if (secrets or service.user) and _is_unencrypted(service, address):
        raise options.error(
            "a password or token needs an encrypted connection", expected="such as mailtos:// or jsons://"
        )
    service.socket_connect_timeout = service.socket_read_timeout = timeout
    service.overflow_mode = OverflowMode.TRUNCATE  # a text that is refused as too long would never arrive
    return service


def _secrets_of(service: NotifyBase) -> Iterator[str]:
    """Passwords and tokens in the address of a service."""
    for name, token in {**service.template_tokens, **service.template_args}.items():
        is_secret = token.get("private") or is_secret_name(name)  # ntfy does not call its token private
        secret = getattr(service, token.get("map_to", name), None) if is_secret else None
        if secret and isinstance(secret, str):
            yield secret
    headers: Mapping[str, str] = getattr(service, "headers", None) or {}
    yield from (value for name, value in headers.items() if value and is_secret_name(name))


def _is_unencrypted(service: NotifyBase, address: str) -> bool:
    """Whether the connection of a service to another machine has no TLS."""
    security = getattr(service, "secure_mode", None)  # of mail; a scheme does not fix it
    protocol: str | tuple[str, ...] | None = service.protocol
    plain_schemes = (protocol,) if isinstance(protocol, str) else protocol or ()
    is_plain = urlsplit(address).scheme.lower() in plain_schemes if security is None else security == "insecure"
    host = getattr(service, "smtp_host", None) or service.host
    return is_plain and host not in _LOOPBACK


def _compose_body(notification: Notification) -> str:
    facts = {n: v for n, v in notification.as_json().items() if v and n not in ("text", "details")}
    return "\n".join([notification.text, "", *(f"{n}: {v}" for n, v in {**facts, **notification.details}.items())])
