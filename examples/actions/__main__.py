"""The actions example on the shell: ``python -m examples.actions FOLDER [--check]``."""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import click
from rich.console import Console

from examples.actions.expected_counts import (
    count_by_date_hour_action,
    describe_count_differences,
    read_expected_counts,
)
from examples.actions.pipeline import project
from examples.actions.unreliable_delivery import UnreliableDelivery
from nova_assets.model.receive_result import ReceiveResult
from nova_assets.nova_error import NovaError
from nova_assets.store.store import Store
from nova_assets.wiring.open_store import open as open_deployment


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option(
    "--check", "checked", is_flag=True, help="Compare with the expected counts in FOLDER; exit 1 if they differ."
)
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="Seed for the order of the files, and for the files that arrive twice.",
)
def main(folder: Path, checked: bool, seed: int) -> None:
    """Copy the log files below FOLDER (*.json.gz) into a watched folder, and count the rows that arrive.

    The files arrive in any order, and some arrive twice. A third arrives before anybody watches, a third in the
    meantime, and a third afterwards.
    """
    console = Console()
    try:
        with tempfile.TemporaryDirectory(prefix="nova-actions-") as home:
            landing = Path(home, "landing")
            landing.mkdir()
            with open_deployment(project(landing), f"sqlite:///{home}/catalog.db", Path(home, "warehouse")) as store:
                deliver_and_receive(
                    store, UnreliableDelivery(folder, landing, seed), lambda part: _print_received(console, part)
                )
                sys.exit(_print_counts_and_differences(console, store, folder if checked else None))
    except NovaError as error:
        click.echo(str(error), err=True)
        sys.exit(1)


def deliver_and_receive(
    store: Store, delivery: UnreliableDelivery, on_received: Callable[[ReceiveResult], None]
) -> ReceiveResult:
    """Deliver all files, receive them, and return the total.

    Args:
        on_received: called with the result of each call of ``receive``.
    """
    before, meanwhile, after = delivery.split_in_thirds()
    delivery.deliver(before)
    total = store.receive("actions")
    on_received(total)
    expected_files = {p.relative_to(delivery.source) for p in (*before, *meanwhile)}
    copying = threading.Thread(target=delivery.deliver, args=(meanwhile,))
    with closing(store.follow("actions", every=0.5)) as following:
        copying.start()
        while total.files < len(expected_files):
            part = next(following)
            on_received(part)
            total += part
    copying.join()
    delivery.deliver(after)
    last = store.receive("actions")
    on_received(last)
    return total + last


def _print_received(console: Console, received: ReceiveResult) -> None:
    console.print(f"{received.files} files, {received.rows} rows, {received.bad} set aside", markup=False)
    for reason, count in received.why.items():
        console.print(f"  {count} such as: {reason}", markup=False)


def _print_counts_and_differences(console: Console, store: Store, folder: Path | None) -> int:
    rows = store.read("actions").to_arrow()
    counts = count_by_date_hour_action(rows)
    partitions = store.partitions("actions")
    actions = {key[2] for key in counts}
    console.print(f"{rows.num_rows} rows, {len(actions)} actions, {len(partitions)} partitions", markup=False)
    if folder is None:
        return 0
    wrong = describe_count_differences(counts, read_expected_counts(folder))
    for line in wrong[:20]:
        console.print(line, style="red", markup=False)
    console.print("counts by date, hour and action equal the truth" if not wrong else f"{len(wrong)} counts are wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    main(prog_name="python -m examples.actions")
