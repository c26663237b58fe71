"""``nova backfill`` and ``nova backfills``: request a recomputation of partitions, and show its progress."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

import click
from rich.console import Console

from nova_assets.cli.command import CommandResult, NovaCommand
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.rendering import (
    MAX_LISTED_PARTITIONS,
    format_bytes,
    format_count,
    format_duration,
    format_iso_time,
    format_time,
    pluralize,
    print_table,
)
from nova_assets.execution.actor import current_user
from nova_assets.model.scheduler_state import PRIORITIES, Backfill, BackfillPartition, Priority
from nova_assets.store.store import Store

if TYPE_CHECKING:
    from nova_assets.store.backfill import BackfillPreview


@click.command(cls=NovaCommand)
@click.argument("dataset", required=False)
@click.argument("partitions", nargs=-1, metavar="[COLUMN=VALUE|COLUMN=FROM..TO]...")
@click.option(
    "--downstream",
    default="all",
    metavar="all|none|NAME,…",
    show_default=True,
    help="Datasets that are computed again after DATASET.",
)
@click.option(
    "--priority",
    type=click.Choice(list(PRIORITIES)),
    default="low",
    show_default=True,
    help="Order among missing and stale partitions.",
)
@click.option("--why", default="", metavar="TEXT", help="Reason, stored with the backfill.")
@click.option("--all", "all_partitions", is_flag=True, help="All partitions of DATASET.")
@click.option(
    "--cancel", metavar="ID", help="Cancel backfill ID. Partitions that it has not computed yet stay as they are."
)
@click.option("--dry-run", is_flag=True, help="List the partitions and what they cost last time. Change nothing.")
def backfill(
    deployment: Deployment,
    dataset: str | None,
    partitions: tuple[str, ...],
    downstream: str,
    priority: str,
    why: str,
    all_partitions: bool,
    cancel: str | None,
    dry_run: bool,
) -> CommandResult:
    """Compute partitions of DATASET again, with the partitions that were computed from them.

    The command marks the partitions as dirty, and nova tick computes them. Each partition waits until its inputs are
    computed again, and readers of a dirty partition wait, too. Datasets that --downstream leaves out stay as they are.
    With a low priority, the backfill runs after missing and stale partitions. With a high priority, it runs before
    them.

    \b
    nova backfill store_sales day=2022-03-01..2022-03-31 store=Paris --why "wrong prices"

    JSON: {"dry_run", "backfill": ID or null, "seconds": number or null, "parts": [{"dataset", "partition", "rows",
    "bytes", "seconds": null where it never ran}], "left": {dataset: partitions}}; with --cancel {"backfill", "left":
    number}
    """
    if cancel is not None:
        if dataset is not None:
            raise click.UsageError("--cancel takes no DATASET and no partitions")
        return _cancel_backfill(deployment, cancel, dry_run)
    if dataset is None:
        raise click.UsageError("DATASET is missing; nova show lists the datasets")
    followers = _parse_downstream(downstream)
    with deployment.open(dry_run=dry_run) as store:
        preview = store.preview_backfill(dataset, *partitions, downstream=followers, everything=all_partitions)
        created_backfill = None
        if not dry_run:
            created_backfill = store.backfill(
                dataset, priority=cast(Priority, priority), why=why, by=current_user(), preview=preview
            )
    return _preview_result(preview, created_backfill)


@click.command(cls=NovaCommand)
@click.argument("backfill_id", metavar="[ID]", required=False)
@click.option("--limit", default=20, show_default=True, help="Maximum number of backfills, newest first.")
def backfills(deployment: Deployment, backfill_id: str | None, limit: int) -> CommandResult:
    """List the backfills with their requester, reason and progress. With ID, list each partition of that backfill.

    JSON: {"backfills": [{"backfill", "dataset", "at", "by", "why", "priority", "downstream", "state", "parts": {state:
    number}}]}; of one, that and "partitions": [{"dataset", "partition", "state", "ended_at", "seq", "execution_id"}]
    """
    with deployment.open_read_only() as store:
        if backfill_id is None:
            all_backfills = store.backfills(limit)
            return CommandResult(
                {"backfills": [_backfill_json(b) for b in all_backfills]},
                lambda console: _show_backfills(console, all_backfills),
            )
        requested_backfill = store.catalog.backfills.get(backfill_id)
        parts = _attach_part_states(store, store.catalog.backfills.parts(backfill_id))
    data = {
        **_backfill_json(requested_backfill),
        "partitions": [
            {
                "dataset": p.dataset,
                "partition": p.partition,
                "state": state,
                "ended_at": format_iso_time(p.ended_at),
                "seq": p.seq,
                "execution_id": p.execution_id,
            }
            for p, state in parts
        ],
    }
    return CommandResult(data, lambda console: _show_backfill(console, requested_backfill, parts))


def _cancel_backfill(deployment: Deployment, backfill_id: str, dry_run: bool) -> CommandResult:
    with deployment.open(with_project=False, dry_run=dry_run) as store:
        waiting = store.catalog.backfills.get(backfill_id).partition_counts.get("waiting", 0)
        cancelled_count = waiting if dry_run else store.cancel_backfill(backfill_id)
    verb = "would stay" if dry_run else "stays" if cancelled_count == 1 else "stay"
    message = f"{pluralize(cancelled_count, 'partition')} {verb} as before"
    return CommandResult({"backfill": backfill_id, "left": cancelled_count}, lambda console: console.print(message))


def _parse_downstream(option_text: str) -> Literal["all", "none"] | Collection[str]:
    if option_text in ("all", "none"):
        return cast(Literal["all", "none"], option_text)
    return [n.strip() for n in option_text.split(",") if n.strip()]


def _preview_result(preview: BackfillPreview, created: Backfill | None) -> CommandResult:
    parts, excluded_counts = preview.affected.parts, dict(preview.affected.excluded_counts or {})
    estimated_seconds = preview.seconds
    data: dict[str, Any] = {
        "dry_run": created is None,
        "backfill": None if created is None else created.id,
        "seconds": estimated_seconds,
        "parts": [{"dataset": d, "partition": p, **_last_cost_json(preview, d, p)} for d, p in parts],
        "left": excluded_counts,
    }

    def show(console: Console) -> None:
        rows = []
        for d, p in parts[:MAX_LISTED_PARTITIONS]:
            c = preview.costs.get((d, p))
            costs = () if c is None else (format_count(c.rows), format_bytes(c.bytes), format_duration(c.seconds))
            rows.append((d, p, *costs))
        numbers = ("rows", "size", "took")
        print_table(console, ("dataset", "partition", *numbers), rows, right_aligned=numbers)
        if len(parts) > MAX_LISTED_PARTITIONS:
            console.print(f"and {len(parts) - MAX_LISTED_PARTITIONS} more")
        about = "" if estimated_seconds is None else f", in about {format_duration(estimated_seconds)}"
        console.print(
            f"{pluralize(len(parts), 'partition')} {'would be' if created is None else 'will be'} computed again{about}"
        )
        for name, n in excluded_counts.items():
            console.print(f"not computed again: {name}, although {pluralize(n, 'partition')} of it read these")
        if created is not None:
            console.print(
                f"backfill {created.id}; compute it: nova tick --all; show its progress: nova backfills {created.id}"
            )

    return CommandResult(data, show)


def _last_cost_json(preview: BackfillPreview, dataset: str, partition: str) -> dict[str, Any]:
    cost = preview.costs.get((dataset, partition))
    return {name: getattr(cost, name, None) for name in ("rows", "bytes", "seconds")}


def _attach_part_states(store: Store, parts: Sequence[BackfillPartition]) -> list[tuple[BackfillPartition, str]]:
    """Parts of a backfill with their states. A waiting part that runs or has failed gets that state instead."""
    running, failing = store.catalog.scheduler.running_partitions(), store.catalog.scheduler.failing_partitions()
    parts_with_state = []
    for part in parts:
        key, state = (part.dataset, part.partition), str(part.state)
        if part.state == "waiting" and key in running:
            state = "running"
        elif part.state == "waiting" and key in failing:
            state = f"failed {failing[key].consecutive} times" if failing[key].consecutive != 1 else "failed once"
        parts_with_state.append((part, state))
    return parts_with_state


def _backfill_json(backfill_request: Backfill) -> dict[str, Any]:
    return {
        "backfill": backfill_request.id,
        "dataset": backfill_request.dataset,
        "at": format_iso_time(backfill_request.at),
        "by": backfill_request.by,
        "why": backfill_request.why,
        "priority": backfill_request.priority,
        "downstream": list(backfill_request.downstream),
        "state": backfill_request.state,
        "parts": dict(backfill_request.partition_counts),
    }


def _show_backfills(console: Console, requests: Sequence[Backfill]) -> None:
    columns = ("backfill", "state", "made", "of", "priority", "requested", "by", "why")
    rows = []
    for b in requests:
        made, of = format_count(b.partition_counts.get("made", 0)), format_count(b.partition_count)
        rows.append((b.id, b.state, made, of, b.priority, format_time(b.at), b.by, b.why))
    empty = "there are no backfills yet; nova backfill DATASET requests one"
    print_table(console, columns, rows, right_aligned=("made", "of"), shorten=("why",), empty=empty)


def _show_backfill(
    console: Console, request: Backfill, parts_with_state: Sequence[tuple[BackfillPartition, str]]
) -> None:
    console.print(
        f"{request.id}: {request.state}; requested {format_time(request.at)} by {request.by or 'an unknown user'}"
    )
    if request.why:
        console.print(f"why: {request.why}")
    console.print(f"downstream: {', '.join(request.downstream) or 'none'}; priority: {request.priority}")
    rows = [
        (p.dataset, p.partition, state, "" if p.seq is None else format_count(p.seq), p.execution_id or "")
        for p, state in parts_with_state[:MAX_LISTED_PARTITIONS]
    ]
    print_table(console, ("dataset", "partition", "state", "number", "execution"), rows)
    if len(parts_with_state) > MAX_LISTED_PARTITIONS:
        console.print(f"and {len(parts_with_state) - MAX_LISTED_PARTITIONS} more")
