"""Late bindings: finds the bindings beyond their bound, and notifies of them once until they have caught up."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime

from nova_assets.execution.runtime import Runtime
from nova_assets.model.channel_state import Cursor
from nova_assets.model.notification import Notification, shorten_text
from nova_assets.model.notify_settings import LatenessBound, NotifySettings
from nova_assets.nova_error import NovaError
from nova_assets.plan.notifications import UnreadInput, changed_lateness, reason_of_lateness
from nova_assets.plan.timeline_chart import cursors_of_unrun_bindings


def notify_of_lateness(runtime: Runtime, settings: NotifySettings) -> list[str]:
    """Notify of the bindings that have become late. Returns their names.

    Examines the bindings of the project. Without a project, it examines all that have a cursor.
    """
    if settings.late == LatenessBound() and not settings.late_by_binding:
        return []
    catalog, now = runtime.catalog, runtime.catalog.now()
    reasons = {
        binding: _reason_of_lateness(runtime, cursors, settings.bound_of(binding), now)
        for binding, cursors in _cursors_by_binding(runtime).items()
    }
    became_late, caught_up = changed_lateness(reasons, catalog.notifications.open_problems("late"))
    for binding, reason in became_late.items():
        text = shorten_text(f"{binding} is late: {reason}")
        catalog.notifications.start_problem("late", binding, Notification("late", now, text, binding))
    for binding in caught_up:
        catalog.notifications.end_problem("late", binding)
    return sorted(became_late)


def _cursors_by_binding(runtime: Runtime) -> dict[str, list[Cursor]]:
    """Cursors of each binding, at 0 for those that have not run."""
    catalog, bindings = runtime.catalog, runtime.project.bindings
    stored = catalog.cursors.find()
    by_binding: dict[str, list[Cursor]] = {b.name: [] for b in bindings}
    for cursor in (*stored, *cursors_of_unrun_bindings(bindings, stored, catalog.scheduler.heads())):
        if cursor.binding in by_binding or not bindings:
            by_binding.setdefault(cursor.binding, []).append(cursor)
    return by_binding


def _reason_of_lateness(runtime: Runtime, cursors: Iterable[Cursor], bound: LatenessBound, now: datetime) -> str | None:
    inputs = []
    for cursor in cursors:
        oldest = None
        if bound.freshness is not None and cursor.lag > 0:
            with suppress(NovaError):  # the channel may have been removed meanwhile
                oldest = runtime.catalog.histories.unread_data(
                    cursor.channel, cursor.seq, cursor.channel_partition
                ).oldest
        inputs.append(UnreadInput(cursor, oldest))
    return reason_of_lateness(inputs, bound, now)
