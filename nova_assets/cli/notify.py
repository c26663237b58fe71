"""``nova notify``: deliver notifications to webhooks, mail, chats, commands and Python functions."""

from __future__ import annotations

import json
from contextlib import closing, suppress
from typing import Any

import click
from rich.console import Console

from nova_assets.cli.command import CommandResult, NovaCommand, print_to_stderr
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.rendering import format_iso_time, format_time, pluralize, print_table
from nova_assets.model.notification import QueuedNotification
from nova_assets.store.notifications import DeliveryReport

_MAX_LISTED = 1000


@click.command(cls=NovaCommand)
@click.argument("notifier", required=False)
@click.option("--follow", is_flag=True, help="Continue until interrupted, and deliver as soon as something happens.")
@click.option("--test", "is_test", is_flag=True, help="Send a test notification to NOTIFIER, or to all notifiers.")
@click.option("--retry", is_flag=True, help="First make all failed and undeliverable notifications due at once.")
@click.option("--forget", is_flag=True, help="Delete NOTIFIER from the catalog, with its undelivered notifications.")
@click.option(
    "--dry-run", is_flag=True, help="List the undelivered notifications, of NOTIFIER or of all. Change nothing."
)
def notify(
    deployment: Deployment,
    notifier: str | None,
    follow: bool,
    is_test: bool,
    retry: bool,
    forget: bool,
    dry_run: bool,
) -> CommandResult:
    """Deliver the waiting notifications to the notifiers of [tool.nova.notify], once.

    Notifiers get the events that happen after their first delivery pass. Under Dagster, the sensor nova_notify_sensor
    does the same work. Exits with 1 if a delivery fails.

    \b
    JSON: {"delivered", "failed", "given_up", "dropped": NUMBERS, "errors": {NOTIFIER: text}, "busy": [NOTIFIER]}
    With --follow: one such line on standard error per pass, and the totals at the end.
    With --test: {"tested": {NOTIFIER: null or its error}}
    With --forget: {"forgotten": NOTIFIER or null}
    With --dry-run: {"dry_run": true, "notifications": [{"notifier", "id", "event", "at": ISO, "text", "binding",
      "channel", "attempts", "retry_at": ISO or null, "error", "undeliverable"}]}
    """
    if (follow or retry) + is_test + forget > 1 or (dry_run and (follow or retry or is_test)):
        raise click.UsageError("--test, --forget, and delivery with --follow or --retry exclude each other")
    if forget and notifier is None:
        raise click.UsageError("--forget needs the name of a NOTIFIER")
    if notifier is not None and not (is_test or forget or dry_run):
        raise click.UsageError("a NOTIFIER is named only with --test, --forget or --dry-run")
    if dry_run or is_test:
        with deployment.open_read_only() as store:
            if is_test:
                return _test_result(store.test_notifiers(notifier))
            return _queue_result([q for q in store.notifications(_MAX_LISTED) if notifier in (None, q.notifier)])
    with deployment.open() as store:
        if forget and notifier is not None:
            return _forget_result(notifier, store.forget_notifier(notifier))
        if retry:
            store.retry_notifications()
        if not follow:
            return _report_result(store.notify())
        total = DeliveryReport()
        with closing(store.follow_notifications()) as reports, suppress(KeyboardInterrupt):
            for report in reports:
                total += report
                print_to_stderr(json.dumps(_report_json(report)) if deployment.quiet else _format_report(report))
    return _report_result(total)


def _report_result(report: DeliveryReport) -> CommandResult:
    exit_code = 1 if report.errors else 0
    return CommandResult(
        _report_json(report), lambda console: console.print(_format_report(report), soft_wrap=True), exit_code
    )


def _report_json(report: DeliveryReport) -> dict[str, Any]:
    return {
        "delivered": report.delivered,
        "failed": report.failed,
        "given_up": report.given_up,
        "dropped": report.dropped,
        "errors": dict(report.errors),
        "busy": list(report.busy),
    }


def _format_report(report: DeliveryReport) -> str:
    counts = [f"{pluralize(report.delivered, 'notification')} delivered"]
    counts += [f"{report.failed} failed, to be tried again"] if report.failed else []
    counts += [f"{report.given_up} given up"] if report.given_up else []
    counts += [f"the oldest {report.dropped} dropped, since too many wait"] if report.dropped else []
    lines = [", ".join(counts), *(f"{name}: {error}" for name, error in report.errors)]
    return "\n".join([*lines, *(f"{name}: another process delivers to it" for name in report.busy)])


def _test_result(error_by_notifier: dict[str, str | None]) -> CommandResult:
    lines = [f"{name}: {'delivered' if error is None else error}" for name, error in error_by_notifier.items()]
    exit_code = 1 if any(error_by_notifier.values()) else 0
    return CommandResult(
        {"tested": error_by_notifier}, lambda console: console.print("\n".join(lines), soft_wrap=True), exit_code
    )


def _forget_result(notifier: str, existed: bool) -> CommandResult:
    text = f"{notifier} is forgotten" if existed else f"the catalog has no notifier {notifier}"
    return CommandResult(
        {"forgotten": notifier if existed else None}, lambda console: console.print(text, soft_wrap=True)
    )


def _queue_result(queue: list[QueuedNotification]) -> CommandResult:
    def show(console: Console) -> None:
        rows = []
        for q in queue:
            due = "given up" if q.is_undeliverable else "now" if q.retry_at is None else format_time(q.retry_at)
            rows.append((q.notifier, format_time(q.notification.at), q.notification.title, str(q.attempts), due))
        columns = ("notifier", "time (UTC)", "notification", "attempts", "next")
        print_table(console, columns, rows, shorten=("notification",), empty="no notification waits")

    return CommandResult({"dry_run": True, "notifications": [_queued_json(q) for q in queue]}, show)


def _queued_json(queued: QueuedNotification) -> dict[str, Any]:
    shown = {n: v for n, v in queued.notification.as_json().items() if n not in ("execution", "run", "details")}
    return {
        "notifier": queued.notifier,
        **shown,
        "attempts": queued.attempts,
        "retry_at": format_iso_time(queued.retry_at),
        "error": queued.error,
        "undeliverable": queued.is_undeliverable,
    }
