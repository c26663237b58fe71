"""``nova channels``, ``nova timeline`` and ``nova cursors``: show state without changing it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click
from rich.console import Console

from nova_assets.cli.command import CommandResult, NovaCommand
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.rendering import (
    TableGrid,
    block_json,
    elide_middle_rows,
    format_block_name,
    format_bytes,
    format_count,
    format_iso_time,
    format_merge_model,
    format_time,
)
from nova_assets.cli.timeline_chart import render_chart_lines
from nova_assets.masking import mask_address
from nova_assets.model import reads
from nova_assets.model.binding import Binding
from nova_assets.model.channel_state import ChannelState, Cursor
from nova_assets.model.partitions import WHOLE, is_in_scope, parse_partition
from nova_assets.model.reads import Snapshot
from nova_assets.model.timeline import Instant
from nova_assets.plan import modes
from nova_assets.plan.timeline_chart import TimelineChart, build_chart, cursors_of_unrun_bindings
from nova_assets.store.store import Store

PIPE_WIDTH = 80
"""Width of a drawing without a terminal."""

MAX_CONSUMER_NAME = 24
"""Maximum length of a consumer's name on a terminal."""


@click.command(cls=NovaCommand)
@click.pass_obj
def channels(deployment: Deployment) -> CommandResult:
    """List every registered channel, with what its head snapshot is read from.

    JSON: {"catalog": URL, "channels": [{"name", "merge": {"kind", ...}, "partitions": [{"column", "kind"}],
    "head", "rows", "bytes", "files", "schema": [{"name", "type", "nullable"}] or null, "retain": "30d" or null,
    "updated_at": ISO or null}]}
    """

    with deployment.open_read_only() as store:
        states_and_heads = [(state, _head_snapshot(store, state)) for state in store.channels()]
    data = {
        "catalog": mask_address(deployment.settings.catalog),
        "channels": [_channel_json(state, head) for state, head in states_and_heads],
    }
    return CommandResult(data, lambda console: _show_channels(console, deployment, states_and_heads))


def _head_snapshot(store: Store, state: ChannelState) -> Snapshot:
    return modes.snapshot(store.catalog.history(state.channel.name, state.head, back_to=state.head))


def _channel_json(state: ChannelState, head_snapshot: Snapshot) -> dict[str, Any]:
    head_totals = reads.read_as_json(head_snapshot)
    return {
        "name": state.channel.name,
        "merge": state.channel.merge.as_json(),
        "partitions": [{"column": d.column, "kind": d.kind} for d in state.channel.partitions],
        "head": state.head,
        "rows": head_totals["rows"],
        "bytes": head_totals["bytes"],
        "files": len(head_totals["files"]),
        "schema": None if state.schema is None else state.schema.as_json(),
        "retain": state.channel.retain,
        "updated_at": format_iso_time(state.updated_at),
    }


def _show_channels(
    console: Console, deployment: Deployment, states_and_heads: list[tuple[ChannelState, Snapshot]]
) -> None:
    if not states_and_heads:
        console.print(_format_nothing_registered(deployment, "no channels are registered"))
        return
    partitioned = ["partitions"] if any(state.channel.partitions for state, _ in states_and_heads) else []
    retained = ["retain"] if any(state.channel.retain is not None for state, _ in states_and_heads) else []
    columns = ("channel", "merge", *partitioned, *retained, "head", "rows", "bytes", "schema")
    grid = TableGrid(*columns, right_aligned=("head", "rows", "bytes"), shorten=("schema",))
    for state, head in states_and_heads:
        head_totals = reads.read_as_json(head)
        schema = "(the first block gives it)" if state.schema is None else str(state.schema)
        counts = (str(state.head), format_count(head_totals["rows"]), format_bytes(head_totals["bytes"]))
        by = [", ".join(state.channel.partition_columns)] if partitioned else []
        retain = [state.channel.retain or ""] if retained else []
        grid.add(state.channel.name, format_merge_model(state.channel.merge), *by, *retain, *counts, schema)
    console.print(grid)


def _format_nothing_registered(deployment: Deployment, statement: str) -> str:
    where = mask_address(deployment.settings.catalog)
    preposition = "in" if deployment.catalog_exists else "yet: there is no catalog at"
    return f"{statement} {preposition} {where}\nnova init makes the catalog and registers the project's channels"


@click.command(cls=NovaCommand)
@click.argument("channel")
@click.option("--partition", metavar="COL=VALUE[/…]", help="This partition, or all that agree with some dimensions.")
@click.pass_obj
def timeline(deployment: Deployment, channel: str, partition: str | None) -> CommandResult:
    """Draw a channel's bases and deltas and how far each consumer has read them; then list its instants, oldest first:
    each with its blocks, B3 for a base and Δ(4→5) for a delta.

    JSON: {"channel", "head", "instants": [{"action", "state", "seq", "at", "binding" or null, "commit",
    "blocks": [{"range", "kind", "lo", "hi", "rows", "deletes", "bytes", "files", ...}],
    "details": {"tasks": [{"task", "seconds", "read", "wrote", "skipped", "ways"}]} or what else was kept}],
    "partition": "" or the one asked for, "collected": [numbers whose blocks are gone],
    "cursors": [{"binding", "channel", "partition", "cursor", "head", "lag", "moved_at": ISO or null}]}
    """
    with deployment.open_read_only() as store:
        instants = store.timeline(channel)
        dimensions = store.catalog.channel(channel).channel.partitions
        scope = parse_partition(dimensions, partition, allow_scope=True) if partition else WHOLE
        outline = store.catalog.outlines([channel], scope=scope)[channel]
    bindings = _project_bindings(deployment)
    chart = build_chart(outline, bindings)
    if scope:
        instants = [_keep_blocks_in_scope(i, scope) for i in instants]
        instants = [i for i in instants if i.blocks or i.state == "requested"]
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
    return replace(instant, blocks=tuple(b for b in instant.blocks if is_in_scope(b.partition, scope)))


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
    }


def _show_timeline(console: Console, chart: TimelineChart, instants: list[Instant]) -> None:
    if not instants:
        where = f"{chart.channel} {chart.scope}".rstrip()
        console.print(f"nothing has happened to {where} yet: neither an insert nor a run has put a block on it")
        return
    is_terminal = console.is_terminal
    for line in render_chart_lines(
        chart, console.width if is_terminal else PIPE_WIDTH, MAX_CONSUMER_NAME if is_terminal else None
    ):
        console.print(line, no_wrap=True, overflow="ellipsis", crop=is_terminal)
    console.print()
    columns = ("seq", "block", "rows", "deleted", "bytes", "by", "time (UTC)")
    grid = TableGrid(*columns, right_aligned=("seq", "rows", "deleted", "bytes"), shorten=("by",))
    for instant in instants:
        seq, by, at = (
            "" if instant.seq is None else str(instant.seq),
            _format_instant_cause(instant),
            format_time(instant.at),
        )
        for block in instant.blocks:
            counts = (format_count(block.rows), format_count(block.manifest.deletes), format_bytes(block.bytes))
            name = format_block_name(block)
            grid.add(seq, name, *counts, by, at)
        if not instant.blocks:
            grid.add(seq, "", "", "", "", by, at)
    console.print(grid)


def _format_instant_cause(instant: Instant) -> str:
    who = instant.binding or ("insert" if instant.action == "commit" else "")
    words = [who] if instant.action == "commit" else [instant.action, who]
    if instant.state == "requested":
        words.append("(under way)")
    return " ".join(w for w in words if w)


@click.command(cls=NovaCommand)
@click.argument("binding", required=False)
@click.pass_obj
def cursors(deployment: Deployment, binding: str | None) -> CommandResult:
    """Show how far each binding has read the channels that it consumes as new, and how far behind it is.

    JSON: {"cursors": [{"binding", "channel", "partition", "cursor", "head", "lag", "moved_at": ISO or null}]}
    """
    with deployment.open_read_only(with_project=False) as store:
        stored_cursors = store.catalog.cursors(binding)
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
    if not all_cursors:
        console.print("no binding has read anything yet\nnova run BINDING runs one; nova bindings lists them")
        return
    columns = ("binding", "channel", "cursor", "head", "lag", "moved (UTC)")
    grid = TableGrid(*columns, right_aligned=("cursor", "head", "lag"), shorten=("channel",))
    for c in elide_middle_rows(all_cursors):
        if isinstance(c, str):
            grid.add(c)
            continue
        name = f"{c.binding} {c.partition}".rstrip()
        grid.add(name, c.channel, str(c.seq), str(c.head), str(c.lag), format_time(c.moved_at))
    console.print(grid)
