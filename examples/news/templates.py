"""Detection of template blocks, which belong to a site and not to an article.

A block is a template block if most pages contain the block while it is in use. A block is in use from the first to the
last crawl with the block. So a navigation bar that a redesign has replaced still counts for older versions of the
pages, and a menu entry that was added yesterday counts from yesterday.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

MIN_SHARE = 0.8
"""Minimum share of pages with a template block, among the pages that were crawled while the block was in use."""

MIN_PAGES = 3
"""Minimum number of pages with a template block. Two equal pages may simply be the same article twice."""


@dataclass(frozen=True)
class Version:
    """One crawled version of one page of a site."""

    url: str
    crawled_at: datetime
    blocks: Sequence[str]


@dataclass(frozen=True)
class TemplateBlock:
    """A template block, with the evidence."""

    block: str
    pages: int
    share: float
    first_seen: datetime
    last_seen: datetime


def detect_template_blocks(
    versions: Iterable[Version], min_share: float = MIN_SHARE, min_pages: int = MIN_PAGES
) -> list[TemplateBlock]:
    """Template blocks of one site, sorted by their text.

    A page counts once for a block, however many of its versions contain the block. A site with fewer than ``min_pages``
    pages has no template blocks yet.

    Args:
        versions: all crawled versions of the site's pages.
    """
    versions = list(versions)
    urls_by_block: dict[str, set[str]] = {}
    usage_by_block: dict[str, tuple[datetime, datetime]] = {}
    for version in versions:
        for block in set(version.blocks):
            urls_by_block.setdefault(block, set()).add(version.url)
            first, last = usage_by_block.get(block, (version.crawled_at, version.crawled_at))
            usage_by_block[block] = min(first, version.crawled_at), max(last, version.crawled_at)
    crawled = _CrawledPageCounter(versions)
    template_blocks = []
    for block in sorted(urls_by_block):
        pages = len(urls_by_block[block])
        if pages < min_pages:
            continue
        first, last = usage_by_block[block]
        share = pages / crawled.count_between(first, last)
        if share > min_share:
            template_blocks.append(TemplateBlock(block, pages, share, first, last))
    return template_blocks


class _CrawledPageCounter:
    """Counts the pages that were crawled between two times, and caches the counts."""

    def __init__(self, versions: Sequence[Version]) -> None:
        self._times = sorted({(version.crawled_at, version.url) for version in versions})
        self._counts: dict[tuple[datetime, datetime], int] = {}

    def count_between(self, first: datetime, last: datetime) -> int:
        if (first, last) not in self._counts:
            urls = {url for crawled_at, url in self._times if first <= crawled_at <= last}
            self._counts[first, last] = len(urls)
        return self._counts[first, last]
