"""The news example on the shell: ``python -m nova_assets.examples.news [FOLDER] [--check]``."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console

from nova_assets.examples.news import pipeline
from nova_assets.examples.news.check import check
from nova_assets.examples.news.home import open_store
from nova_assets.examples.news.replay import replay
from nova_assets.examples.news.show import markdown, show_arrival, show_store
from nova_assets.examples.news.sources import Source, own_feed, read_folder
from nova_assets.nova_error import NovaError


@click.command()
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.option("--check", "checked", is_flag=True, help="Print figures, as Markdown; exit 1 if an invariant fails.")
@click.option("--store", type=click.Path(path_type=Path), help="Keep catalog and blocks here instead of .nova/news.")
def main(folder: Path | None, checked: bool, store: Path | None) -> None:
    """Find the unique articles of crawled news sites, crawl by crawl (Nova's Figure 1).

    FOLDER holds crawls/*.parquet, one file per crawl, and may hold truth/ beside it; without it, the example runs on a
    small feed of its own. --check runs in a temporary store and leaves the usual one alone.
    """
    try:
        source = own_feed() if folder is None else read_folder(folder)
        if checked:
            sys.exit(_check(source, folder))
        _run(source, store)
    except NovaError as error:
        click.echo(str(error), err=True)
        sys.exit(1)


def _run(source: Source, home: Path | None) -> None:
    console = Console()
    console.print(f"{source.name}: {len(source.crawls)} crawls. Starting Spark takes a moment.", markup=False)
    with open_store(pipeline.project, home) as store, console.status("running"):
        replay(store, source, lambda arrival: show_arrival(console, arrival))
        show_store(console, store)


def _check(source: Source, folder: Path | None) -> int:
    progress = Console(stderr=True)
    done = 0

    with progress.status(f"{source.name}: {len(source.crawls)} crawls") as status:

        def tell(arrival: object) -> None:
            nonlocal done
            done += 1
            status.update(f"{source.name}: {done} of {len(source.crawls)} crawls; then the batchings")

        report = check(source, tell)
    place = "" if folder is None else f" {folder}"
    click.echo(markdown(report, f"python -m nova_assets.examples.news{place} --check"))
    return 1 if report.problems else 0


if __name__ == "__main__":
    main(prog_name="python -m nova_assets.examples.news")
