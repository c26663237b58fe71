"""Replaying a source: crawl after crawl arrives, and each trigger fires when it would have fired then.

The crawls' own times stand in for the clock, so that seven days pass between crawls that are a week apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from nova_assets.examples.news.sources import Crawl, Source
from nova_assets.model.commit import Commit
from nova_assets.model.execution import Execution
from nova_assets.store.store import Store

DETECT_EVERY = timedelta(days=7)
"""The period of template detection's trigger (see pipeline.py)."""


@dataclass(frozen=True)
class Arrival:
    """What one crawl set off.

    Args:
        crawl: what arrived.
        insert: the commit that put it onto the articles channel.
        runs: the executions that followed.
    """

    crawl: Crawl
    insert: Commit
    runs: tuple[Execution, ...]

    def rows(self, channel: str) -> int:
        """How many rows these executions added to a channel."""
        commits = [run.commit for run in self.runs if run.commit is not None]
        return sum(block.rows for commit in commits for block in commit.blocks if block.channel == channel)


def replay(store: Store, source: Source, tell: Callable[[Arrival], None] = lambda arrival: None) -> list[Arrival]:
    """Insert each crawl and run what is due. Crawls that the store has already are not inserted again."""
    arrivals = []
    detected_at: datetime | None = None
    for crawl in source.crawls:
        insert = store.insert("articles", crawl.articles, idempotency_key=f"{source.name}/{crawl.name}")
        runs = []
        if not insert.repeated and (detected_at is None or crawl.started_at - detected_at >= DETECT_EVERY):
            runs.append(store.run("detect"))
            detected_at = crawl.started_at
        if _has_new_articles(store):
            runs.append(store.run("dedup"))
        arrivals.append(Arrival(crawl, insert, tuple(runs)))
        tell(arrivals[-1])
    return arrivals


def _has_new_articles(store: Store) -> bool:
    """What the data trigger of `dedup` asks: has the channel gone past where the binding has read to?"""
    head = next(state.head for state in store.channels() if state.channel.name == "articles")
    read = [cursor.seq for cursor in store.cursors("dedup") if cursor.channel == "articles"]
    return head > max(read, default=0)
