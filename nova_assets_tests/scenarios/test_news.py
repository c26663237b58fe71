"""The news example, as a newcomer runs it: on its own feed, and on real crawls."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import nova_assets as nova
from examples.news import batchings, pipeline
from examples.news.sources import Source, load_bundled_feed
from examples.news.templates import Version, detect_template_blocks
from examples.news.text import split_text_blocks
from nova_assets.testing.world import for_tiny_queries

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).parents[2]


def news(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """``python -m examples.news`` in a folder of its own."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("NOVA_")} | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "examples.news", *arguments]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=800)


@pytest.mark.long
def test_the_demo_says_what_each_execution_did_and_how_to_look_at_it(tmp_path: Path) -> None:
    done = news(tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    said = done.stdout
    assert "crawl_0" in said and "crawl_5" in said
    assert "→ unique_articles Δ(5→6)" in said, said
    assert "make ui" in said and "dagster dev" in said
    assert (tmp_path / ".nova" / "news" / "catalog.db").is_file()
    again = news(tmp_path)
    assert again.returncode == 0, again.stderr[-3000:]


@pytest.mark.long
@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_real_crawls_one_by_one_at_once_and_in_random_batches_give_the_same_articles(
    shared_data: Path, tmp_path: Path
) -> None:
    done = news(tmp_path, str(shared_data / "news_orc"), "--check")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    assert "one_by_one 184, all_at_once 184, random_1 184, random_2 184, random_3 184" in done.stdout
    assert "Invariants: all hold." in done.stdout


def template_rows(source: Source) -> pa.Table:
    """Rows of the channel ``site_templates``, without Spark."""
    versions_by_site: dict[str, list[Version]] = {}
    for crawl in source.crawls:
        for page in crawl.articles.to_pylist():
            if page["html"] is not None:
                version = Version(page["url"], page["crawled_at"], split_text_blocks(page["html"]))
                versions_by_site.setdefault(page["site"], []).append(version)
    rows = [
        {"site": site, **vars(found)} for site, of in versions_by_site.items() for found in detect_template_blocks(of)
    ]
    assert pipeline.site_templates.schema is not None and rows
    return pa.Table.from_pylist(rows)


def test_the_bundled_crawls_one_by_one_and_at_once_give_the_same_articles(tmp_path: Path, spark: Any) -> None:
    feed = load_bundled_feed()
    source = replace(feed, crawls=(feed.crawls[0], feed.crawls[1], feed.crawls[3]))
    run_positions_by_name = {"one_by_one": (0, 1, 2), "all_at_once": (2,)}
    project = batchings.build_batchings_project(run_positions_by_name)
    with (
        nova.open(project, f"sqlite:///{tmp_path}/c.db", tmp_path / "wh", spark=spark) as store,
        for_tiny_queries(store),
    ):
        results = batchings.run_batchings(store, source, template_rows(source), run_positions_by_name)
    pages = [page for crawl in source.crawls for page in crawl.articles.to_pylist() if page["html"] is not None]
    assert feed.expected is not None
    articles = {feed.expected.article_by_version[page["url"], page["crawled_at"]] for page in pages}
    assert len(articles) < len(pages), "an article arrives more than once"
    for name, result in results.items():
        assert result.row_count == len(articles), name
        assert result.article_by_hash == result.expected_article_by_hash, name
        assert result.seen_hashes == set(results["one_by_one"].article_by_hash), name
