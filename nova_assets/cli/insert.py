"""``nova insert``: files onto a channel."""

from __future__ import annotations

from typing import Any

import click
from rich.console import Console

from nova_assets.cli.command import Answer, NovaCommand, remark
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.rendering import Grid, block_json, name_of, plural, progress, size
from nova_assets.errors import DagsterUnavailable
from nova_assets.model.block import Kind
from nova_assets.model.commit import Commit
from nova_assets.model.schema import quoted
from nova_assets.operations.insert import InsertCheck
from nova_assets.store.store import Store


@click.command(cls=NovaCommand)
@click.argument("channel")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--kind",
    type=click.Choice(["delta", "base"]),
    default="delta",
    show_default=True,
    help="delta adds to the channel; base replaces what it holds.",
)
@click.option("--partition", metavar="COL=VALUE[/…]", help="Where all rows belong; by default the data says.")
@click.option(
    "--key",
    "--idempotency-key",
    "key",
    metavar="KEY",
    help="Idempotency key: a second insert of the same rows changes nothing.",
)
@click.option("--launch", is_flag=True, help="Have Dagster launch at once what this makes due, not at its next look.")
@click.option("--dry-run", is_flag=True, help="Check the files against the channel; change nothing.")
@click.pass_obj
def insert(
    deployment: Deployment,
    channel: str,
    files: tuple[str, ...],
    kind: Kind,
    partition: str | None,
    key: str | None,
    launch: bool,
    dry_run: bool,
) -> Answer:
    """Put FILEs (Parquet, ORC, Avro, CSV or JSON lines) onto CHANNEL, as one block (in each partition): all of them,
    or nothing.

    On keyed channels, rows with _deleted true are deletions. A file that cannot be read, or has other columns than the
    channel, is refused, and the channel stays as it was.

    \b
    JSON: {"channel", "seq", "head", "repeated", "commit",
           "blocks": [{"range", "kind", "rows", "deletes", "bytes", "files", ...}],
           "launched": {BINDING: [RUN ID]}}  (with --launch)
    With --dry-run: {"dry_run": true, "channel", "kind", "head", "schema": [{"name", "type", "nullable"}]}
    """
    if dry_run:
        checked = _check(deployment, channel, list(files), kind, partition)
        return Answer(_check_json(checked), lambda console: _show_check(console, checked, len(files)))
    launched: dict[str, list[str]] = {}
    with deployment.open() as store:
        progress(f"inserting {plural(len(files), 'file')} into {channel}", deployment.quiet)
        commit = store.insert(channel, list(files), kind, key, partition)
        if launch:
            launched = _launch(store, channel)
    data = {**_commit_json(channel, commit), **({"launched": launched} if launch else {})}
    return Answer(data, lambda console: _show_commit(console, channel, commit, key, launched))


def _launch(store: Store, channel: str) -> dict[str, list[str]]:
    """The data is there whatever comes of this, and the daemon sees to what is not launched now."""
    from nova_assets.dagster_bridge.launch import launch_due

    try:
        return launch_due(store, [channel])
    except DagsterUnavailable as error:
        remark(f"nothing was launched: {error.what}: {error.found}")
        return {}


def _check(deployment: Deployment, channel: str, files: list[str], kind: Kind, partition: str | None) -> InsertCheck:
    with deployment.look_at(channel) as store:
        return store.check_insert(channel, files, kind, partition)


def _check_json(checked: InsertCheck) -> dict[str, Any]:
    return {
        "dry_run": True,
        "channel": checked.channel,
        "kind": checked.kind,
        "head": checked.head,
        "schema": checked.schema.as_json(),
    }


def _show_check(console: Console, checked: InsertCheck, files: int) -> None:
    block = f"B{checked.head + 1}" if checked.kind == "base" else f"Δ({checked.head}→{checked.head + 1})"
    console.print(f"{plural(files, 'file')} would become {checked.channel} {block}, with the columns")
    shown = Grid("column", "type")
    for field in checked.schema.fields:
        shown.add(quoted(field.name), str(field.type) + ("" if field.nullable else " NOT NULL"))
    console.print(shown)


def _commit_json(channel: str, commit: Commit) -> dict[str, Any]:
    return {
        "channel": channel,
        "seq": commit.numbers.get(channel),
        "head": commit.heads.get(channel, commit.numbers.get(channel)),
        "repeated": commit.repeated,
        "commit": commit.id,
        "blocks": [block_json(b) for b in commit.blocks],
    }


def _show_commit(
    console: Console, channel: str, commit: Commit, key: str | None, launched: dict[str, list[str]]
) -> None:
    if not commit.blocks:
        console.print(f"{channel} stays at {commit.seq}: the files hold no rows")
        return
    for b in commit.blocks:
        deleted = f", {b.manifest.deletes:,} of them deletions" if b.manifest.deletes else ""
        said = f"{channel} {name_of(b)}: {plural(b.rows, 'row')}{deleted}, {size(b.bytes)}"
        console.print(f"{said}; inserted before with the key {key!r}, nothing changed" if commit.repeated else said)
    for binding, runs in launched.items():
        console.print(f"launched {binding}: {', '.join(runs)}")
