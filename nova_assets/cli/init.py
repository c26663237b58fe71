"""``nova init``: a catalog, a warehouse, and the project's channels in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import click
from rich.console import Console

from nova_assets.cli.command import Answer, NovaCommand
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.rendering import Grid, model, plural
from nova_assets.engine.storage.remote_warehouse import open_warehouse
from nova_assets.masking import mask_address
from nova_assets.model.channel import Channel
from nova_assets.store.store import Store

Action = Literal["register", "keep", "replace", "conflict"]

_WORDS = {
    "register": ("would be registered", "registered"),
    "keep": ("is registered", "is registered"),
    "replace": ("would be replaced", "replaced"),
    "conflict": ("is registered with another definition; --replace accepts this one", ""),
}


@dataclass(frozen=True, slots=True)
class Registration:
    """What becomes of one channel of the project."""

    channel: Channel
    action: Action
    differences: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Initialisation:
    """What ``nova init`` does, or would do."""

    catalog: str
    makes_catalog: bool
    warehouse: str
    makes_warehouse: bool
    project: str | None
    bindings: tuple[str, ...]
    channels: tuple[Registration, ...]
    dry_run: bool = field(kw_only=True)

    @property
    def conflicts(self) -> bool:
        return any(r.action == "conflict" for r in self.channels)


@click.command(cls=NovaCommand)
@click.option("--replace", is_flag=True, help="Accept definitions that differ from the registered ones.")
@click.option("--dry-run", is_flag=True, help="Say what would be made; make nothing.")
@click.pass_obj
def init(deployment: Deployment, replace: bool, dry_run: bool) -> Answer:
    """Make the catalog and the warehouse, and register the project's channels and bindings, if one is configured.

    What is there already stays as it is. A changed definition of a registered channel is refused without --replace; a
    changed merge model then takes effect by the next base.

    \b
    JSON: {"dry_run", "catalog": {"url", "made"}, "warehouse": {"folder", "made"},
           "project": NAME or null, "bindings": [NAME],
           "channels": [{"name", "action": "register"|"keep"|"replace"|"conflict",
                         "differences": [PART]}]}
    """
    makes_catalog = not deployment.catalog_is_there
    warehouse = open_warehouse(deployment.settings.warehouse)
    makes_warehouse = not warehouse.exists
    with deployment.look(with_project=True) if dry_run else deployment.open() as store:
        done = Initialisation(
            mask_address(deployment.settings.catalog),
            makes_catalog,
            warehouse.address,
            makes_warehouse,
            deployment.settings.project,
            tuple(b.name for b in store.project.bindings),
            tuple(_registrations(store, replace)),
            dry_run=dry_run,
        )
        if not dry_run:
            warehouse.check()
            store.register(store.project, replace=replace)
    return Answer(_as_json(done), lambda console: _show(console, done), code=1 if done.conflicts else 0)


def _registrations(store: Store, replace: bool) -> list[Registration]:
    known = {s.channel.name: s.channel.as_json() for s in store.channels()}
    found = []
    for channel in store.project.channels:
        given = channel.as_json()
        there = known.get(channel.name)
        parts = () if there is None else tuple(k for k in given if given[k] != there.get(k))
        if there is None:
            action: Action = "register"
        elif not parts:
            action = "keep"
        else:
            action = "replace" if replace else "conflict"
        found.append(Registration(channel, action, parts))
    return found


def _as_json(done: Initialisation) -> dict[str, Any]:
    return {
        "dry_run": done.dry_run,
        "catalog": {"url": done.catalog, "made": done.makes_catalog},
        "warehouse": {"folder": done.warehouse, "made": done.makes_warehouse},
        "project": done.project,
        "bindings": list(done.bindings),
        "channels": [
            {"name": r.channel.name, "action": r.action, "differences": list(r.differences)} for r in done.channels
        ],
    }


def _show(console: Console, done: Initialisation) -> None:
    made = "would be made" if done.dry_run else "made"
    console.print(f"catalog    {done.catalog}: {made if done.makes_catalog else 'is there'}")
    console.print(f"warehouse  {done.warehouse}: {made if done.makes_warehouse else 'is there'}")
    if done.project is None:
        console.print("project    none is configured; name one with --project, NOVA_PROJECT or [tool.nova]")
        return
    bindings = f"{plural(len(done.bindings), 'binding')} ({', '.join(done.bindings)})"
    console.print(f"project    {done.project}: {bindings}")
    console.print()
    shown = Grid("channel", "merge", "", shorten=("merge",))
    for r in done.channels:
        words = _WORDS[r.action][0 if done.dry_run else 1]
        different = f" (different: {', '.join(r.differences)})" if r.differences else ""
        shown.add(r.channel.name, model(r.channel.merge), words + different)
    console.print(shown)
