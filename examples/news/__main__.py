"""The news example on the shell: ``python -m examples.news [FOLDER] [--check]``."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console

from examples.news import pipeline
from examples.news.check import check_source
from examples.news.replay import replay_crawls
from examples.news.show import print_channels, print_crawl_run, render_markdown
from examples.news.sources import Source, load_bundled_feed, read_folder
from examples.news.store_location import open_store
from nova_assets.nova_error import NovaError


@click.command()
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.option("--check", "checked", is_flag=True, help="Print figures, as Markdown; exit 1 if an invariant fails.")
@click.option("--store", type=click.Path(path_type=Path), help="Keep catalog and blocks here instead of .nova/news.")
def main(folder: Path | None, checked: bool, store: Path | None) -> None:
    """Find the unique articles of crawled news sites, crawl by crawl (Nova's Figure 1).

    FOLDER holds crawls/*.parquet, one file per crawl, and optionally truth/ with expected results. Without FOLDER, the
    example runs on a small bundled feed. --check runs in a temporary store and does not change the usual store.
    """
    try:
        source = load_bundled_feed() if folder is None else read_folder(folder)
        if checked:
            sys.exit(_print_check(source, folder))
        _replay_and_print(source, store)
    except NovaError as error:
        click.echo(str(error), err=True)
        sys.exit(1)


def _replay_and_print(source: Source, home: Path | None) -> None:
    console = Console()
    console.print(f"{source.name}: {len(source.crawls)} crawls. Starting Spark takes a moment.", markup=False)
    with open_store(pipeline.project, home) as store, console.status("running"):
        replay_crawls(store, source, lambda crawl_run: print_crawl_run(console, crawl_run))
        print_channels(console, store)


def _print_check(source: Source, folder: Path | None) -> int:
    progress = Console(stderr=True)
    done = 0

    with progress.status(f"{source.name}: {len(source.crawls)} crawls") as status:

        def on_arrival(crawl_run: object) -> None:
            nonlocal done
            done += 1
            status.update(f"{source.name}: {done} of {len(source.crawls)} crawls; then the batchings")

        report = check_source(source, on_arrival)
    place = "" if folder is None else f" {folder}"
    click.echo(render_markdown(report, f"python -m examples.news{place} --check"))
    return 1 if report.problems else 0


if __name__ == "__main__":
    main(prog_name="python -m examples.news")
