"""``nova bindings``: list the bindings, their state, and whether they are due."""

from __future__ import annotations

from typing import Any

import click
from rich.console import Console

from nova_assets.cli.command import CommandResult, NovaCommand
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.rendering import elide_middle_rows, format_iso_time, format_time, pluralize, print_table
from nova_assets.execution.trigger_state import BindingState
from nova_assets.model.registered_definition import BindingInfo


@click.command(cls=NovaCommand)
def bindings(deployment: Deployment) -> CommandResult:
    """List the bindings of the project: trigger, cursors, last execution, and whether they are due.

    \b
    JSON: {"bindings": [{"name", "when": TRIGGER or null, "partitions": [COLUMN],
           "reads": [CHANNEL], "writes": [CHANNEL],
           "cursors": [{"channel", "partition", "cursor", "head", "lag"}],
           "last": {"execution", "partition", "state", "started_at", "finished_at", "error", "version"} or null,
           "due": {PARTITION: WHY}, "waits": WHY NOT, "under_way": [PARTITION],
           "state": "active"|"paused"|"removed", "version": NUMBER or null}],
           "not_in_project": [{"name", "workflowette", "when", "state", "version", "cursors": {CHANNEL: NUMBER}}]}
    """
    with deployment.open_read_only(with_project=True) as store:
        states, infos = store.bindings(), store.registered_bindings()
    info_by_name = {info.name: info for info in infos}
    others = [info for info in infos if not info.in_project]
    if not others:
        deployment.check_project_configured("nova bindings")
    data = {
        "bindings": [_binding_json(s, info_by_name[s.binding.name]) for s in states],
        "not_in_project": [_registered_binding_json(info) for info in others],
    }
    return CommandResult(data, lambda console: _show_bindings(console, states, others))


def _registered_binding_json(info: BindingInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "workflowette": info.workflowette,
        "when": info.when,
        "state": info.status.state,
        "version": info.version,
        "cursors": dict(info.cursors),
    }


def _binding_json(state: BindingState, info: BindingInfo) -> dict[str, Any]:
    binding, last = state.binding, state.last
    return {
        "name": binding.name,
        "when": None if binding.when is None else str(binding.when),
        "partitions": [d.column for d in binding.dimensions],
        "reads": [c.name for c in binding.reads],
        "writes": [c.name for c in binding.writes],
        "cursors": [
            {"channel": c.channel, "partition": c.partition, "cursor": c.seq, "head": c.head, "lag": c.lag}
            for c in state.cursors
        ],
        "last": None
        if last is None
        else {
            "execution": last.id,
            "partition": last.partition,
            "state": last.state,
            "started_at": format_iso_time(last.started_at),
            "finished_at": format_iso_time(last.finished_at),
            "error": last.error,
            "version": last.version,
        },
        "due": dict(sorted(state.due.items())),
        "waits": state.waits,
        "under_way": sorted(state.under_way),
        "state": info.status.state,
        "version": info.version,
    }


def _show_bindings(console: Console, states: list[BindingState], others: list[BindingInfo]) -> None:
    if states:
        _show_project_bindings(console, states)
    else:
        console.print("the project has no bindings")
    if others:
        console.print()
        console.print("Registered, and not in the project (nova remove binding NAME releases what a cursor holds):")
        rows = []
        for info in others:
            cursors = ", ".join(f"{channel} {seq}" for channel, seq in info.cursors.items()) or "none"
            rows.append((info.name, info.when or "by hand", cursors, str(info.status)))
        print_table(console, ("binding", "when", "cursors", "state"), rows, shorten=("when", "cursors"))


def _show_project_bindings(console: Console, states: list[BindingState]) -> None:
    columns = ("binding", "when", "cursors", "lag", "last execution (UTC)", "due")
    print_table(console, columns, map(_binding_cells, states), right_aligned=("lag",), shorten=("when", "due"))
    for state in states:
        if state.binding.dimensions and state.due:
            console.print()
            console.print(f"{state.binding.name} is due in {pluralize(len(state.due), 'partition')}:")
            for partition in elide_middle_rows(sorted(state.due)):
                console.print(f"  {partition}" + (f": {state.due[partition]}" if partition in state.due else ""))


def _binding_cells(state: BindingState) -> tuple[str, ...]:
    partition_columns = ", ".join(d.column for d in state.binding.dimensions)
    when = "by hand" if state.binding.when is None else str(state.binding.when)
    return (
        state.binding.name,
        f"{when}, per {partition_columns}" if partition_columns else when,
        _format_cursors(state),
        str(state.lag) if state.cursors else "",
        "never" if state.last is None else f"{state.last.state} {format_time(state.last.started_at)}",
        _format_due(state),
    )


def _format_cursors(state: BindingState) -> str:
    """Cursor of each channel, or the range of its cursors over several partitions."""
    seqs_by_channel: dict[str, list[int]] = {}
    for cursor in state.cursors:
        seqs_by_channel.setdefault(cursor.channel, []).append(cursor.seq)
    texts = [
        f"{channel} {min(at)}"
        + (f"–{max(at)}" if min(at) != max(at) else "")
        + (f" ({len(at)})" if len(at) > 1 else "")
        for channel, at in seqs_by_channel.items()
    ]
    return ", ".join(texts) or "none"


def _format_due(state: BindingState) -> str:
    if state.under_way:
        return "a run is requested"
    if not state.due:
        return f"no: {state.waits}"
    return (
        pluralize(len(state.due), "partition") if state.binding.dimensions else f"now: {next(iter(state.due.values()))}"
    )
