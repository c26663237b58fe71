"""``nova channels``: list the registered channels."""

from __future__ import annotations

from typing import Any

import click
from rich.console import Console

from nova_assets.cli.command import CommandResult, NovaCommand
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.rendering import TableGrid, format_iso_time
from nova_assets.masking import mask_address
from nova_assets.model import reads
from nova_assets.model.channel_state import ChannelState
from nova_assets.model.reads import Snapshot
from nova_assets.store.channel_registry import channels_table, head_snapshot


@click.command(cls=NovaCommand)
def channels(deployment: Deployment) -> CommandResult:
    """List the registered channels, with the blocks and sizes of their head snapshots.

    JSON: {"catalog": URL, "channels": [{"name", "merge": {"kind", ...}, "partitions": [{"column", "kind"}],
    "head", "rows", "bytes", "files", "schema": [{"name", "type", "nullable"}] or null, "retain": "30d" or null,
    "updated_at": ISO or null}]}
    """

    with deployment.open_read_only() as store:
        states_and_heads = [(state, head_snapshot(store.catalog, state)) for state in store.channels()]
    data = {
        "catalog": mask_address(deployment.settings.catalog),
        "channels": [_channel_json(state, head) for state, head in states_and_heads],
    }
    return CommandResult(data, lambda console: _show_channels(console, deployment, states_and_heads))


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
        console.print(_format_empty_catalog(deployment, "no channels are registered"))
        return
    states, heads = zip(*states_and_heads, strict=True)
    console.print(TableGrid.of(channels_table(states, heads)))


def _format_empty_catalog(deployment: Deployment, statement: str) -> str:
    catalog_address = mask_address(deployment.settings.catalog)
    preposition = "in" if deployment.catalog_exists else "yet: there is no catalog at"
    advice = "nova init creates the catalog and registers the project's channels"
    return f"{statement} {preposition} {catalog_address}\n{advice}"
