"""The actions example on the shell: ``python -m nova_assets.examples.actions FOLDER [--check]``."""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import click
from rich.console import Console

from nova_assets.examples.actions.check import counts, problems, truth
from nova_assets.examples.actions.mail import Postman
from nova_assets.examples.actions.pipeline import project
from nova_assets.model.receive_result import ReceiveResult
from nova_assets.nova_error import NovaError
from nova_assets.store.store import Store
from nova_assets.wiring.open_store import open as open_deployment


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--check", "checked", is_flag=True, help="Compare the counts with those beside the files; exit 1 if not.")
@click.option(
    "--seed", type=int, default=0, show_default=True, help="Decides in which order files arrive, and how often."
)
def main(folder: Path, checked: bool, seed: int) -> None:
    """Have the log files below FOLDER (*.json.gz) arrive in another folder: in any order, some twice, a third of them
    before anybody watches, a third while somebody does, and a third after that; and count what has come.
    """
    console = Console()
    try:
        with tempfile.TemporaryDirectory(prefix="nova-actions-") as home:
            landing = Path(home, "landing")
            landing.mkdir()
            with open_deployment(project(landing), f"sqlite:///{home}/catalog.db", Path(home, "warehouse")) as store:
                arrive(store, Postman(folder, landing, seed), lambda found: _show(console, found))
                sys.exit(_report(console, store, folder if checked else None))
    except NovaError as error:
        click.echo(str(error), err=True)
        sys.exit(1)


def arrive(store: Store, postman: Postman, tell: Callable[[ReceiveResult], None]) -> ReceiveResult:
    """Everything arrives and is received. Gives what was taken in all.

    Args:
        tell: called with what each receiving took.
    """
    before, meanwhile, after = postman.thirds()
    postman.deliver(before)
    found = store.receive("actions")
    tell(found)
    expected = {p.relative_to(postman.source) for p in (*before, *meanwhile)}
    delivery = threading.Thread(target=postman.deliver, args=(meanwhile,))
    with closing(store.follow("actions", every=0.5)) as following:
        delivery.start()
        while found.files < len(expected):
            more = next(following)
            tell(more)
            found += more
    delivery.join()
    postman.deliver(after)
    last = store.receive("actions")
    tell(last)
    return found + last


def _show(console: Console, found: ReceiveResult) -> None:
    console.print(f"{found.files} files, {found.rows} rows, {found.bad} set aside", markup=False)
    for reason, count in found.why.items():
        console.print(f"  {count} such as: {reason}", markup=False)


def _report(console: Console, store: Store, folder: Path | None) -> int:
    rows = store.read("actions").to_arrow()
    found = counts(rows)
    partitions = store.partitions("actions")
    actions = {key[2] for key in found}
    console.print(f"{rows.num_rows} rows, {len(actions)} actions, {len(partitions)} partitions", markup=False)
    if folder is None:
        return 0
    wrong = problems(found, truth(folder))
    for line in wrong[:20]:
        console.print(line, style="red", markup=False)
    console.print("counts by date, hour and action equal the truth" if not wrong else f"{len(wrong)} counts are wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    main(prog_name="python -m nova_assets.examples.actions")
