"""``nova refresh``: what others have written of external channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
from rich.console import Console

from nova_assets.cli.command import Answer, NovaCommand
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.rendering import plural
from nova_assets.errors import DefinitionError
from nova_assets.model.external_table import Refreshed

FEW = 10
"""So many partitions or folders are named for a person."""


@click.command(cls=NovaCommand)
@click.argument("channel", nargs=-1, metavar="[CHANNEL]...")
@click.option(
    "--gone", is_flag=True, help="Partitions of which nothing is there any more may go, however many they are."
)
@click.option("--dry-run", is_flag=True, help="Say what is otherwise; change nothing, and open no file.")
@click.pass_obj
def refresh(deployment: Deployment, channel: tuple[str, ...], gone: bool, dry_run: bool) -> Answer:
    """Look what others have written of external channels, of all of the project by default.

    Partitions whose files were changed, came or went are committed: what was made of them is made again by nova tick,
    which looks by itself before anything else. Files are read where they are; none is copied, changed or deleted. If
    many partitions are gone at once, they are left as they were, unless --gone is said.

    Ends with 1 if something could not be taken as it is.

    \b
    JSON: {"dry_run", "refreshed": [{"channel", "seq", "changed": [partition], "gone": [...], "held": [...],
    "unfinished": [...], "ignored": {folder: why}, "beyond": [...], "bad": {partition: why}, "same", "error"}]}
    """
    if dry_run:
        with deployment.look(with_project=True) as store:
            found = [store.preview_refresh(c, gone=gone) for c in _named(store.project.channels, channel)]
    else:
        with deployment.open() as store:
            names = _named(store.project.channels, channel)
            found = [store.refresh(c, gone=gone) for c in names] if channel or gone else store.refresh_all()
    data = {"dry_run": dry_run, "refreshed": [as_json(r) for r in found]}
    return Answer(data, lambda console: _show(console, found, dry_run), 1 if any(r.is_amiss for r in found) else 0)


def _named(channels: Sequence[Any], asked: Sequence[str]) -> list[str]:
    external = [c.name for c in channels if c.external is not None]
    if not external and not asked:
        raise DefinitionError(
            "the project has no external channel",
            expected="CREATE EXTERNAL TABLE in a folder of datasets, or nova.Channel(..., external=nova.external(...))",
        )
    return list(asked) or external


def as_json(found: Refreshed) -> dict[str, Any]:
    return {
        "channel": found.channel,
        "seq": found.seq,
        "changed": list(found.changed),
        "gone": list(found.gone),
        "held": list(found.held),
        "unfinished": list(found.unfinished),
        "ignored": dict(found.ignored),
        "beyond": list(found.beyond),
        "bad": dict(found.bad),
        "same": found.same,
        "error": found.error,
    }


def lines(found: Refreshed, *, dry_run: bool = False) -> list[str]:
    """What a person is told of a channel."""
    if found.error is not None:
        return [f"{found.channel}: {found.error}"]
    changed = len(found.changed) - len(found.bad)
    verb = "would be " if dry_run else ""
    at = "" if found.seq is None else f", at {found.seq}"
    said = [f"{found.channel}: {plural(changed, 'partition')} {verb}refreshed{at}; {found.same} as they were"]
    said += _some("gone", found.gone)
    said += _some("not complete, left as they were", found.unfinished)
    said += _some("none of those that there should be", found.beyond)
    said += [f"  {name}: {why}" for name, why in list(found.bad.items())[:FEW]]
    said += [
        f"  ignored {folder or '(the location itself)'}: {why}" for folder, why in list(found.ignored.items())[:FEW]
    ]
    if found.held:
        many = plural(len(found.held), "partition")
        said += [f"  {many} gone at once, left as they were; nova refresh {found.channel} --gone lets them go"]
    return said


def _some(what: str, names: Sequence[str]) -> list[str]:
    more = f" and {len(names) - FEW} more" if len(names) > FEW else ""
    return [f"  {what}: {', '.join(n or '(the whole)' for n in names[:FEW])}{more}"] if names else []


def _show(console: Console, found: Sequence[Refreshed], dry_run: bool) -> None:
    for one in found:
        for line in lines(one, dry_run=dry_run):
            console.print(line, markup=False, soft_wrap=True)
