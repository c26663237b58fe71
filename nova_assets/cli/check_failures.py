"""``nova check-failures``: show the rows that violate the data checks of a channel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from nova_assets.cli.command import CommandResult, NovaCommand
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.read import row_grid, to_json_value
from nova_assets.cli.rendering import print_progress
from nova_assets.formats.python_values import to_python_rows
from nova_assets.store.checks import FailingRows
from nova_assets.store.store import Store

if TYPE_CHECKING:
    import pyarrow as pa


@click.command(cls=NovaCommand)
@click.argument("channel")
@click.option("--check", metavar="NAME", help="Only this check.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    metavar="N",
    help="Maximum number of rows of each check.",
)
def check_failures(deployment: Deployment, channel: str, check: str | None, limit: int) -> CommandResult:
    """Show the rows that violate the data checks of CHANNEL.

    If an execution failed because of its checks, these are rows of its unpublished output. Otherwise, they are rows
    that the channel has now. nova calls the checks again, and starts Spark for that.

    \b
    JSON: {"channel", "checks": [{"check", "binding", "execution": ID or null, "rows": [{COLUMN: VALUE}] or null,
           "has_more", "reason": why there are no rows, or null}]}
    """
    with deployment.open_read_only(with_project=True) as store:
        found = store.failing_rows(channel, check)
        if found:
            print_progress(f"calling the checks of {channel}; starting Spark takes a moment", deployment.quiet)
        tables = [_fetch(store, f, limit + 1) for f in found]
    data = {"channel": channel, "checks": [_json(f, t, limit) for f, t in zip(found, tables, strict=True)]}
    return CommandResult(data, lambda console: _show(console, channel, found, tables, limit))


def _fetch(store: Store, failing: FailingRows, limit: int) -> pa.Table | None:
    if failing.rows is None:
        return None
    with store.engine.computation_scope():
        return store.engine.frames.to_arrow(failing.rows.limit(limit))


def _json(failing: FailingRows, rows: pa.Table | None, limit: int) -> dict[str, Any]:
    shown = None if rows is None else to_python_rows(rows.slice(0, limit))
    return {
        "check": failing.check,
        "binding": failing.binding,
        "execution": failing.execution,
        "rows": None if shown is None else [{k: to_json_value(v) for k, v in row.items()} for row in shown],
        "has_more": rows is not None and rows.num_rows > limit,
        "reason": failing.reason or None,
    }


def _show(console: Console, channel: str, found: list[FailingRows], tables: list[pa.Table | None], limit: int) -> None:
    if not found:
        console.print(f"No check is about {channel}.", soft_wrap=True)
    for failing, rows in zip(found, tables, strict=True):
        of = f"output of execution {failing.execution[:8]}" if failing.execution else f"rows of {channel} now"
        heading = f"{failing.check}, {of}"
        if rows is None:
            console.print(f"{heading}: {failing.reason}", soft_wrap=True)
            continue
        if not rows.num_rows:
            console.print(f"{heading}: no row violates it", soft_wrap=True)
            continue
        console.print(f"{heading}:", soft_wrap=True)
        console.print(row_grid(rows.slice(0, limit)))
        if rows.num_rows > limit:
            console.print("there are more rows; --limit N shows N rows")
