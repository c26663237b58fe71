"""Nova's first figure as a project: unique articles from a feed of crawled news pages.

Template detection reads everything and replaces the templates, now and then. Whatever else arrives is tagged against
them, shingled, and kept if its hash has not been seen, at once and only once (Nova, section 2, Figure 1).
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

import nova_assets as nova
from nova_assets.examples.news import templates, text
from nova_assets.examples.news.shingles import shingle_hash, shingles, sketch

_TEMPLATE_COLUMNS = "site string, block string, pages bigint, share double, first_seen timestamp, last_seen timestamp"

articles = nova.Channel(
    "articles",
    merge=nova.Append(),
    schema="site string, url string, crawled_at timestamp, title string, html string",
    description="Crawled versions of pages, as they arrive. Without html: the page was found to be gone.",
    group="news",
)
site_templates = nova.Channel(
    "site_templates",
    merge=nova.Upsert(key=["site", "block"]),
    schema=_TEMPLATE_COLUMNS,
    description="Blocks of text that belong to a site and not to its articles.",
    group="news",
)
tagged_articles = nova.Channel(
    "tagged_articles",
    merge=nova.Append(),
    schema="site string, url string, crawled_at timestamp, title string, "
    "blocks array<struct<text: string, template: boolean>>",
    description="Each version's blocks, in reading order, with whether they are template.",
    group="news",
)
unique_articles = nova.Channel(
    "unique_articles",
    merge=nova.Append(),
    schema="hash string, crawled_at timestamp, url string, site string, title string, text string, "
    "shingles int, sketch array<bigint>",
    description="One article for each shingle hash: the first that came with it.",
    group="news",
)
seen = nova.Channel(
    "seen",
    merge=nova.Upsert(key=["hash"]),
    schema="hash string, url string, crawled_at timestamp",
    description="Every shingle hash met so far, and where it was first met.",
    group="news",
)


@nova.task(consumes=nova.all(articles), produces=nova.base(site_templates))
def detect_templates(articles: DataFrame) -> DataFrame:
    """Look at all articles of each site and find the blocks that its pages have in common.

    One worker looks at one site, so the text of a site has to fit a worker's memory.
    """
    pages = articles.where("html is not null").select("site", "url", "crawled_at", _page_blocks("html").alias("blocks"))
    return pages.groupBy("site").applyInArrow(_templates_of_site, _TEMPLATE_COLUMNS)


@nova.task(consumes=[nova.new(articles), nova.all(site_templates)], produces=nova.delta(tagged_articles), retries=2)
def tag_templates(articles: DataFrame, site_templates: DataFrame) -> DataFrame:
    """Split new pages into blocks and tag those that are template. Pages that are gone have no blocks (null)."""
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
    """Shingle the text that is left without the template. A page without any text of its own gets the empty hash."""
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
    """Keep articles whose hash was never seen; of those that share a hash, the least by (crawled_at, url)."""
    rest = [column for column in shingles.columns if column not in ("hash", "crawled_at", "url")]
    first = F.min(F.struct("crawled_at", "url", *rest)).alias("first")
    fresh = shingles.join(known.select("hash"), "hash", "left_anti").groupBy("hash").agg(first)
    return {
        "unique_articles": fresh.select("hash", "first.*"),
        "seen": fresh.select("hash", "first.url", "first.crawled_at"),
    }


def _page_blocks(column: str) -> Column:
    return F.udf(text.blocks, "array<string>", useArrow=True)(column)


def _shingled(article: str) -> tuple[str, int, list[int]]:
    found = shingles(article)
    return shingle_hash(found), len(found), sketch(found)


def _templates_of_site(key: tuple[pa.Scalar, ...], pages: pa.Table) -> pa.Table:
    # In UTC, whatever the session's zone: there, an hour that clocks repeat is still two different hours.
    utc = pa.timestamp("us", "UTC")
    crawled_at = pages["crawled_at"].cast(utc).to_pylist()
    versions = map(templates.Version, pages["url"].to_pylist(), crawled_at, pages["blocks"].to_pylist())
    found = templates.detect(versions)
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
