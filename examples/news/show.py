"""Output of the example: executions as they happen, and the figures of a check as Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.markup import escape

from examples.news.check import CheckReport
from examples.news.measure import WordCounts
from examples.news.replay import CrawlRun
from nova_assets.model.execution import Execution
from nova_assets.store.store import Store


def print_crawl_run(console: Console, crawl_run: CrawlRun) -> None:
    """Print the arrival of a crawl, then the reads, blocks, rows and duration of each execution."""
    name, pages = crawl_run.crawl.name, crawl_run.crawl.articles.num_rows
    if crawl_run.insert.repeated:
        console.print(f"[dim]{escape(name)}: {pages} pages, here already as articles {crawl_run.insert.seq}[/dim]")
    else:
        block = crawl_run.insert.blocks[0].range if crawl_run.insert.blocks else "nothing"
        console.print(f"[bold]{escape(name)}[/bold]: {pages} pages arrived as articles {block}")
    for run in crawl_run.runs:
        for line in _execution_lines(run):
            console.print(escape(line), highlight=False)
    unique = crawl_run.count_rows_added("unique_articles")
    if any(run.binding == "dedup" for run in crawl_run.runs):
        console.print(f"  [green]{unique} new[/green] of {pages}, the rest seen before", highlight=False)


def _execution_lines(run: Execution) -> Iterator[str]:
    seconds = (run.finished_at - run.started_at).total_seconds() if run.finished_at else 0.0
    consumed = run.commit.consumed if run.commit else {}
    read = ", ".join(_format_read_range(*item) for item in consumed.items()) or "nothing"
    yield f"  {run.binding}  ({seconds:.1f} s)  read {read}"
    for block in run.commit.blocks if run.commit else ():
        yield f"    → {block.channel} {block.range}: {block.rows} rows, {block.bytes / 1024:.0f} KiB"
    for task in run.tasks:
        yield f"      {task.task}: {'nothing new, skipped' if task.skipped else f'{task.seconds:.1f} s'}"


def _format_read_range(channel: str, pin: tuple[int | None, int]) -> str:
    cursor, head = pin
    return f"{channel} B{head}" if cursor is None else f"{channel} Δ({cursor}→{head})"


def print_channels(console: Console, store: Store) -> None:
    """Print the current state of the channels, and the command that shows them in Dagster."""
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


def render_markdown(report: CheckReport, command: str) -> str:
    """A report as a section of docs/news.md."""
    return "\n".join([*_crawl_table_lines(report, command), *_total_lines(report), *_batching_lines(report)]) + "\n"


def _crawl_table_lines(report: CheckReport, command: str) -> Iterator[str]:
    yield f"## {report.source_name}"
    yield ""
    yield f"Made by `{command}`."
    yield ""
    yield "| crawl | versions in | gone | template blocks | unique out | article words kept | other words removed |"
    yield "|---|--:|--:|--:|--:|--:|--:|"
    for crawl in report.crawls:
        counts = f"{crawl.versions} | {crawl.gone} | {crawl.templates} | {crawl.unique}"
        yield f"| {crawl.name} | {counts} | {_format_percentages(crawl.shares)} |"
    word_counts = [crawl.shares for crawl in report.crawls if crawl.shares is not None]
    versions, gone, unique = (sum(getattr(c, part) for c in report.crawls) for part in ("versions", "gone", "unique"))
    total = sum(word_counts, WordCounts()) if word_counts else None
    yield f"| all | {versions} | {gone} | | {unique} | {_format_percentages(total)} |"
    yield ""


def _format_percentages(word_counts: WordCounts | None) -> str:
    return "– | –" if word_counts is None else f"{word_counts.kept_share:.2%} | {word_counts.removed_share:.2%}"


def _total_lines(report: CheckReport) -> Iterator[str]:
    if report.expected_article_count is not None:
        yield f"- Different articles according to the truth: {report.expected_article_count}."
    yield f"- Near-duplicate pairs (resemblance of at least 0.2) after the last crawl: {report.near_duplicate_pairs}."
    if report.pair_agreement is not None:
        near = report.pair_agreement
        yield (
            f"- The truth has {near.expected_count} pairs, {near.common_count} of them are among ours: "
            f"precision {near.precision:.1%}, recall {near.recall:.1%}."
        )


def _batching_lines(report: CheckReport) -> Iterator[str]:
    counts = ", ".join(f"{name} {unique}" for name, unique in report.article_count_by_batching.items())
    yield f"- Unique articles with templates fixed, batch by batch: {counts}."
    yield f"- Invariants: {'all hold' if not report.problems else f'{len(report.problems)} do not hold'}."
    yield from (f"  - {problem}" for problem in report.problems)
