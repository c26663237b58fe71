"""``nova cursors``: show how far each binding has read its channels."""

from __future__ import annotations

from typing import Any

import click
from rich.console import Console

from nova_assets.cli.command import CommandResult, NovaCommand
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.rendering import (
    elide_middle_rows,
    format_iso_time,
    format_time,
    print_table,
)
from nova_assets.model.channel_state import Cursor
from nova_assets.plan.timeline_chart import cursors_of_unrun_bindings


@click.command(cls=NovaCommand)
@click.argument("binding", required=False)
def cursors(deployment: Deployment, binding: str | None) -> CommandResult:
    """Show how far each binding has read its channels, and how far it lags behind their heads.

    JSON: {"cursors": [{"binding", "channel", "partition", "cursor", "head", "lag", "moved_at": ISO or null}]}
    """
    with deployment.open_read_only(with_project=False) as store:
        stored_cursors = store.catalog.cursors.find(binding)
        heads = {s.channel.name: s.head for s in store.channels()}
    all_cursors = sorted(
        [*stored_cursors, *_cursors_of_unrun_bindings(deployment, binding, stored_cursors, heads)],
        key=lambda c: (c.binding, c.channel, c.partition),
    )
    data = {"cursors": [_cursor_json(c) for c in all_cursors]}
    return CommandResult(data, lambda console: _show_cursors(console, all_cursors))


def _cursors_of_unrun_bindings(
    deployment: Deployment, binding: str | None, stored_cursors: list[Cursor], heads: dict[str, int]
) -> list[Cursor]:
    """Cursors at 0 for the project's bindings that have not run, for which the catalog has no row."""
    project = deployment.load_project()
    selected_bindings = () if project is None else project.bindings if binding is None else (project.binding(binding),)
    if binding is not None and project is None and not stored_cursors:
        deployment.check_project_configured(f"nova cursors {binding}")
    unregistered = {c.name: 0 for b in selected_bindings for c in b.cursor_channels}
    return cursors_of_unrun_bindings(selected_bindings, stored_cursors, unregistered | heads)


def _cursor_json(cursor: Cursor) -> dict[str, Any]:
    return {
        "binding": cursor.binding,
        "channel": cursor.channel,
        "partition": cursor.partition,
        "cursor": cursor.seq,
        "head": cursor.head,
        "lag": cursor.lag,
        "moved_at": format_iso_time(cursor.moved_at),
    }


def _show_cursors(console: Console, all_cursors: list[Cursor]) -> None:
    rows = [
        (
            f"{c.binding} {c.partition}".rstrip(),
            c.channel,
            str(c.seq),
            str(c.head),
            str(c.lag),
            format_time(c.moved_at),
        )
        for c in all_cursors
    ]
    print_table(
        console,
        ("binding", "channel", "cursor", "head", "lag", "moved (UTC)"),
        elide_middle_rows(rows),
        right_aligned=("cursor", "head", "lag"),
        shorten=("channel",),
        empty="no binding has a cursor yet\nnova run BINDING runs a binding; nova bindings lists the bindings",
    )
