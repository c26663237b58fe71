"""``nova backfill`` and ``nova backfills``: have partitions made again, and see how far that is."""

from __future__ import annotations

import getpass
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

import click
from rich.console import Console

from nova_assets.cli.command import Answer, NovaCommand
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.rendering import Grid, iso, moment, number, plural, seconds, size
from nova_assets.model.backfill import PRIORITIES, Backfill, Part, Priority
from nova_assets.store.store import Store

if TYPE_CHECKING:
    from nova_assets.operations.datasets.backfill import Preview

FEW = 40


@click.command(cls=NovaCommand)
@click.argument("dataset", required=False)
@click.argument("partitions", nargs=-1, metavar="[COLUMN=VALUE|COLUMN=FROM..TO]...")
@click.option(
    "--downstream",
    default="all",
    metavar="all|none|NAME,…",
    show_default=True,
    help="What made of it is made again, too.",
)
@click.option("--priority", type=click.Choice(list(PRIORITIES)), default="low", show_default=True)
@click.option("--why", default="", metavar="TEXT", help="Kept with it.")
@click.option("--all", "everything", is_flag=True, help="All partitions.")
@click.option("--cancel", metavar="ID", help="Leave as it is what this backfill has not made yet.")
@click.option("--dry-run", is_flag=True, help="Say what would be made again, and what that cost the last time.")
@click.pass_obj
def backfill(
    deployment: Deployment,
    dataset: str | None,
    partitions: tuple[str, ...],
    downstream: str,
    priority: str,
    why: str,
    everything: bool,
    cancel: str | None,
    dry_run: bool,
) -> Answer:
    """Have partitions of DATASET made again, and what was made of them.

    They are marked, and nova tick makes them: each once what it reads is made again; until then whoever reads a marked
    partition waits. What is not to follow is left as it is. A low priority comes after what is missing or stale, a high
    one before it.

    \b
    nova backfill store_sales day=2022-03-01..2022-03-31 store=Paris --why "wrong prices"

    JSON: {"dry_run", "backfill": ID or null, "seconds": number or null, "parts": [{"dataset", "partition", "rows",
    "bytes", "seconds": null where it never ran}], "left": {dataset: partitions}}; with --cancel {"backfill", "left":
    number}
    """
    if cancel is not None:
        if dataset is not None:
            raise click.UsageError("--cancel ID stands alone")
        return _cancel(deployment, cancel, dry_run)
    if dataset is None:
        raise click.UsageError("say of which DATASET; nova show lists them")
    follow = _downstream(downstream)
    with deployment.look(with_project=True) if dry_run else deployment.open() as store:
        found = store.preview_backfill(dataset, *partitions, downstream=follow, everything=everything)
        done = None
        if not dry_run:
            done = store.backfill(dataset, priority=cast(Priority, priority), why=why, by=_user(), preview=found)
    return _of_preview(found, done)


@click.command(cls=NovaCommand)
@click.argument("backfill_id", metavar="[ID]", required=False)
@click.option("--limit", default=20, show_default=True, help="So many, the newest.")
@click.pass_obj
def backfills(deployment: Deployment, backfill_id: str | None, limit: int) -> Answer:
    """Show which backfills there were, who wanted them and why, and how far they are; of one, every partition.

    JSON: {"backfills": [{"backfill", "dataset", "at", "by", "why", "priority", "downstream", "state", "parts": {state:
    number}}]}; of one, that and "partitions": [{"dataset", "partition", "state", "ended_at", "seq", "execution_id"}]
    """
    with deployment.look() as store:
        if backfill_id is None:
            found = store.backfills(limit)
            return Answer({"backfills": [_as_json(b) for b in found]}, lambda console: _list(console, found))
        one = store.catalog.backfill(backfill_id)
        parts = _told(store, store.catalog.backfill_parts(backfill_id))
    data = {
        **_as_json(one),
        "partitions": [
            {
                "dataset": p.dataset,
                "partition": p.partition,
                "state": state,
                "ended_at": iso(p.ended_at),
                "seq": p.seq,
                "execution_id": p.execution_id,
            }
            for p, state in parts
        ],
    }
    return Answer(data, lambda console: _one(console, one, parts))


def _cancel(deployment: Deployment, backfill_id: str, dry_run: bool) -> Answer:
    with deployment.look() if dry_run else deployment.open(with_project=False) as store:
        waiting = store.catalog.backfill(backfill_id).parts.get("waiting", 0)
        left = waiting if dry_run else store.cancel_backfill(backfill_id)
    said = f"{plural(left, 'partition')} {'would be' if dry_run else 'is' if left == 1 else 'are'} left as before"
    return Answer({"backfill": backfill_id, "left": left}, lambda console: console.print(said))


def _downstream(said: str) -> Literal["all", "none"] | Collection[str]:
    if said in ("all", "none"):
        return cast(Literal["all", "none"], said)
    return [n.strip() for n in said.split(",") if n.strip()]


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container without a name for its user
        return "unknown"


def _of_preview(found: Preview, done: Backfill | None) -> Answer:
    parts, left = found.affected.parts, dict(found.affected.left or {})
    took = found.seconds
    data: dict[str, Any] = {
        "dry_run": done is None,
        "backfill": None if done is None else done.id,
        "seconds": took,
        "parts": [{"dataset": d, "partition": p, **_cost(found, d, p)} for d, p in parts],
        "left": left,
    }

    def show(console: Console) -> None:
        grid = Grid("dataset", "partition", "rows", "size", "took", right=("rows", "size", "took"))
        for d, p in parts[:FEW]:
            cost = found.costs.get((d, p))
            shown = ("", "", "") if cost is None else (number(cost.rows), size(cost.bytes), seconds(cost.seconds))
            grid.add(d, p, *shown)
        console.print(grid)
        if len(parts) > FEW:
            console.print(f"and {len(parts) - FEW} more")
        about = "" if took is None else f", about {seconds(took)} of work"
        console.print(
            f"{plural(len(parts), 'partition')} {'would be' if done is None else 'will be'} made again{about}"
        )
        for name, n in left.items():
            console.print(f"left as it is: {name}, of which {plural(n, 'partition')} were made of these")
        if done is not None:
            console.print(f"backfill {done.id}; made by: nova tick --all; how far it is: nova backfills {done.id}")

    return Answer(data, show)


def _cost(found: Preview, dataset: str, partition: str) -> dict[str, Any]:
    cost = found.costs.get((dataset, partition))
    return {name: getattr(cost, name, None) for name in ("rows", "bytes", "seconds")}


def _told(store: Store, parts: Sequence[Part]) -> list[tuple[Part, str]]:
    """The parts, and what is happening to those that are not made yet."""
    running, failing = set(store.catalog.running()), store.catalog.failing()
    found = []
    for part in parts:
        key, state = (part.dataset, part.partition), str(part.state)
        if part.state == "waiting" and key in running:
            state = "running"
        elif part.state == "waiting" and key in failing:
            state = f"failed {failing[key].times} times" if failing[key].times != 1 else "failed once"
        found.append((part, state))
    return found


def _as_json(found: Backfill) -> dict[str, Any]:
    return {
        "backfill": found.id,
        "dataset": found.dataset,
        "at": iso(found.at),
        "by": found.by,
        "why": found.why,
        "priority": found.priority,
        "downstream": list(found.downstream),
        "state": found.state,
        "parts": dict(found.parts),
    }


def _list(console: Console, found: Sequence[Backfill]) -> None:
    grid = Grid(
        "backfill", "state", "made", "of", "priority", "asked for", "by", "why", right=("made", "of"), shorten=("why",)
    )
    for b in found:
        grid.add(b.id, b.state, number(b.parts.get("made", 0)), number(b.size), b.priority, moment(b.at), b.by, b.why)
    console.print(grid if found else "nobody has asked for a backfill yet: nova backfill DATASET …")


def _one(console: Console, one: Backfill, parts: Sequence[tuple[Part, str]]) -> None:
    console.print(f"{one.id}: {one.state}; asked for {moment(one.at)} by {one.by or 'nobody in particular'}")
    if one.why:
        console.print(f"why: {one.why}")
    console.print(f"follow: {', '.join(one.downstream) or 'nothing'}; priority: {one.priority}")
    grid = Grid("dataset", "partition", "state", "number", "execution")
    for part, state in parts[:FEW]:
        grid.add(
            part.dataset, part.partition, state, "" if part.seq is None else number(part.seq), part.execution_id or ""
        )
    console.print(grid)
    if len(parts) > FEW:
        console.print(f"and {len(parts) - FEW} more")
