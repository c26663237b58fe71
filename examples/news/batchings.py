"""Runs of the same crawls in different batches. The result must not depend on the batches.

One workflowette is bound several times to one articles channel. Each binding has its own cursors, so each can run
after different crawls.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import pyarrow as pa

import nova_assets as nova
from examples.news import pipeline
from examples.news.shingles import hash_shingles, shingles
from examples.news.sources import Source
from examples.news.text import split_text_blocks
from nova_assets.model.channel import Channel
from nova_assets.model.project import Project
from nova_assets.store.store import Store

RunPositions = tuple[int, ...]
"""Positions of the crawls after which a binding runs."""

CrawledPage = tuple[datetime, str]
"""The (crawled_at, url) of one version of a page."""


def build_batchings(crawl_count: int) -> dict[str, RunPositions]:
    """One crawl at a time, all at once, and three random batchings (the same ones every time)."""
    last = crawl_count - 1
    result = {"one_by_one": tuple(range(crawl_count)), "all_at_once": (last,)}
    for seed in (1, 2, 3):
        cuts = [position for position in range(last) if random.Random(f"{seed}/{position}").random() < 0.25]
        result[f"random_{seed}"] = (*cuts, last)
    return result


@dataclass(frozen=True)
class BatchingResult:
    """Result of one batching.

    Args:
        article_by_hash: article that represents each hash.
        expected_article_by_hash: the same, computed without the framework: the least article of the first batch
            with the hash.
        row_count: number of rows of the unique articles. A number above the number of hashes means a duplicate.
        seen_hashes: hashes in the channel ``seen``.
    """

    article_by_hash: Mapping[str, CrawledPage]
    expected_article_by_hash: Mapping[str, CrawledPage]
    row_count: int
    seen_hashes: frozenset[str]


def run_batchings(
    store: Store, source: Source, templates: pa.Table, batchings: Mapping[str, RunPositions]
) -> dict[str, BatchingResult]:
    """Run every batching, with fixed templates.

    Args:
        store: an empty store, opened with ``build_batchings_project(batchings)``.
        templates: rows of the channel ``site_templates``.
    """
    store.insert("site_templates", templates, kind="base")
    for position, crawl in enumerate(source.crawls):
        store.insert("articles", crawl.articles)
        for name, run_positions in batchings.items():
            if position in run_positions:
                store.run(name)
    hashes_by_crawl = _hash_articles_by_crawl(source, templates)
    return {
        name: _read_result(store, name, _first_article_by_hash(hashes_by_crawl, run_positions))
        for name, run_positions in batchings.items()
    }


def build_batchings_project(batchings: Mapping[str, RunPositions]) -> Project:
    """The de-duplicating workflowette, bound once for each batching to channels of its own."""
    workflowette = pipeline.dedup.workflowette
    own = (pipeline.tagged_articles, pipeline.unique_articles, pipeline.seen)
    bindings = [
        nova.bind(
            workflowette, name=name, channels={channel.name: _channel_of_binding(channel, name) for channel in own}
        )
        for name in batchings
    ]
    return nova.Project(bindings=bindings)


def _channel_of_binding(channel: Channel, binding: str) -> Channel:
    return replace(channel, name=f"{channel.name}_{binding}")


def _read_result(store: Store, name: str, expected: Mapping[str, CrawledPage]) -> BatchingResult:
    unique = store.read(f"unique_articles_{name}", columns=["hash", "crawled_at", "url"]).to_arrow().to_pylist()
    seen = store.read(f"seen_{name}", columns=["hash"]).to_arrow()["hash"].to_pylist()
    firsts = {row["hash"]: (row["crawled_at"], row["url"]) for row in unique}
    return BatchingResult(firsts, expected, len(unique), frozenset(seen))


def _hash_articles_by_crawl(source: Source, templates: pa.Table) -> list[list[tuple[str, CrawledPage]]]:
    """Hash of each crawled page, crawl by crawl, computed with the text functions alone."""
    template_by_site: dict[str, set[str]] = {}
    for site, block in zip(templates["site"].to_pylist(), templates["block"].to_pylist(), strict=True):
        template_by_site.setdefault(site, set()).add(block)
    result = []
    for crawl in source.crawls:
        pages = [page for page in crawl.articles.to_pylist() if page["html"] is not None]
        result.append(
            [
                (_hash_article(page["html"], template_by_site.get(page["site"], set())), _to_crawled_page(page))
                for page in pages
            ]
        )
    return result


def _hash_article(html: str, template: set[str]) -> str:
    return hash_shingles(shingles("\n".join(block for block in split_text_blocks(html) if block not in template)))


def _to_crawled_page(page: Mapping[str, object]) -> CrawledPage:
    return page["crawled_at"], page["url"]  # type: ignore[return-value]


def _first_article_by_hash(
    hashes_by_crawl: Sequence[Sequence[tuple[str, CrawledPage]]], run_after_crawls: RunPositions
) -> dict[str, CrawledPage]:
    """The least article of the first batch with the hash, for each hash."""
    result: dict[str, CrawledPage] = {}
    start = 0
    for end in run_after_crawls:
        batch: dict[str, CrawledPage] = {}
        for crawl in hashes_by_crawl[start : end + 1]:
            for value, first in crawl:
                batch[value] = min(batch.get(value, first), first)
        result = {**batch, **result}
        start = end + 1
    return result
