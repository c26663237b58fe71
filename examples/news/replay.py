"""Replay of a source: the crawls arrive one after the other, and each trigger fires as it would have fired then.

The times of the crawls replace the clock. So seven days pass between two crawls that are a week apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from examples.news.sources import Crawl, Source
from nova_assets.model.commit import Commit
from nova_assets.model.execution import Execution
from nova_assets.store.store import Store

DETECT_EVERY = timedelta(days=7)
"""Period of the trigger of template detection (see pipeline.py)."""


@dataclass(frozen=True)
class CrawlRun:
    """Insert of one crawl, and the executions that followed.

    Args:
        crawl: the crawl that arrived.
        insert: commit that inserted the crawl into the articles channel.
        runs: the executions that followed.
    """

    crawl: Crawl
    insert: Commit
    runs: tuple[Execution, ...]

    def count_rows_added(self, channel: str) -> int:
        """Number of rows that the executions added to a channel."""
        commits = [run.commit for run in self.runs if run.commit is not None]
        return sum(block.rows for commit in commits for block in commit.blocks if block.channel == channel)


def replay_crawls(
    store: Store, source: Source, on_arrival: Callable[[CrawlRun], None] = lambda arrival: None
) -> list[CrawlRun]:
    """Insert each crawl and run the bindings that are due. Crawls that the store already has are not inserted again."""
    crawl_runs = []
    detected_at: datetime | None = None
    for crawl in source.crawls:
        insert = store.insert("articles", crawl.articles, idempotency_key=f"{source.name}/{crawl.name}")
        runs = []
        if not insert.repeated and (detected_at is None or crawl.started_at - detected_at >= DETECT_EVERY):
            runs.append(store.run("detect"))
            detected_at = crawl.started_at
        if _has_new_articles(store):
            runs.append(store.run("dedup"))
        crawl_runs.append(CrawlRun(crawl, insert, tuple(runs)))
        on_arrival(crawl_runs[-1])
    return crawl_runs


def _has_new_articles(store: Store) -> bool:
    """Whether the articles channel has numbers that ``dedup`` has not read, as its data trigger checks."""
    head = next(state.head for state in store.channels() if state.channel.name == "articles")
    read = [cursor.seq for cursor in store.cursors("dedup") if cursor.channel == "articles"]
    return head > max(read, default=0)
