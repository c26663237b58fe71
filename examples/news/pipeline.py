"""Figure 1 of the Nova paper as a project: unique articles from a feed of crawled news pages (section 2).

From time to time, template detection reads all pages and replaces the templates. New pages are tagged with the
templates and shingled at once. An article is kept if its hash is new.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

import nova_assets as nova
from examples.news import templates, text
from examples.news.shingles import hash_shingles, sample_shingles, shingles

_TEMPLATE_COLUMNS = "site string, block string, pages bigint, share double, first_seen timestamp, last_seen timestamp"

articles = nova.Channel(
    "articles",
    merge=nova.Append(),
    schema="site string, url string, crawled_at timestamp, title string, html string",
    description="Crawled versions of pages, as they arrive. A removed page has no html.",
    group="news",
)
site_templates = nova.Channel(
    "site_templates",
    merge=nova.Upsert(key=["site", "block"]),
    schema=_TEMPLATE_COLUMNS,
    description="Blocks of text that belong to a site, not to its articles.",
    group="news",
)
tagged_articles = nova.Channel(
    "tagged_articles",
    merge=nova.Append(),
    schema="site string, url string, crawled_at timestamp, title string, "
    "blocks array<struct<text: string, template: boolean>>",
    description="Blocks of each page version in reading order, tagged as template or not.",
    group="news",
)
unique_articles = nova.Channel(
    "unique_articles",
    merge=nova.Append(),
    schema="hash string, crawled_at timestamp, url string, site string, title string, text string, "
    "shingles int, sketch array<bigint>",
    description="One article for each shingle hash: the first article with this hash.",
    group="news",
)
seen = nova.Channel(
    "seen",
    merge=nova.Upsert(key=["hash"]),
    schema="hash string, url string, crawled_at timestamp",
    description="All shingle hashes so far, each with its first article.",
    group="news",
)


@nova.task(consumes=nova.all(articles), produces=nova.base(site_templates))
def detect_templates(articles: DataFrame) -> DataFrame:
    """Find the blocks that the pages of each site have in common.

    One worker processes one site, so the text of a site must fit into a worker's memory.
    """
    pages = articles.where("html is not null").select("site", "url", "crawled_at", _page_blocks("html").alias("blocks"))
    return pages.groupBy("site").applyInArrow(_templates_of_site, _TEMPLATE_COLUMNS)


@nova.task(consumes=[nova.new(articles), nova.all(site_templates)], produces=nova.delta(tagged_articles), retries=2)
def tag_templates(articles: DataFrame, site_templates: DataFrame) -> DataFrame:
    """Split new pages into blocks and tag the template blocks. Removed pages have no blocks (null)."""
    of_site = site_templates.groupBy("site").agg(F.collect_set("block").alias("template"))
    pages = articles.withColumn("blocks", F.when(F.col("html").isNotNull(), _page_blocks("html")))
    tagged = F.transform(
        "blocks",
        lambda block: F.struct(
            block.alias("text"),
            F.coalesce(F.array_contains(F.col("template"), block), F.lit(False)).alias("template"),
        ),
    )
    return pages.join(F.broadcast(of_site), "site", "left").select(
        "site", "url", "crawled_at", "title", tagged.alias("blocks")
    )


@nova.task(consumes=nova.new(tagged_articles), produces=nova.delta("shingles"))
def shingle(tagged_articles: DataFrame) -> DataFrame:
    """Shingle the text outside the template. A page without such text gets the empty hash."""
    own = F.transform(F.filter("blocks", lambda block: ~block["template"]), lambda block: block["text"])
    return (
        tagged_articles.where("blocks is not null")
        .withColumn("text", F.array_join(own, "\n"))
        .withColumn(
            "shingled", F.udf(_shingled, "hash string, shingles int, sketch array<bigint>", useArrow=True)("text")
        )
        .select("shingled.hash", "crawled_at", "url", "site", "title", "text", "shingled.shingles", "shingled.sketch")
    )


@nova.task(
    consumes=[nova.new("shingles"), nova.matching(seen, keys_of="shingles", as_="known")],
    produces=[nova.delta(unique_articles), nova.delta(seen)],
    skip_if_no_new=True,
)
def drop_seen(shingles: DataFrame, known: DataFrame) -> dict[str, DataFrame]:
    """Keep articles with a new hash. Of several articles with one hash, keep the least by (crawled_at, url)."""
    rest = [column for column in shingles.columns if column not in ("hash", "crawled_at", "url")]
    first = F.min(F.struct("crawled_at", "url", *rest)).alias("first")
    fresh = shingles.join(known.select("hash"), "hash", "left_anti").groupBy("hash").agg(first)
    return {
        "unique_articles": fresh.select("hash", "first.*"),
        "seen": fresh.select("hash", "first.url", "first.crawled_at"),
    }


def _page_blocks(column: str) -> Column:
    return F.udf(text.split_text_blocks, "array<string>", useArrow=True)(column)


def _shingled(article: str) -> tuple[str, int, list[int]]:
    found = shingles(article)
    return hash_shingles(found), len(found), sample_shingles(found)


def _templates_of_site(key: tuple[pa.Scalar, ...], pages: pa.Table) -> pa.Table:
    # UTC distinguishes the two hours that local clocks repeat in autumn.
    utc = pa.timestamp("us", "UTC")
    crawled_at = pages["crawled_at"].cast(utc).to_pylist()
    versions = map(templates.Version, pages["url"].to_pylist(), crawled_at, pages["blocks"].to_pylist())
    found = templates.detect_template_blocks(versions)
    return pa.table(
        {
            "site": pa.array([key[0].as_py()] * len(found), pa.string()),
            "block": pa.array([one.block for one in found], pa.string()),
            "pages": pa.array([one.pages for one in found], pa.int64()),
            "share": pa.array([one.share for one in found], pa.float64()),
            "first_seen": pa.array([one.first_seen for one in found], utc),
            "last_seen": pa.array([one.last_seen for one in found], utc),
        }
    )


detect = nova.bind(nova.Workflowette("detect", [detect_templates]), when=nova.every("7d"))
dedup = nova.bind(nova.Workflowette("dedup", [tag_templates, shingle, drop_seen]), when=nova.on_data(articles))
project = nova.Project(bindings=[detect, dedup])
