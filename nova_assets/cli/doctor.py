"""``nova doctor``: check the software, settings and storage of a deployment."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import click
from rich.console import Console

from nova_assets.cli.command import CommandResult, NovaCommand
from nova_assets.cli.deployment import Deployment, check_catalog_exists, read_catalog_version
from nova_assets.cli.doctor_checks import Finding, Status, run_all_checks, run_check
from nova_assets.cli.rendering import pluralize, print_progress
from nova_assets.masking import mask_address
from nova_assets.model.notification import NotifierConfig, NotifierStatus, QueuedNotification, parse_notify_settings
from nova_assets.nova_error import NovaError
from nova_assets.settings import Settings

_STATUS_STYLES: dict[Status, tuple[str, str]] = {
    "ok": ("ok", "green"),
    "warning": ("warning", "yellow"),
    "wrong": ("WRONG", "bold red"),
}


@click.command(cls=NovaCommand, checks_project=False)
@click.option("--spark", "start_spark", is_flag=True, help="Start Spark and run a small job.")
@click.option("--repair", "repair", is_flag=True, help="Find and repair damage in catalog, warehouse and Dagster.")
@click.option("--dry-run", is_flag=True, help="With --repair: list the damage and its repair. Change nothing.")
@click.option("--claim", "claim", is_flag=True, help="Decide that this catalog owns the warehouse, and no copy of it.")
@click.option("--verify", "verify", is_flag=True, help="Compare all bytes of the data files with their digests.")
@click.option(
    "--sample",
    "sample_size",
    type=click.IntRange(min=1),
    help="With --verify: number of files per channel, chosen at random.  [default: all]",
)
def doctor(
    deployment: Deployment,
    start_spark: bool,
    repair: bool,
    dry_run: bool,
    claim: bool,
    verify: bool,
    sample_size: int | None,
) -> CommandResult:
    """Check Python, Java, Spark, Dagster, catalog, warehouse and project. Show their versions, locations and problems.

    Changes nothing. Exits with 1 if a check fails.

    With --repair, the command examines the data: leftovers of dead executions, files that are missing, changed or not
    listed in the catalog, and differences between the commits of the catalog and those in Dagster (of DAGSTER_HOME). It
    explains each damage, repairs it if possible, and otherwise shows the command to type. Other commands and runs may
    continue meanwhile. Exits with 1 if damage remains.

    A catalog that was copied to another place deletes nothing, since the original may need the files. With --claim, a
    person decides: this catalog owns the warehouse. The commits of all other copies fail from then on.

    With --verify, the command reads the data files, or a random sample, and compares all bytes with the digests that
    were recorded when the files were written. Changes nothing. Exits with 1 if a file was altered.

    \b
    JSON: {"status": "ok"|"warning"|"wrong",
           "checks": [{"name", "status", "says", "next" or null, "facts": {...}}]}
    With --repair, or --verify:
          {"dry_run", "whole": whether no damage remains, "remaining": number of damages,
           "counts": {"blocks", "files", "entries", "events"}, "notes": [what was not examined],
           "damages": [{"kind": "staged"|"lapsed"|"file"|"orphan"|"upload"|"unpublished"|"event"|"firing",
             "subject", "what", "means", "cure" or null, "mending", "next" or null, "wrong",
             "concerns": [IDS OR PATHS], "state": "told"|"found"|"mended"|"remains", "says"}]}
    With --claim: {"dry_run", "catalog", "warehouse", "copied_from": PATH or null}
    """
    if dry_run and not (repair or claim):
        raise click.UsageError("--dry-run needs --repair or --claim: nova doctor alone changes nothing")
    if claim and (repair or start_spark or verify):
        raise click.UsageError("--claim excludes --repair, --spark and --verify: run one after the other")
    if repair and start_spark:
        raise click.UsageError("--repair and --spark exclude each other: run one after the other")
    if verify and (repair or start_spark):
        raise click.UsageError("--verify excludes --repair and --spark: run one after the other")
    if sample_size is not None and not verify:
        raise click.UsageError("--sample needs --verify")
    if verify:
        from nova_assets.cli.doctor_repair import verify_files

        return verify_files(deployment, sample_size)
    if claim:
        return claim_warehouse_of_deployment(deployment, dry_run)
    if repair:
        from nova_assets.cli.doctor_repair import repair_deployment

        return repair_deployment(deployment, dry_run)
    if start_spark:
        print_progress("starting Spark", deployment.quiet)
    findings = list(run_all_checks(deployment, start_spark))
    if not any(f.name == "settings" for f in findings):  # such a finding says that they cannot be loaded
        findings += run_check("notify", lambda: check_notifications(deployment.settings))
    worst = max((f.status for f in findings), key=list(_STATUS_STYLES).index)
    data = {"status": worst, "checks": [_finding_json(f) for f in findings]}
    return CommandResult(
        data, lambda console: _show_findings(console, findings), exit_code=1 if worst == "wrong" else 0
    )


def _finding_json(finding: Finding) -> dict[str, Any]:
    return {
        "name": finding.name,
        "status": finding.status,
        "says": finding.message,
        "next": finding.advice,
        "facts": finding.details,
    }


def _show_findings(console: Console, findings: list[Finding]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    for column in range(3):
        table.add_column(no_wrap=column < 2, overflow="fold")
    for f in findings:
        mark, style = _STATUS_STYLES[f.status]
        message = f.message if f.advice is None else f"{f.message}\n→ {f.advice}"
        table.add_row(f.name, Text(mark, style=style), message)
    console.print(table)
    wrong_count = sum(f.status == "wrong" for f in findings)
    warning_count = sum(f.status == "warning" for f in findings)
    if wrong_count:
        console.print(f"\n{wrong_count} wrong, {pluralize(warning_count, 'warning')}")
    else:
        console.print("\nnothing is wrong" + (f", {pluralize(warning_count, 'warning')}" if warning_count else ""))


def claim_warehouse_of_deployment(deployment: Deployment, dry_run: bool) -> CommandResult:
    """Make the catalog of the deployment the only one that may write to its warehouse and delete there."""
    from nova_assets.catalog.open_catalog import open_catalog
    from nova_assets.engine.spark_engine import SparkEngine
    from nova_assets.execution.warehouse_identity import claim_warehouse

    check_catalog_exists(deployment.settings)
    warehouse = deployment.settings.warehouse
    # Not through nova.open(), which refuses a warehouse that another copy has claimed.
    with contextlib.closing(open_catalog(deployment.settings.catalog)) as opened:
        copied_from = opened.identity.copied_from()
        if not dry_run:
            claim_warehouse(opened, SparkEngine(warehouse))
    catalog = mask_address(deployment.settings.catalog)

    def show(console: Console) -> None:
        owns = "would own" if dry_run else "owns"
        source = "" if copied_from is None else f", a copy of {copied_from},"
        console.print(f"{catalog}{source} {owns} the warehouse {warehouse}")
        console.print(f"commits of other copies of this catalog {'would' if dry_run else 'will'} fail")

    data = {"dry_run": dry_run, "catalog": catalog, "warehouse": warehouse, "copied_from": copied_from}
    return CommandResult(data, show)


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
        return Finding("wrong", error, f"then: nova notify --test {name}", details, finding)
    kind = "not configured here" if config is None else config.kind
    counts = f"{kind}, {details['waiting']} waiting, {details['undeliverable']} undeliverable"
    counts += f", {details['dropped']} dropped so far" if details["dropped"] else ""
    if status is not None and status.undeliverable:
        lines = [f"{q.notification.title}: {q.error}" for q in given_up[:_MAX_LISTED]]
        more = status.undeliverable - len(lines)
        lines += [f"and {more} more: nova notify --dry-run"] if more else []
        advice = f"nova notify --test {name}, then nova notify --retry"
        return Finding("warning", "\n".join([counts, *lines]), advice, details, finding)
    if status is None or now is None:
        advice = "start a deliverer: nova notify --follow, nova serve, or the Dagster sensor nova_notify_sensor"
        return Finding("warning", f"{kind}, no process has delivered to it yet", advice, details, finding)
    if now - status.seen_at > _SILENCE:
        advice = "start nova notify --follow or Dagster; a notifier that is not needed: nova notify --forget " + name
        message = f"{counts}; no process has served it since {status.seen_at:%Y-%m-%d %H:%M:%S} UTC"
        return Finding("warning", message, advice, details, finding)
    return Finding("ok", counts, None, details, finding)


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
    from nova_assets.notify.notifier import open_notifier

    try:
        open_notifier(config, settings.root)
    except NovaError as error:
        parts = [error.what, *(f"{n}: {v}" for n, v in (("found", error.found), ("expected", error.expected)) if v)]
        return "\n".join(parts)
    return None


def _read_catalog(settings: Settings) -> tuple[dict[str, NotifierStatus], list[QueuedNotification], datetime | None]:
    """Notifiers and undeliverable notifications of the catalog, if there is one of the current version."""
    from nova_assets.catalog import schema_version
    from nova_assets.catalog.open_catalog import open_catalog

    if read_catalog_version(settings.catalog) != schema_version.HEAD:
        return {}, [], None
    with contextlib.closing(open_catalog(settings.catalog)) as catalog:
        statuses = {s.name: s for s in catalog.notifications.notifiers()}
        return statuses, catalog.notifications.queued(undeliverable=True), catalog.now()
