"""Notifications as HTTP requests with JSON.

Not by apprise: its JSON has other fields, no ``Idempotency-Key``, and it tells neither a receiver that is down from one
that refuses, nor for how long the receiver wants a pause.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import httpx

from nova_assets.errors import NotificationFailed, SettingsError
from nova_assets.http_addresses import check_http_address
from nova_assets.masking import get_logger, mask, mask_address
from nova_assets.model.notification import Notification
from nova_assets.notify.notifier_options import NotifierOptions

_HOSTS_WITH_SECRET_PATHS = ("hooks.slack.com", "discord.com", "discordapp.com", "webhook.office.com")
"""Services whose addresses are secrets as a whole."""

_TRANSIENT_STATUSES = frozenset({408, 425, 429})
_MAX_ANSWER_LENGTH = 200


class WebhookNotifier:
    """Posts each notification to an address. A receiver counts an ``Idempotency-Key`` once.

    Args:
        url: address of the receiver.
        token: bearer token, if the receiver wants one.
        timeout: seconds to wait for each part of the answer.
    """

    def __init__(self, name: str, url: str, *, token: str | None, timeout: float) -> None:
        self.name = name
        self.url = url
        self.timeout = timeout
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        get_logger("httpx")  # it logs addresses, which may be secrets; now they are masked

    def deliver(self, notification: Notification) -> None:
        headers = {**self._headers, "Idempotency-Key": notification.id}
        try:
            body = notification.as_json()
            with httpx.stream("POST", self.url, json=body, headers=headers, timeout=self.timeout) as answer:
                if not answer.is_success:
                    raise self._refusal(answer)
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise self._failure(mask(f"{type(error).__name__}: {error}".rstrip(": ")), unavailable=True) from error

    def _refusal(self, answer: httpx.Response) -> NotificationFailed:
        """Error for an answer, with the beginning of its text. An endless answer is not read to its end."""
        beginning = next(answer.iter_bytes(_MAX_ANSWER_LENGTH), b"")
        said = mask(" ".join(beginning.decode("utf-8", "replace").split()))
        return self._failure(
            f"status {answer.status_code}" + (f": {said}" if said else ""),
            unavailable=answer.is_server_error or answer.status_code in _TRANSIENT_STATUSES,
            retry_after=_retry_after_seconds(answer),
        )

    def _failure(self, found: str, *, unavailable: bool, retry_after: float | None = None) -> NotificationFailed:
        return NotificationFailed(
            f"the webhook {self.name} has not accepted a notification",
            found=found,
            next=f"nova notify --test {self.name}",
            unavailable=unavailable,
            retry_after=retry_after,
        )


def open_webhook(options: NotifierOptions) -> WebhookNotifier:
    """Webhook with the options of a notifier. Raises SettingsError."""
    if options.has("format"):
        raise options.error(
            "a webhook posts JSON, and has no format", expected='for Slack: kind = "apprise" with the same address'
        )
    notifier = WebhookNotifier(
        options.name,
        _read_url(options),
        token=options.secret("token") if options.has_secret("token") else None,
        timeout=options.timeout(),
    )
    options.check_all_read()
    return notifier


def _read_url(options: NotifierOptions) -> str:
    """Address of the receiver. It stands in the configuration only if it holds no secret."""
    if not options.has("url"):
        url = options.secret("url")
        try:
            return check_http_address("url", url)
        except SettingsError as error:
            raise options.error("url is no address", "another value, not shown", "https://host/path") from error
    url = check_http_address("url", options.text("url"))
    host = urlsplit(url).hostname or ""
    if mask_address(url) != url or any(host == h or host.endswith(f".{h}") for h in _HOSTS_WITH_SECRET_PATHS):
        raise options.error(
            "url holds a secret, which does not belong into pyproject.toml",
            expected='url_env = "VARIABLE" or url_file = "/run/secrets/NAME"',
        )
    return url


def _retry_after_seconds(answer: httpx.Response) -> float | None:
    """Pause that the receiver asks for; None if it names none, or a date."""
    value = answer.headers.get("Retry-After", "")
    return float(value) if value.isascii() and value.isdigit() else None
