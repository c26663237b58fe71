"""The example's figures, and what must hold whatever the figures are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from nova_assets.examples.news import batchings, pipeline
from nova_assets.examples.news.batchings import Outcome
from nova_assets.examples.news.home import open_store
from nova_assets.examples.news.measure import PairsFound, Shares, compare_pairs, shares
from nova_assets.examples.news.replay import Arrival, replay
from nova_assets.examples.news.shingles import near_pairs, shingles, sketch
from nova_assets.examples.news.sources import NEAR, Source, Truth
from nova_assets.store.store import Store


@dataclass(frozen=True)
class CrawlFigures:
    """What one crawl brought and what became of it.

    Args:
        name: of the crawl.
        versions: page versions that arrived, without those that were gone.
        gone: pages that were found to be gone.
        templates: template blocks known when the crawl was tagged.
        unique: articles that had not been seen.
        shares: of the article's words kept and of the others removed; None without truth.
    """

    name: str
    versions: int
    gone: int
    templates: int
    unique: int
    shares: Shares | None


@dataclass(frozen=True)
class Report:
    """Everything that a check found.

    Args:
        source: the name of the crawls.
        crawls: figures of the run with templates detected as the crawls came in.
        articles: how many different articles there are in truth; None without truth.
        near: near-duplicate pairs among the pages live after the last crawl.
        expected_near: how they agree with the truth; None without truth.
        fixed: batching -> unique articles, with templates fixed.
        problems: invariants that do not hold, each in a sentence; none, when all is well.
    """

    source: str
    crawls: Sequence[CrawlFigures]
    articles: int | None
    near: int
    expected_near: PairsFound | None
    fixed: Mapping[str, int]
    problems: Sequence[str]


def check(source: Source, tell: Callable[[Arrival], None] = lambda arrival: None) -> Report:
    """Run the source twice in fresh, temporary stores: as it would have come in, and with templates fixed."""
    ways = batchings.batchings(len(source.crawls))
    with TemporaryDirectory(prefix="nova-news-") as folder:
        with open_store(pipeline.project, Path(folder) / "live") as store:
            arrivals = replay(store, source, tell)
            tagged = store.read("tagged_articles").to_arrow().to_pylist()
            templates = store.read("site_templates").to_arrow()
            problems = list(_live_problems(store, arrivals, tagged))
        with open_store(batchings.project(ways), Path(folder) / "fixed") as store:
            outcomes = batchings.run_batchings(store, source, templates, ways)
    problems += _batching_problems(outcomes)
    near = _near_live_pairs(tagged)
    truth = source.truth
    return Report(
        source=source.name,
        crawls=_figures(arrivals, tagged, truth),
        articles=None if truth is None else len(set(truth.text.values())),
        near=len(near),
        expected_near=None if truth is None else compare_pairs(near, truth.near_pairs),
        fixed={name: len(outcome.firsts) for name, outcome in outcomes.items()},
        problems=problems,
    )


def _figures(
    arrivals: Sequence[Arrival], tagged: Sequence[Mapping[str, Any]], truth: Truth | None
) -> list[CrawlFigures]:
    by_version = {(row["url"], row["crawled_at"]): row["blocks"] for row in tagged}
    found = []
    known = 0
    for arrival in arrivals:
        pages = arrival.crawl.articles
        versions = list(zip(pages["url"].to_pylist(), pages["crawled_at"].to_pylist(), strict=True))
        gone = pages["html"].null_count
        if any(run.binding == "detect" for run in arrival.runs):
            known = arrival.rows("site_templates")
        found.append(
            CrawlFigures(
                name=arrival.crawl.name,
                versions=len(versions) - gone,
                gone=gone,
                templates=known,
                unique=arrival.rows("unique_articles"),
                shares=None if truth is None else _shares(versions, by_version, truth),
            )
        )
    return found


def _shares(
    versions: Sequence[tuple[str, datetime]], tagged: Mapping[tuple[str, datetime], Any], truth: Truth
) -> Shares:
    total = Shares()
    for version in versions:
        if version in truth.text and tagged.get(version) is not None:
            total += shares(((block["text"], block["template"]) for block in tagged[version]), truth.text[version])
    return total


def _near_live_pairs(tagged: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], float]:
    """Pairs of similar articles among the last versions of all pages that are not gone."""
    last = {row["url"]: row["blocks"] for row in sorted(tagged, key=lambda row: (row["crawled_at"], row["url"]))}
    own = {
        url: "\n".join(block["text"] for block in found if not block["template"])
        for url, found in last.items()
        if found is not None
    }
    return near_pairs({url: sketch(shingles(text)) for url, text in own.items()}, NEAR)


def _live_problems(store: Store, arrivals: Sequence[Arrival], tagged: Sequence[object]) -> Iterator[str]:
    """What must hold of a run, whatever its templates."""
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


def _batching_problems(outcomes: Mapping[str, Outcome]) -> Iterator[str]:
    """With templates fixed and crawl order kept, batches make no difference to the set of hashes."""
    together = next(iter(outcomes.values()))
    for name, outcome in outcomes.items():
        if set(outcome.firsts) != set(together.firsts):
            more, fewer = set(outcome.firsts) - set(together.firsts), set(together.firsts) - set(outcome.firsts)
            yield f"batching {name} has {len(more)} hashes more and {len(fewer)} fewer than one crawl at a time"
        if outcome.rows != len(outcome.firsts) or outcome.seen != set(outcome.firsts):
            yield f"batching {name}: {outcome.rows} rows, {len(outcome.firsts)} hashes, {len(outcome.seen)} seen"
        if outcome.firsts != outcome.expected:
            wrong = sum(outcome.firsts.get(value) != first for value, first in outcome.expected.items())
            yield f"batching {name}: for {wrong} hashes, not the least (crawled_at, url) of the batch stands"
