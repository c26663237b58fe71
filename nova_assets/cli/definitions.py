"""``nova workflowettes``, ``triggers``, ``describe``, ``pause`` and ``resume``: registered definitions."""

from __future__ import annotations

import json
from typing import Any

import click
from rich.console import Console

from nova_assets.cli.command import CommandResult, NovaCommand
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.name_completion import DEFINITION_NAME
from nova_assets.cli.rendering import format_iso_time, format_time, print_table
from nova_assets.model.execution import Firing
from nova_assets.model.registered_definition import (
    DEFINITION_KINDS,
    DefinitionDescription,
    DefinitionStatus,
    DefinitionVersion,
    TriggerInfo,
    WorkflowetteInfo,
)

kind_argument = click.argument("kind", type=click.Choice(DEFINITION_KINDS))
name_argument = click.argument("name", metavar="NAME", type=DEFINITION_NAME)


@click.command(cls=NovaCommand)
def workflowettes(deployment: Deployment) -> CommandResult:
    """List the workflowettes with their tasks, ports and bindings. A workflowette is registered with its first binding.

    \b
    JSON: {"workflowettes": [{"name", "tasks": [NAME], "ports": [NAME], "bindings": [NAME], "state": STATE,
           "in_project": whether the project has it}]}
    STATE: "active", "paused" or "removed"
    """
    with deployment.open_read_only(with_project=True) as store:
        infos = store.workflowettes()
    data = {
        "workflowettes": [
            {
                "name": info.name,
                "tasks": list(info.tasks),
                "ports": list(info.ports),
                "bindings": list(info.bindings),
                "state": info.status.state,
                "in_project": info.in_project,
            }
            for info in infos
        ]
    }
    return CommandResult(data, lambda console: _show_workflowettes(console, infos))


@click.command(cls=NovaCommand)
def triggers(deployment: Deployment) -> CommandResult:
    """List the triggers with their last firing, and those that are paused or removed. A trigger has the name of its
    binding.

    \b
    JSON: {"triggers": [{"binding", "when", "state": "active"|"paused"|"removed", "off": WHY IT DOES NOT FIRE or null,
           "in_project", "last_firing": {"partition", "n", "state", "at", "why"} or null}]}
    """
    with deployment.open_read_only(with_project=True) as store:
        infos = store.triggers()
    data = {
        "triggers": [
            {
                "binding": info.binding,
                "when": info.when,
                "state": info.status.state,
                "off": info.off or None,
                "in_project": info.in_project,
                "last_firing": _firing_json(info.last_firing),
            }
            for info in infos
        ]
    }
    return CommandResult(data, lambda console: _show_triggers(console, infos))


@click.command(cls=NovaCommand)
@kind_argument
@name_argument
@click.option("--version", type=int, metavar="N", help="Also print the content of version N.")
def describe(deployment: Deployment, kind: str, name: str, version: int | None) -> CommandResult:
    """Describe the channel, workflowette, binding or trigger NAME: what it is connected to, and its versions with who
    registered them, when, and what differed.

    \b
    JSON: {"kind", "name", "state": "active"|"paused"|"removed", "status": TEXT, "related": {RELATION: [NAME]},
           "versions": [{"version", "at", "by", "changes": [PART], "definition"}],
           "executions": [{"id", "partition", "state", "version": NUMBER or null, "started_at"}]}
    """
    with deployment.open_read_only(with_project=True) as store:
        description = store.describe(kind, name)
    chosen = next((v for v in description.versions if v.number == version), None)
    if version is not None and chosen is None:
        numbers = ", ".join(str(v.number) for v in description.versions) or "none"
        raise click.UsageError(f"{description.key} has no version {version}; its versions: {numbers}")
    return CommandResult(description_json(description), lambda console: _show_description(console, description, chosen))


@click.command(cls=NovaCommand)
@kind_argument
@name_argument
@click.option("--dry-run", is_flag=True, help="Only check that it exists. Change nothing.")
def pause(deployment: Deployment, kind: str, name: str, dry_run: bool) -> CommandResult:
    """Pause the channel, workflowette, binding or trigger NAME, until nova resume.

    The triggers of a paused binding or workflowette do not fire, also under Dagster. A paused channel gets no arrived
    files, and the triggers of the bindings that write it do not fire. Runs and inserts by hand are still allowed.

    \b
    JSON: {"dry_run", "kind", "name", "state", "status": TEXT}
    """
    with deployment.open(dry_run=dry_run) as store:
        description = store.describe(kind, name) if dry_run else store.pause(kind, name)
    return _status_result(description, dry_run, "would be paused")


@click.command(cls=NovaCommand)
@kind_argument
@name_argument
@click.option("--dry-run", is_flag=True, help="Only check that it exists. Change nothing.")
def resume(deployment: Deployment, kind: str, name: str, dry_run: bool) -> CommandResult:
    """Resume the channel, workflowette, binding or trigger NAME that nova pause has paused.

    A trigger that became due meanwhile fires once.

    \b
    JSON: {"dry_run", "kind", "name", "state", "status": TEXT}
    """
    with deployment.open(dry_run=dry_run) as store:
        description = store.describe(kind, name) if dry_run else store.resume(kind, name)
    return _status_result(description, dry_run, "would be resumed")


def description_json(description: DefinitionDescription) -> dict[str, Any]:
    return {
        **_status_json(description),
        "related": {relation: list(names) for relation, names in description.related.items()},
        "versions": [_version_json(v) for v in description.versions],
        "executions": [
            {
                "id": e.id,
                "partition": e.partition,
                "state": e.state,
                "version": e.version,
                "started_at": format_iso_time(e.started_at),
            }
            for e in description.executions
        ],
    }


def _status_result(description: DefinitionDescription, dry_run: bool, dry_run_text: str) -> CommandResult:
    text = dry_run_text if dry_run else f"is {description.status}"
    return CommandResult(
        {"dry_run": dry_run, **_status_json(description)},
        lambda console: console.print(f"{description.key} {text}", soft_wrap=True),
    )


def _status_json(description: DefinitionDescription) -> dict[str, Any]:
    key, status = description.key, description.status
    return {"kind": key.kind, "name": key.name, "state": status.state, "status": str(status)}


def _version_json(version: DefinitionVersion) -> dict[str, Any]:
    return {
        "version": version.number,
        "at": format_iso_time(version.registered_at),
        "by": version.registered_by,
        "changes": list(version.changes),
        "definition": dict(version.content),
    }


def _firing_json(firing: Firing | None) -> dict[str, Any] | None:
    if firing is None:
        return None
    at = format_iso_time(firing.at)
    return {"partition": firing.partition, "n": firing.n, "state": firing.state, "at": at, "why": firing.why}


def _show_workflowettes(console: Console, infos: list[WorkflowetteInfo]) -> None:
    columns = ("workflowette", "tasks", "ports", "bindings", "state")
    rows = [
        (i.name, *map(", ".join, (i.tasks, i.ports, i.bindings)), _format_state(i.status, i.in_project)) for i in infos
    ]
    empty = "no workflowette is registered, and the project has none"
    print_table(console, columns, rows, shorten=("tasks", "ports"), empty=empty)


def _show_triggers(console: Console, infos: list[TriggerInfo]) -> None:
    rows = []
    for info in infos:
        firing = info.last_firing
        fired = "never" if firing is None else f"{firing.state} {format_time(firing.at)}"
        rows.append((info.binding, info.when, fired, info.off or _format_state(info.status, info.in_project)))
    columns = ("binding", "when", "last firing (UTC)", "state")
    print_table(console, columns, rows, shorten=("when", "state"), empty="no binding has a trigger")


def _format_state(status: DefinitionStatus, in_project: bool) -> str:
    return str(status) if in_project or status.is_removed else f"{status}, not in the project"


def _show_description(console: Console, description: DefinitionDescription, chosen: DefinitionVersion | None) -> None:
    console.print(f"{description.key}: {description.status}", soft_wrap=True)
    for relation, names in description.related.items():
        console.print(f"  {relation}: {', '.join(names) or 'nothing'}", soft_wrap=True)
    console.print()
    rows = []
    for version in description.versions:
        changes = ", ".join(version.changes) or ("first version" if version.number == 1 else "nothing")
        rows.append((str(version.number), format_time(version.registered_at), version.registered_by, changes))
    print_table(
        console,
        ("version", "registered (UTC)", "by", "changes"),
        rows,
        right_aligned=("version",),
        shorten=("changes",),
        empty="No version is recorded. The next registration records one.",
    )
    if description.executions:
        console.print()
        executions = [
            (e.id[:8], e.partition, e.state, format_time(e.started_at), "" if e.version is None else str(e.version))
            for e in description.executions
        ]
        columns = ("execution", "partition", "state", "started (UTC)", "version")
        print_table(console, columns, executions, right_aligned=("version",))
    if chosen is not None:
        console.print()
        console.print(json.dumps(dict(chosen.content), indent=2, sort_keys=True), soft_wrap=True)
