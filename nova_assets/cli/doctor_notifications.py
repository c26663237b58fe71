"""Check of ``nova doctor``: notifiers, their secrets, and the notifications that could not be delivered."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from nova_assets.cli.deployment import read_catalog_version
from nova_assets.cli.doctor_checks import Finding
from nova_assets.model.notification import NotifierStatus, QueuedNotification
from nova_assets.model.notify_settings import NotifierConfig, parse_notify_settings
from nova_assets.nova_error import NovaError
from nova_assets.settings import Settings

_MAX_LISTED = 5
_SILENCE = timedelta(minutes=10)
"""Time after which a notifier that no process serves deserves attention."""


def check_notifications(settings: Settings) -> Iterator[Finding]:
    """Each notifier of the settings and of the catalog. Delivers nothing."""
    if not settings.notify:
        return
    configs = {c.name: c for c in parse_notify_settings(settings.notify).notifiers}
    statuses, undeliverable, now = _read_catalog(settings)
    for name in (*configs, *sorted(set(statuses) - set(configs))):
        given_up = [q for q in undeliverable if q.notifier == name]
        yield _check_notifier(settings, name, configs.get(name), statuses.get(name), given_up, now)


def _check_notifier(
    settings: Settings,
    name: str,
    config: NotifierConfig | None,
    status: NotifierStatus | None,
    given_up: list[QueuedNotification],
    now: datetime | None,
) -> Finding:
    finding, details = f"notifier {name}", _details(status, given_up)
    if config is not None and (error := _opening_error(config, settings)) is not None:
        return Finding(finding, "wrong", error, f"then: nova notify --test {name}", details)
    kind = "not configured here" if config is None else config.kind
    counts = f"{kind}, {details['waiting']} waiting, {details['undeliverable']} undeliverable"
    counts += f", {details['dropped']} dropped so far" if details["dropped"] else ""
    if status is not None and status.undeliverable:
        lines = [f"{q.notification.title}: {q.error}" for q in given_up[:_MAX_LISTED]]
        more = status.undeliverable - len(lines)
        lines += [f"and {more} more: nova notify --dry-run"] if more else []
        advice = f"nova notify --test {name}, then nova notify --retry"
        return Finding(finding, "warning", "\n".join([counts, *lines]), advice, details)
    if status is None or now is None:
        advice = "start a deliverer: nova notify --follow, nova serve, or the Dagster sensor nova_notify_sensor"
        return Finding(finding, "warning", f"{kind}, no process has delivered to it yet", advice, details)
    if now - status.seen_at > _SILENCE:
        advice = "start nova notify --follow or Dagster; a notifier that is not needed: nova notify --forget " + name
        message = f"{counts}; no process has served it since {status.seen_at:%Y-%m-%d %H:%M:%S} UTC"
        return Finding(finding, "warning", message, advice, details)
    return Finding(finding, "ok", counts, None, details)


def _details(status: NotifierStatus | None, given_up: list[QueuedNotification]) -> dict[str, Any]:
    return {
        "waiting": 0 if status is None else status.waiting,
        "undeliverable": 0 if status is None else status.undeliverable,
        "dropped": 0 if status is None else status.dropped,
        "seen_at": None if status is None else status.seen_at.isoformat(),
        "given_up": [{"text": q.notification.title, "error": q.error} for q in given_up[:_MAX_LISTED]],
    }


def _opening_error(config: NotifierConfig, settings: Settings) -> str | None:
    """Why the notifier cannot be opened, such as a missing secret; None if it can."""
    from nova_assets.notify.open_notifier import open_notifier

    try:
        open_notifier(config, settings.root)
    except NovaError as error:
        parts = [error.what, *(f"{n}: {v}" for n, v in (("found", error.found), ("expected", error.expected)) if v)]
        return "\n".join(parts)
    return None


def _read_catalog(settings: Settings) -> tuple[dict[str, NotifierStatus], list[QueuedNotification], datetime | None]:
    """Notifiers and undeliverable notifications of the catalog, if there is one of the current version."""
    from nova_assets.catalog import schema_version
    from nova_assets.catalog.catalog import open_catalog

    if read_catalog_version(settings.catalog) != schema_version.HEAD:
        return {}, [], None
    with contextlib.closing(open_catalog(settings.catalog)) as catalog:
        statuses = {s.name: s for s in catalog.notifiers()}
        return statuses, catalog.queued_notifications(undeliverable=True), catalog.now()
