"""``nova insert``: insert files into a channel."""

from __future__ import annotations

import importlib
from typing import Any, get_args

import click
from rich.console import Console

from nova_assets.cli.command import CommandResult, NovaCommand, print_to_stderr
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.rendering import (
    block_json,
    format_block_name,
    format_bytes,
    pluralize,
    print_progress,
    print_table,
)
from nova_assets.errors import DagsterUnavailable, DefinitionError
from nova_assets.model.block import Kind
from nova_assets.model.block_options import BLOCK_FORMATS, BlockFormat, MergeName, merge_model_by_name
from nova_assets.model.commit import Commit
from nova_assets.model.merge import MergeModel
from nova_assets.model.schema import quote_identifier
from nova_assets.nova_error import NovaError
from nova_assets.store.insert import InsertCheck
from nova_assets.store.store import Store


@click.command(cls=NovaCommand)
@click.argument("channel")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--kind",
    type=click.Choice(["delta", "base"]),
    default="delta",
    show_default=True,
    help="A delta adds rows to the channel; a base replaces its rows.",
)
@click.option(
    "--partition", metavar="COL=VALUE[/…]", help="Partition of all rows.  [default: from the columns of the data]"
)
@click.option(
    "--key",
    "--idempotency-key",
    "idempotency_key",
    metavar="KEY",
    help="Idempotency key: a second insert with the same key and rows changes nothing.",
)
@click.option(
    "--merge",
    metavar="MODEL",
    help="Merge model of this delta: append, multiset, upsert (with the channel's key), or MODULE:NAME of a model.",
)
@click.option(
    "--format",
    "file_format",
    type=click.Choice(list(BLOCK_FORMATS)),
    help="File format of the block.  [default: parquet]",
)
@click.option(
    "--keep-files",
    is_flag=True,
    help="Copy the files into the warehouse as they are, instead of writing their rows into new files.",
)
@click.option(
    "--launch",
    is_flag=True,
    help="Let Dagster launch the runs that become due at once, instead of with its next sensor tick.",
)
@click.option("--dry-run", is_flag=True, help="Check the files against the channel. Change nothing.")
def insert(
    deployment: Deployment,
    channel: str,
    files: tuple[str, ...],
    kind: Kind,
    partition: str | None,
    idempotency_key: str | None,
    merge: str | None,
    file_format: BlockFormat | None,
    keep_files: bool,
    launch: bool,
    dry_run: bool,
) -> CommandResult:
    """Insert FILEs (Parquet, ORC, Avro, CSV or JSON lines) into CHANNEL, as one block per partition: either all files
    or none.

    On keyed channels, rows whose column _deleted is true are deletions. If a file cannot be read or has other columns
    than the channel, the insert is refused, and the channel stays unchanged.

    \b
    JSON: {"channel", "seq", "head", "repeated", "commit",
           "blocks": [{"range", "kind", "rows", "deletes", "bytes", "files", ...}],
           "launched": {BINDING: [RUN ID]}}  (with --launch)
    With --dry-run: {"dry_run": true, "channel", "kind", "head", "schema": [{"name", "type", "nullable"}]}
    """
    options: dict[str, Any] = {"format": file_format, "keep_files": keep_files}
    if dry_run:
        with deployment.open_channel_read_only(channel) as store:
            options["merge"] = None if merge is None else _parse_merge_model(store, channel, merge)
            insert_check = store.check_insert(channel, list(files), kind, partition, **options)
        return CommandResult(
            _insert_check_json(insert_check), lambda console: _show_insert_check(console, insert_check, len(files))
        )
    run_ids_by_binding: dict[str, list[str]] = {}
    with deployment.open() as store:
        print_progress(f"inserting {pluralize(len(files), 'file')} into {channel}", deployment.quiet)
        options["merge"] = None if merge is None else _parse_merge_model(store, channel, merge)
        commit = store.insert(channel, list(files), kind, idempotency_key, partition, **options)
        if launch:
            run_ids_by_binding = _launch_due_runs(store, channel)
    data = {**_commit_json(channel, commit), **({"launched": run_ids_by_binding} if launch else {})}
    return CommandResult(
        data, lambda console: _show_commit(console, channel, commit, idempotency_key, run_ids_by_binding)
    )


def _launch_due_runs(store: Store, channel: str) -> dict[str, list[str]]:
    """Launch the runs that the insert makes due.

    A failure is only printed, because the data is committed and the daemon requests the runs that are not launched.
    """
    from nova_assets.dagster_bridge.launch import launch_due

    try:
        return launch_due(store, [channel])
    except DagsterUnavailable as error:
        print_to_stderr(f"no run was launched: {error.what}: {error.found}")
    except NovaError as error:
        print_to_stderr(f"no run was launched: {error}")
    except Exception as error:
        print_to_stderr(f"no run was launched: {type(error).__name__}: {error}")
    return {}


def _parse_merge_model(store: Store, channel: str, text: str) -> MergeModel:
    """Merge model from its text on the command line.

    Raises:
        DefinitionError: the text names no merge model.
    """
    name: MergeName | None = next((n for n in get_args(MergeName) if n == text), None)
    named_model = merge_model_by_name(store.catalog.definitions.channel(channel).channel, name)
    if named_model is not None:
        return named_model
    module_name, separator, attribute = text.partition(":")
    error: Exception | None = None
    model: Any = None
    if separator:
        try:
            model = getattr(importlib.import_module(module_name), attribute, None)
        except ImportError as failure:
            error = failure
    if isinstance(model, MergeModel):
        return model
    raise DefinitionError(
        f"--merge {text!r} names no merge model",
        found=repr(model) if error is None else str(error),
        expected="append, multiset, upsert, or MODULE:NAME of a nova.Upsert(...), nova.Keyed(...) or nova.Custom(...)",
    ) from error


def _insert_check_json(insert_check: InsertCheck) -> dict[str, Any]:
    return {
        "dry_run": True,
        "channel": insert_check.channel,
        "kind": insert_check.kind,
        "head": insert_check.head,
        "schema": insert_check.schema.as_json(),
    }


def _show_insert_check(console: Console, insert_check: InsertCheck, file_count: int) -> None:
    block = (
        f"B{insert_check.next_number}"
        if insert_check.kind == "base"
        else f"Δ({insert_check.head}→{insert_check.next_number})"
    )
    console.print(f"{pluralize(file_count, 'file')} would become {insert_check.channel} {block}, with the columns")
    fields = insert_check.schema.fields
    rows = [(quote_identifier(f.name), str(f.type) + ("" if f.nullable else " NOT NULL")) for f in fields]
    print_table(console, ("column", "type"), rows)


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
    console: Console,
    channel: str,
    commit: Commit,
    idempotency_key: str | None,
    run_ids_by_binding: dict[str, list[str]],
) -> None:
    if not commit.blocks:
        console.print(f"{channel} stays at {commit.seq}: the files contain no rows")
        return
    for b in commit.blocks:
        deleted = f", {b.manifest.deletes:,} of them deletions" if b.manifest.deletes else ""
        summary = f"{channel} {format_block_name(b)}: {pluralize(b.rows, 'row')}{deleted}, {format_bytes(b.bytes)}"
        console.print(
            f"{summary}; already inserted with the key {idempotency_key!r}, nothing changed"
            if commit.repeated
            else summary
        )
    for binding, runs in run_ids_by_binding.items():
        console.print(f"launched {binding}: {', '.join(runs)}")
