"""``nova channels``, ``nova timeline`` and ``nova cursors``: how things stand. They change nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click
from rich.console import Console

from nova_assets.cli.command import Answer, NovaCommand
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.rendering import Grid, block_json, iso, model, moment, name_of, number, size, summarised
from nova_assets.cli.timeline_chart import drawn
from nova_assets.masking import mask_address
from nova_assets.model import reads
from nova_assets.model.binding import Binding
from nova_assets.model.channel_state import ChannelState, Cursor
from nova_assets.model.partitions import WHOLE, parse_partition, within
from nova_assets.model.reads import Snapshot
from nova_assets.model.timeline import Instant
from nova_assets.plan import modes
from nova_assets.plan.timeline_chart import Picture, never_run, picture
from nova_assets.store.store import Store

IN_A_PIPE = 80
"""How wide a drawing is where no terminal says it."""

LONGEST = 24
"""Longer names of consumers are cut on a terminal."""


@click.command(cls=NovaCommand)
@click.pass_obj
def channels(deployment: Deployment) -> Answer:
    """List every registered channel, with what its head snapshot is read from.

    JSON: {"catalog": URL, "channels": [{"name", "merge": {"kind", ...}, "partitions": [{"column", "kind"}],
    "head", "rows", "bytes", "files", "schema": [{"name", "type", "nullable"}] or null, "retain": "30d" or null,
    "updated_at": ISO or null}]}
    """

    with deployment.look() as store:
        found = [(state, _head(store, state)) for state in store.channels()]
    data = {
        "catalog": mask_address(deployment.settings.catalog),
        "channels": [_channel_json(state, head) for state, head in found],
    }
    return Answer(data, lambda console: _show_channels(console, deployment, found))


def _head(store: Store, state: ChannelState) -> Snapshot:
    return modes.snapshot(store.catalog.history(state.channel.name, state.head, back_to=state.head))


def _channel_json(state: ChannelState, head: Snapshot) -> dict[str, Any]:
    opened = reads.as_json(head)
    return {
        "name": state.channel.name,
        "merge": state.channel.merge.as_json(),
        "partitions": [{"column": d.column, "kind": d.kind} for d in state.channel.partitions],
        "head": state.head,
        "rows": opened["rows"],
        "bytes": opened["bytes"],
        "files": len(opened["files"]),
        "schema": None if state.schema is None else state.schema.as_json(),
        "retain": state.channel.retain,
        "updated_at": iso(state.updated_at),
    }


def _show_channels(console: Console, deployment: Deployment, found: list[tuple[ChannelState, Snapshot]]) -> None:
    if not found:
        console.print(_nothing_yet(deployment, "no channels are registered"))
        return
    partitioned = ["partitions"] if any(state.channel.partitions for state, _ in found) else []
    retained = ["retain"] if any(state.channel.retain is not None for state, _ in found) else []
    columns = ("channel", "merge", *partitioned, *retained, "head", "rows", "bytes", "schema")
    shown = Grid(*columns, right=("head", "rows", "bytes"), shorten=("schema",))
    for state, head in found:
        opened = reads.as_json(head)
        schema = "(the first block gives it)" if state.schema is None else str(state.schema)
        counts = (str(state.head), number(opened["rows"]), size(opened["bytes"]))
        by = [", ".join(state.channel.partition_columns)] if partitioned else []
        retain = [state.channel.retain or ""] if retained else []
        shown.add(state.channel.name, model(state.channel.merge), *by, *retain, *counts, schema)
    console.print(shown)


def _nothing_yet(deployment: Deployment, what: str) -> str:
    where = mask_address(deployment.settings.catalog)
    there = "in" if deployment.catalog_is_there else "yet: there is no catalog at"
    return f"{what} {there} {where}\nnova init makes the catalog and registers the project's channels"


@click.command(cls=NovaCommand)
@click.argument("channel")
@click.option("--partition", metavar="COL=VALUE[/…]", help="This partition, or all that agree with some dimensions.")
@click.pass_obj
def timeline(deployment: Deployment, channel: str, partition: str | None) -> Answer:
    """Draw a channel's bases and deltas and how far each consumer has read them; then list its instants, oldest first:
    each with its blocks, B3 for a base and Δ(4→5) for a delta.

    JSON: {"channel", "head", "instants": [{"action", "state", "seq", "at", "binding" or null, "commit",
    "blocks": [{"range", "kind", "lo", "hi", "rows", "deletes", "bytes", "files", ...}],
    "details": {"tasks": [{"task", "seconds", "read", "wrote", "skipped", "ways"}]} or what else was kept}],
    "partition": "" or the one asked for, "collected": [numbers whose blocks are gone],
    "cursors": [{"binding", "channel", "partition", "cursor", "head", "lag", "moved_at": ISO or null}]}
    """
    with deployment.look() as store:
        instants = store.timeline(channel)
        dimensions = store.catalog.channel(channel).channel.partitions
        scope = parse_partition(dimensions, partition, partly=True) if partition else WHOLE
        outline = store.catalog.outlines([channel], scope=scope)[channel]
    bindings = _bindings(deployment)
    whole = picture(outline, bindings)
    if scope:
        instants = [_within(i, scope) for i in instants]
        instants = [i for i in instants if i.blocks or i.state == "requested"]
    found = [*outline.cursors, *never_run(bindings, outline.cursors, {channel: outline.head})]
    data = {
        "channel": channel,
        "head": outline.head,
        "instants": [_instant_json(i) for i in instants],
        "partition": scope,
        "collected": list(whole.collected),
        "cursors": [_cursor_json(c) for c in found],
    }
    return Answer(data, lambda console: _show_timeline(console, whole, instants))


def _bindings(deployment: Deployment) -> tuple[Binding, ...]:
    project = deployment.load_project()
    return () if project is None else tuple(project.bindings)


def _within(instant: Instant, scope: str) -> Instant:
    return replace(instant, blocks=tuple(b for b in instant.blocks if within(b.partition, scope)))


def _instant_json(instant: Instant) -> dict[str, Any]:
    return {
        "action": instant.action,
        "state": instant.state,
        "seq": instant.seq,
        "at": iso(instant.at),
        "binding": instant.binding,
        "commit": instant.commit_id,
        "blocks": [block_json(b) for b in instant.blocks],
        "details": dict(instant.details),
    }


def _show_timeline(console: Console, whole: Picture, instants: list[Instant]) -> None:
    if not instants:
        where = f"{whole.channel} {whole.scope}".rstrip()
        console.print(f"nothing has happened to {where} yet: neither an insert nor a run has put a block on it")
        return
    seen = console.is_terminal
    for line in drawn(whole, console.width if seen else IN_A_PIPE, LONGEST if seen else None):
        console.print(line, no_wrap=True, overflow="ellipsis", crop=seen)
    console.print()
    columns = ("seq", "block", "rows", "deleted", "bytes", "by", "time (UTC)")
    shown = Grid(*columns, right=("seq", "rows", "deleted", "bytes"), shorten=("by",))
    for instant in instants:
        seq, by, at = "" if instant.seq is None else str(instant.seq), _by(instant), moment(instant.at)
        for block in instant.blocks:
            counts = (number(block.rows), number(block.manifest.deletes), size(block.bytes))
            name = name_of(block)
            shown.add(seq, name, *counts, by, at)
        if not instant.blocks:
            shown.add(seq, "", "", "", "", by, at)
    console.print(shown)


def _by(instant: Instant) -> str:
    who = instant.binding or ("insert" if instant.action == "commit" else "")
    words = [who] if instant.action == "commit" else [instant.action, who]
    if instant.state == "requested":
        words.append("(under way)")
    return " ".join(w for w in words if w)


@click.command(cls=NovaCommand)
@click.argument("binding", required=False)
@click.pass_obj
def cursors(deployment: Deployment, binding: str | None) -> Answer:
    """Show how far each binding has read the channels that it consumes as new, and how far behind it is.

    JSON: {"cursors": [{"binding", "channel", "partition", "cursor", "head", "lag", "moved_at": ISO or null}]}
    """
    with deployment.look(with_project=False) as store:
        moved = store.catalog.cursors(binding)
        heads = {s.channel.name: s.head for s in store.channels()}
    found = sorted(
        [*moved, *_never_moved(deployment, binding, moved, heads)], key=lambda c: (c.binding, c.channel, c.partition)
    )
    data = {"cursors": [_cursor_json(c) for c in found]}
    return Answer(data, lambda console: _show_cursors(console, found))


def _never_moved(
    deployment: Deployment, binding: str | None, moved: list[Cursor], heads: dict[str, int]
) -> list[Cursor]:
    """Cursors of the project's bindings that have not run: they stand at 0, and the catalog has no row of them."""
    project = deployment.load_project()
    named = () if project is None else project.bindings if binding is None else (project.binding(binding),)
    if binding is not None and project is None and not moved:
        deployment.require_project(f"nova cursors {binding}")
    unregistered = {c.name: 0 for b in named for c in b.cursor_channels}
    return never_run(named, moved, unregistered | heads)


def _cursor_json(cursor: Cursor) -> dict[str, Any]:
    return {
        "binding": cursor.binding,
        "channel": cursor.channel,
        "partition": cursor.partition,
        "cursor": cursor.seq,
        "head": cursor.head,
        "lag": cursor.lag,
        "moved_at": iso(cursor.moved_at),
    }


def _show_cursors(console: Console, found: list[Cursor]) -> None:
    if not found:
        console.print("no binding has read anything yet\nnova run BINDING runs one; nova bindings lists them")
        return
    columns = ("binding", "channel", "cursor", "head", "lag", "moved (UTC)")
    shown = Grid(*columns, right=("cursor", "head", "lag"), shorten=("channel",))
    for c in summarised(found):
        if isinstance(c, str):
            shown.add(c)
            continue
        name = f"{c.binding} {c.partition}".rstrip()
        shown.add(name, c.channel, str(c.seq), str(c.head), str(c.lag), moment(c.moved_at))
    console.print(shown)
