"""The same crawls, in the same order, but run in other batches: what comes out must not depend on it.

One workflowette is bound several times over one articles channel. Each binding has cursors of its own, so each can be
run after other crawls than the rest.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import pyarrow as pa

import nova_assets as nova
from nova_assets.examples.news import pipeline
from nova_assets.examples.news.shingles import shingle_hash, shingles
from nova_assets.examples.news.sources import Source
from nova_assets.examples.news.text import blocks
from nova_assets.model.channel import Channel
from nova_assets.model.project import Project
from nova_assets.store.store import Store

Ends = tuple[int, ...]
"""The crawls, by position, after which a binding is run."""

First = tuple[datetime, str]
"""The (crawled_at, url) of the article that stands for a hash."""


def batchings(crawls: int) -> dict[str, Ends]:
    """One crawl at a time, all at once, and three random ways of batching them (the same ones every time)."""
    last = crawls - 1
    found = {"one_by_one": tuple(range(crawls)), "all_at_once": (last,)}
    for seed in (1, 2, 3):
        cuts = [position for position in range(last) if random.Random(f"{seed}/{position}").random() < 0.25]
        found[f"random_{seed}"] = (*cuts, last)
    return found


@dataclass(frozen=True)
class Outcome:
    """What one batching made of the crawls.

    Args:
        firsts: hash -> the article that stands for it.
        expected: the same, worked out without the framework: of the first batch that has the hash, the least.
        rows: rows of the unique articles; more than hashes would mean that one came twice.
        seen: the hashes remembered.
    """

    firsts: Mapping[str, First]
    expected: Mapping[str, First]
    rows: int
    seen: frozenset[str]


def run_batchings(store: Store, source: Source, templates: pa.Table, ways: Mapping[str, Ends]) -> dict[str, Outcome]:
    """Run every batching, with the templates fixed beforehand.

    Args:
        store: an empty one, opened with `project(ways)`.
        templates: the rows of the site_templates channel.
    """
    store.insert("site_templates", templates, kind="base")
    for position, crawl in enumerate(source.crawls):
        store.insert("articles", crawl.articles)
        for name, ends in ways.items():
            if position in ends:
                store.run(name)
    hashes = _hashes(source, templates)
    return {name: _outcome(store, name, _expected(hashes, ends)) for name, ends in ways.items()}


def project(ways: Mapping[str, Ends]) -> Project:
    """The de-duping workflowette, bound once for each batching to channels of its own."""
    workflowette = pipeline.dedup.workflowette
    own = (pipeline.tagged_articles, pipeline.unique_articles, pipeline.seen)
    bindings = [
        nova.bind(workflowette, name=name, channels={channel.name: _named(channel, name) for channel in own})
        for name in ways
    ]
    return nova.Project(bindings=bindings)


def _named(channel: Channel, binding: str) -> Channel:
    return replace(channel, name=f"{channel.name}_{binding}")


def _outcome(store: Store, name: str, expected: Mapping[str, First]) -> Outcome:
    unique = store.read(f"unique_articles_{name}", columns=["hash", "crawled_at", "url"]).to_arrow().to_pylist()
    seen = store.read(f"seen_{name}", columns=["hash"]).to_arrow()["hash"].to_pylist()
    firsts = {row["hash"]: (row["crawled_at"], row["url"]) for row in unique}
    return Outcome(firsts, expected, len(unique), frozenset(seen))


def _hashes(source: Source, templates: pa.Table) -> list[list[tuple[str, First]]]:
    """Crawl by crawl, each version's hash, from the text functions alone."""
    known: dict[str, set[str]] = {}
    for site, block in zip(templates["site"].to_pylist(), templates["block"].to_pylist(), strict=True):
        known.setdefault(site, set()).add(block)
    found = []
    for crawl in source.crawls:
        pages = [page for page in crawl.articles.to_pylist() if page["html"] is not None]
        found.append([(_hash(page["html"], known.get(page["site"], set())), _first(page)) for page in pages])
    return found


def _hash(html: str, template: set[str]) -> str:
    return shingle_hash(shingles("\n".join(block for block in blocks(html) if block not in template)))


def _first(page: Mapping[str, object]) -> First:
    return page["crawled_at"], page["url"]  # type: ignore[return-value]


def _expected(hashes: Sequence[Sequence[tuple[str, First]]], ends: Ends) -> dict[str, First]:
    found: dict[str, First] = {}
    start = 0
    for end in ends:
        batch: dict[str, First] = {}
        for crawl in hashes[start : end + 1]:
            for value, first in crawl:
                batch[value] = min(batch.get(value, first), first)
        found = {**batch, **found}
        start = end + 1
    return found
