"""``nova timeline``: draw the timeline of a channel and list its instants."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click
from rich.console import Console

from nova_assets.cli.command import CommandResult, NovaCommand
from nova_assets.cli.cursors import _cursor_json
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.rendering import TableGrid, block_json, format_iso_time
from nova_assets.cli.timeline_chart import render_chart_lines
from nova_assets.model.binding import Binding
from nova_assets.model.partitions import is_in_scope
from nova_assets.model.timeline import Instant
from nova_assets.plan.timeline_chart import TimelineChart, build_chart, cursors_of_unrun_bindings
from nova_assets.store.listings import timeline_table

PIPE_WIDTH = 80
"""Width of a drawing without a terminal."""


MAX_CONSUMER_NAME = 24
"""Maximum length of a consumer's name on a terminal."""


@click.command(cls=NovaCommand)
@click.argument("channel")
@click.option("--partition", metavar="COL=VALUE[/…]", help="One partition, or all partitions with these values.")
@click.pass_obj
def timeline(deployment: Deployment, channel: str, partition: str | None) -> CommandResult:
    """Draw the bases and deltas of CHANNEL and the cursors of its consumers. Then list the instants, oldest first, with
    their blocks: B3 is a base, Δ(4→5) a delta.

    JSON: {"channel", "head", "instants": [{"action", "state", "seq", "at", "binding" or null, "commit",
    "blocks": [{"range", "kind", "lo", "hi", "rows", "deletes", "bytes", "files", ...}],
    "details": {"tasks": [{"task", "seconds", "cpu_seconds" or null, "read", "wrote", "skipped", "ways", "facts"}]}
    or other details, "rolled_back": [{"id", "partition", "folder", "files"}] that a rollback removed}],
    "partition": "" or the given partition, "collected": [numbers whose blocks were collected],
    "cursors": [{"binding", "channel", "partition", "cursor", "head", "lag", "moved_at": ISO or null}]}
    """
    with deployment.open_read_only() as store:
        instants = store.timeline(channel)
        scope = store.catalog.channel(channel).parse_scope(partition)
        outline = store.catalog.outlines([channel], scope=scope)[channel]
    bindings = _project_bindings(deployment)
    chart = build_chart(outline, bindings)
    if scope:
        instants = [_keep_blocks_in_scope(i, scope) for i in instants]
        instants = [i for i in instants if i.blocks or i.rolled_back or i.state == "requested"]
    all_cursors = [*outline.cursors, *cursors_of_unrun_bindings(bindings, outline.cursors, {channel: outline.head})]
    data = {
        "channel": channel,
        "head": outline.head,
        "instants": [_instant_json(i) for i in instants],
        "partition": scope,
        "collected": list(chart.collected),
        "cursors": [_cursor_json(c) for c in all_cursors],
    }
    return CommandResult(data, lambda console: _show_timeline(console, chart, instants))


def _project_bindings(deployment: Deployment) -> tuple[Binding, ...]:
    project = deployment.load_project()
    return () if project is None else tuple(project.bindings)


def _keep_blocks_in_scope(instant: Instant, scope: str) -> Instant:
    return replace(
        instant,
        blocks=tuple(b for b in instant.blocks if is_in_scope(b.partition, scope)),
        rolled_back=tuple(b for b in instant.rolled_back if is_in_scope(b.partition, scope)),
    )


def _instant_json(instant: Instant) -> dict[str, Any]:
    return {
        "action": instant.action,
        "state": instant.state,
        "seq": instant.seq,
        "at": format_iso_time(instant.at),
        "binding": instant.binding,
        "commit": instant.commit_id,
        "blocks": [block_json(b) for b in instant.blocks],
        "details": dict(instant.details),
        "rolled_back": [b.as_json() for b in instant.rolled_back],
    }


def _show_timeline(console: Console, chart: TimelineChart, instants: list[Instant]) -> None:
    if not instants:
        channel_and_scope = f"{chart.channel} {chart.scope}".rstrip()
        console.print(f"the timeline of {channel_and_scope} is empty: no insert and no run has committed a block yet")
        return
    is_terminal = console.is_terminal
    for line in render_chart_lines(
        chart, console.width if is_terminal else PIPE_WIDTH, MAX_CONSUMER_NAME if is_terminal else None
    ):
        console.print(line, no_wrap=True, overflow="ellipsis", crop=is_terminal)
    console.print()
    console.print(TableGrid.of(timeline_table(instants)))
