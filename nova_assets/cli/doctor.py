"""``nova doctor``: check the software, settings and storage of a deployment."""

from __future__ import annotations

from typing import Any

import click
from rich.console import Console

from nova_assets.cli.command import CommandResult, NovaCommand
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.doctor_checks import Finding, Status, run_all_checks, run_check
from nova_assets.cli.doctor_notifications import check_notifications
from nova_assets.cli.rendering import pluralize, print_progress

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
@click.pass_obj
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
        from nova_assets.cli.doctor_claim import claim_warehouse_of_deployment

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
