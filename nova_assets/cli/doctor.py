"""``nova doctor``: check the software, settings and storage of a deployment."""

from __future__ import annotations

from typing import Any

import click
from rich.console import Console

from nova_assets.cli.command import CommandResult, NovaCommand
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.doctor_checks import Finding, Status, run_all_checks
from nova_assets.cli.rendering import print_progress

_STATUS_STYLES: dict[Status, tuple[str, str]] = {
    "ok": ("ok", "green"),
    "warning": ("warning", "yellow"),
    "wrong": ("WRONG", "bold red"),
}


@click.command(cls=NovaCommand, checks_project=False)
@click.option("--spark", "start_spark", is_flag=True, help="Really start Spark and run a small job.")
@click.option("--repair", "mend", is_flag=True, help="Examine the data instead, and mend what can be mended.")
@click.option("--dry-run", is_flag=True, help="With --repair: find and explain everything; change nothing.")
@click.option("--verify", "verifies", is_flag=True, help="Compare all bytes of the data files with digests.")
@click.option("--sample", type=click.IntRange(min=1), help="With --verify: only so many files of each channel.")
@click.pass_obj
def doctor(
    deployment: Deployment, start_spark: bool, mend: bool, dry_run: bool, verifies: bool, sample: int | None
) -> CommandResult:
    """Say which Python, Java, Spark, Dagster, catalog, warehouse and project are used, and what is wrong with them.

    Makes and changes nothing. Exits with 1 if something is wrong.

    With --repair it examines the data: what dead executions left, files that are missing, changed, or listed by nobody,
    and where Dagster (of DAGSTER_HOME) shows other commits than the catalog has. It says what each means for answers,
    mends what it can, and says what to type for the rest. It may run beside everything else. Exits with 1 if something
    remains wrong.

    With --verify it reads the data files, or a random sample, and compares all their bytes with the digests that were
    kept when they were written. It changes nothing. Exits with 1 if a file was altered.

    \b
    JSON: {"status": "ok"|"warning"|"wrong",
           "checks": [{"name", "status", "says", "next" or null, "facts": {...}}]}
    With --repair, or --verify:
          {"dry_run", "whole": whether nothing is wrong now, "remaining": how many are,
           "counts": {"blocks", "files", "entries", "events"}, "notes": [what was not looked at],
           "damages": [{"kind": "staged"|"lapsed"|"file"|"orphan"|"upload"|"unpublished"|"event"|"firing",
             "subject", "what", "means", "cure" or null, "mending", "next" or null, "wrong",
             "concerns": [IDS OR PATHS], "state": "told"|"found"|"mended"|"remains", "says"}]}
    """
    if dry_run and not mend:
        raise click.UsageError("--dry-run belongs to --repair: nova doctor alone changes nothing")
    if mend and start_spark:
        raise click.UsageError("--repair needs no Spark: type one after the other")
    if verifies and (mend or start_spark):
        raise click.UsageError("--verify changes nothing: type one after the other")
    if sample is not None and not verifies:
        raise click.UsageError("--sample belongs to --verify")
    if verifies:
        from nova_assets.cli.doctor_repair import verify_files

        return verify_files(deployment, sample)
    if mend:
        from nova_assets.cli.doctor_repair import repair_deployment

        return repair_deployment(deployment, dry_run)
    if start_spark:
        print_progress("starting Spark", deployment.quiet)
    findings = list(run_all_checks(deployment, start_spark))
    worst = max((f.status for f in findings), key=list(_STATUS_STYLES).index)
    data = {"status": worst, "checks": [_finding_json(f) for f in findings]}
    return CommandResult(
        data, lambda console: _show_findings(console, findings), exit_code=1 if worst == "wrong" else 0
    )


def _finding_json(finding: Finding) -> dict[str, Any]:
    return {
        "name": finding.name,
        "status": finding.status,
        "says": finding.says,
        "next": finding.next,
        "facts": finding.facts,
    }


def _show_findings(console: Console, findings: list[Finding]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    for column in range(3):
        table.add_column(no_wrap=column < 2, overflow="fold")
    for f in findings:
        mark, style = _STATUS_STYLES[f.status]
        says = f.says if f.next is None else f"{f.says}\n→ {f.next}"
        table.add_row(f.name, Text(mark, style=style), says)
    console.print(table)
    wrong = sum(f.status == "wrong" for f in findings)
    warnings = sum(f.status == "warning" for f in findings)
    if wrong:
        console.print(f"\n{wrong} wrong, {warnings} to look at")
    else:
        console.print("\nnothing is wrong" + (f", {warnings} to look at" if warnings else ""))
