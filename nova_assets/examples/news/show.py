"""What the example prints: executions as they happen, and the figures of a check as Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.markup import escape

from nova_assets.examples.news.check import Report
from nova_assets.examples.news.measure import Shares
from nova_assets.examples.news.replay import Arrival
from nova_assets.model.execution import Execution
from nova_assets.store.store import Store


def show_arrival(console: Console, arrival: Arrival) -> None:
    """One crawl: what arrived, then for each execution its blocks, rows, what was new, and how long it took."""
    name, pages = arrival.crawl.name, arrival.crawl.articles.num_rows
    if arrival.insert.repeated:
        console.print(f"[dim]{escape(name)}: {pages} pages, here already as articles {arrival.insert.seq}[/dim]")
    else:
        block = arrival.insert.blocks[0].range if arrival.insert.blocks else "nothing"
        console.print(f"[bold]{escape(name)}[/bold]: {pages} pages arrived as articles {block}")
    for run in arrival.runs:
        for line in _execution(run):
            console.print(escape(line), highlight=False)
    unique = arrival.rows("unique_articles")
    if any(run.binding == "dedup" for run in arrival.runs):
        console.print(f"  [green]{unique} new[/green] of {pages}, the rest seen before", highlight=False)


def _execution(run: Execution) -> Iterator[str]:
    seconds = (run.finished_at - run.started_at).total_seconds() if run.finished_at else 0.0
    consumed = run.commit.consumed if run.commit else {}
    read = ", ".join(_read(*item) for item in consumed.items()) or "nothing"
    yield f"  {run.binding}  ({seconds:.1f} s)  read {read}"
    for block in run.commit.blocks if run.commit else ():
        yield f"    → {block.channel} {block.range}: {block.rows} rows, {block.bytes / 1024:.0f} KiB"
    for task in run.tasks:
        yield f"      {task.task}: {'nothing new, skipped' if task.skipped else f'{task.seconds:.1f} s'}"


def _read(channel: str, pin: tuple[int | None, int]) -> str:
    cursor, head = pin
    return f"{channel} B{head}" if cursor is None else f"{channel} Δ({cursor}→{head})"


def show_store(console: Console, store: Store) -> None:
    """The channels as they stand, and how to look at them in Dagster."""
    console.print()
    for state in store.channels():
        size = f"{state.rows} rows in {state.blocks} blocks, {state.bytes / 1024:.0f} KiB"
        console.print(f"{state.channel.name:<16} at {state.head:>3}: {size}", highlight=False)
    console.print()
    console.print("Look at it in the Dagster UI, from this folder:  [bold]make ui[/bold]")
    console.print(
        "or, with a Dagster home of your own:  DAGSTER_HOME=… dagster dev -w workspace.yaml",
        highlight=False,
        markup=False,
    )


def markdown(report: Report, command: str) -> str:
    """A report as a section of docs/news.md."""
    return "\n".join([*_crawl_table(report, command), *_totals(report), *_fixed(report)]) + "\n"


def _crawl_table(report: Report, command: str) -> Iterator[str]:
    yield f"## {report.source}"
    yield ""
    yield f"Made by `{command}`."
    yield ""
    yield "| crawl | versions in | gone | template blocks | unique out | article words kept | other words removed |"
    yield "|---|--:|--:|--:|--:|--:|--:|"
    for crawl in report.crawls:
        counts = f"{crawl.versions} | {crawl.gone} | {crawl.templates} | {crawl.unique}"
        yield f"| {crawl.name} | {counts} | {_percentages(crawl.shares)} |"
    known = [crawl.shares for crawl in report.crawls if crawl.shares is not None]
    versions, gone, unique = (sum(getattr(c, part) for c in report.crawls) for part in ("versions", "gone", "unique"))
    yield f"| all | {versions} | {gone} | | {unique} | {_percentages(sum(known, Shares()) if known else None)} |"
    yield ""


def _percentages(found: Shares | None) -> str:
    return "– | –" if found is None else f"{found.kept_share:.2%} | {found.removed_share:.2%}"


def _totals(report: Report) -> Iterator[str]:
    if report.articles is not None:
        yield f"- Different articles according to the truth: {report.articles}."
    yield f"- Near-duplicate pairs (resemblance of at least 0.2) after the last crawl: {report.near}."
    if report.expected_near is not None:
        near = report.expected_near
        yield (
            f"- The truth has {near.expected} pairs, {near.both} of them are among ours: "
            f"precision {near.precision:.1%}, recall {near.recall:.1%}."
        )


def _fixed(report: Report) -> Iterator[str]:
    counts = ", ".join(f"{name} {unique}" for name, unique in report.fixed.items())
    yield f"- Unique articles with templates fixed, batch by batch: {counts}."
    yield f"- Invariants: {'all hold' if not report.problems else f'{len(report.problems)} do not hold'}."
    yield from (f"  - {problem}" for problem in report.problems)
