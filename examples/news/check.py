"""Figures of the example, and invariants that must hold in every run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from examples.news import batchings, pipeline
from examples.news.batchings import BatchingResult
from examples.news.measure import PairAgreement, TaggedBlock, WordCounts, compare_pairs, count_words
from examples.news.replay import CrawlRun, replay_crawls
from examples.news.shingles import find_similar_pairs, sample_shingles, shingles
from examples.news.sources import MIN_RESEMBLANCE, ExpectedResults, Source
from examples.news.store_location import open_store
from nova_assets.store.store import Store


@dataclass(frozen=True)
class CrawlFigures:
    """Figures of one crawl.

    Args:
        name: name of the crawl.
        versions: page versions that arrived, without removed pages.
        gone: removed pages.
        templates: number of template blocks when the crawl was tagged.
        unique: articles with a new hash.
        shares: words of the articles and other words; None without expected results.
    """

    name: str
    versions: int
    gone: int
    templates: int
    unique: int
    shares: WordCounts | None


@dataclass(frozen=True)
class CheckReport:
    """Result of a check.

    Args:
        source_name: name of the source.
        crawls: figures of the run that detects templates as the crawls arrive.
        expected_article_count: expected number of different articles; None without expected results.
        near_duplicate_pairs: number of near-duplicate pairs among the pages that exist after the last crawl.
        pair_agreement: comparison of these pairs with the expected pairs; None without expected results.
        article_count_by_batching: number of unique articles of each batching, with fixed templates.
        problems: a sentence for each invariant that does not hold.
    """

    source_name: str
    crawls: Sequence[CrawlFigures]
    expected_article_count: int | None
    near_duplicate_pairs: int
    pair_agreement: PairAgreement | None
    article_count_by_batching: Mapping[str, int]
    problems: Sequence[str]


def check_source(source: Source, on_arrival: Callable[[CrawlRun], None] = lambda arrival: None) -> CheckReport:
    """Run the source twice in temporary stores: in the order of arrival, and in batches with fixed templates."""
    run_positions_by_name = batchings.build_batchings(len(source.crawls))
    with TemporaryDirectory(prefix="nova-news-") as folder:
        with open_store(pipeline.project, Path(folder) / "live") as store:
            arrivals = replay_crawls(store, source, on_arrival)
            tagged = store.read("tagged_articles").to_arrow().to_pylist()
            templates = store.read("site_templates").to_arrow()
            problems = list(_find_run_problems(store, arrivals, tagged))
        with open_store(batchings.build_batchings_project(run_positions_by_name), Path(folder) / "fixed") as store:
            outcomes = batchings.run_batchings(store, source, templates, run_positions_by_name)
    problems += _find_batching_problems(outcomes)
    near = _near_duplicates_after_last_crawl(tagged)
    truth = source.expected
    return CheckReport(
        source_name=source.name,
        crawls=_crawl_figures(arrivals, tagged, truth),
        expected_article_count=None if truth is None else len(set(truth.article_by_version.values())),
        near_duplicate_pairs=len(near),
        pair_agreement=None if truth is None else compare_pairs(near, truth.near_pairs),
        article_count_by_batching={name: len(outcome.article_by_hash) for name, outcome in outcomes.items()},
        problems=problems,
    )


def _crawl_figures(
    arrivals: Sequence[CrawlRun], tagged: Sequence[Mapping[str, Any]], truth: ExpectedResults | None
) -> list[CrawlFigures]:
    by_version = {(row["url"], row["crawled_at"]): row["blocks"] for row in tagged}
    found = []
    template_count = 0
    for arrival in arrivals:
        pages = arrival.crawl.articles
        versions = list(zip(pages["url"].to_pylist(), pages["crawled_at"].to_pylist(), strict=True))
        gone = pages["html"].null_count
        if any(run.binding == "detect" for run in arrival.runs):
            template_count = arrival.count_rows_added("site_templates")
        found.append(
            CrawlFigures(
                name=arrival.crawl.name,
                versions=len(versions) - gone,
                gone=gone,
                templates=template_count,
                unique=arrival.count_rows_added("unique_articles"),
                shares=None if truth is None else _count_words_of_versions(versions, by_version, truth),
            )
        )
    return found


def _count_words_of_versions(
    versions: Sequence[tuple[str, datetime]], tagged: Mapping[tuple[str, datetime], Any], truth: ExpectedResults
) -> WordCounts:
    total = WordCounts()
    for version in versions:
        if version in truth.article_by_version and tagged.get(version) is not None:
            total += count_words(
                (TaggedBlock(block["text"], block["template"]) for block in tagged[version]),
                truth.article_by_version[version],
            )
    return total


def _near_duplicates_after_last_crawl(tagged: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], float]:
    """Pairs of similar articles among the last versions of all existing pages."""
    last = {row["url"]: row["blocks"] for row in sorted(tagged, key=lambda row: (row["crawled_at"], row["url"]))}
    own = {
        url: "\n".join(block["text"] for block in found if not block["template"])
        for url, found in last.items()
        if found is not None
    }
    return find_similar_pairs({url: sample_shingles(shingles(text)) for url, text in own.items()}, MIN_RESEMBLANCE)


def _find_run_problems(store: Store, arrivals: Sequence[CrawlRun], tagged: Sequence[object]) -> Iterator[str]:
    """Violated invariants of a run, for any templates."""
    arrived = sum(arrival.crawl.articles.num_rows for arrival in arrivals)
    if len(tagged) != arrived:
        yield f"{arrived} versions arrived and {len(tagged)} were tagged"
    hashes = store.read("unique_articles", columns=["hash"]).to_arrow()["hash"].to_pylist()
    if len(hashes) != len(set(hashes)):
        yield f"unique_articles has {len(hashes)} rows for {len(set(hashes))} hashes"
    if set(hashes) != set(store.read("seen", columns=["hash"]).to_arrow()["hash"].to_pylist()):
        yield "seen does not hold the hashes of unique_articles"
    lagging = [cursor.channel for cursor in store.cursors("dedup") if cursor.lag]
    if lagging:
        yield f"dedup has not read all of {', '.join(lagging)}"


def _find_batching_problems(outcomes: Mapping[str, BatchingResult]) -> Iterator[str]:
    """Violated invariants of the batchings: with fixed templates, the batches must not change the set of hashes."""
    reference = next(iter(outcomes.values())).article_by_hash
    for name, outcome in outcomes.items():
        actual, expected = outcome.article_by_hash, outcome.expected_article_by_hash
        if set(actual) != set(reference):
            more, fewer = set(actual) - set(reference), set(reference) - set(actual)
            yield f"batching {name} has {len(more)} hashes more and {len(fewer)} fewer than one crawl at a time"
        if outcome.row_count != len(actual) or outcome.seen_hashes != set(actual):
            yield f"batching {name}: {outcome.row_count} rows, {len(actual)} hashes, {len(outcome.seen_hashes)} seen"
        if actual != expected:
            wrong = sum(actual.get(value) != first for value, first in expected.items())
            yield f"batching {name}: for {wrong} hashes, not the least (crawled_at, url) of the batch stands"
