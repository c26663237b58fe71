"""Template detection: which blocks belong to a site and which to the article.

A block is thought to be template when most pages carried it while it was in use. "While it was in use" is the
time between the first and the last crawl that saw it, so that a navigation bar which a redesign has replaced is still
known for the older versions of the pages, and yesterday's new menu entry counts from yesterday.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

MIN_SHARE = 0.8
"""A template block is on more than this share of the pages crawled while it was in use."""

MIN_PAGES = 3
"""A template block is on at least this many pages. Two pages that agree may simply be the same article twice."""


@dataclass(frozen=True)
class Version:
    """One crawled version of one page of a site."""

    url: str
    crawled_at: datetime
    blocks: Sequence[str]


@dataclass(frozen=True)
class TemplateBlock:
    """A block thought to be template, with what speaks for it."""

    block: str
    pages: int
    share: float
    first_seen: datetime
    last_seen: datetime


def detect(
    versions: Iterable[Version], min_share: float = MIN_SHARE, min_pages: int = MIN_PAGES
) -> list[TemplateBlock]:
    """The template blocks among all crawled versions of one site's pages, in the order of their text.

    A page counts once for a block, however many of its versions carry it and however often. A site of fewer than
    `min_pages` pages has no template yet.
    """
    versions = list(versions)
    carriers: dict[str, set[str]] = {}
    in_use: dict[str, tuple[datetime, datetime]] = {}
    for version in versions:
        for block in set(version.blocks):
            carriers.setdefault(block, set()).add(version.url)
            first, last = in_use.get(block, (version.crawled_at, version.crawled_at))
            in_use[block] = min(first, version.crawled_at), max(last, version.crawled_at)
    crawled = _PagesCrawled(versions)
    found = []
    for block in sorted(carriers):
        pages = len(carriers[block])
        if pages < min_pages:
            continue
        first, last = in_use[block]
        share = pages / crawled.between(first, last)
        if share > min_share:
            found.append(TemplateBlock(block, pages, share, first, last))
    return found


class _PagesCrawled:
    """Counts the pages crawled between two times; many blocks ask about the same two."""

    def __init__(self, versions: Sequence[Version]) -> None:
        self._times = sorted({(version.crawled_at, version.url) for version in versions})
        self._counts: dict[tuple[datetime, datetime], int] = {}

    def between(self, first: datetime, last: datetime) -> int:
        if (first, last) not in self._counts:
            urls = {url for crawled_at, url in self._times if first <= crawled_at <= last}
            self._counts[first, last] = len(urls)
        return self._counts[first, last]
