"""Sources of crawls: the feed that ships with the example, or a folder of Parquet files, one per crawl."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from examples.news import feed
from examples.news.shingles import find_similar_pairs, sample_shingles, shingles
from nova_assets.errors import BadRecord, EmptyInput, SchemaMismatch

COLUMNS = ("site", "url", "crawled_at", "title", "html")
"""Required columns of a crawl file. Further columns are ignored. ``html`` is null for a removed page."""

MIN_RESEMBLANCE = 0.2
"""Minimum resemblance of near duplicates. The expected pairs of the real data have the same limit."""

_SCHEMA = pa.schema(
    [
        ("site", pa.string()),
        ("url", pa.string()),
        ("crawled_at", pa.timestamp("us", "UTC")),
        ("title", pa.string()),
        ("html", pa.string()),
    ]
)


@dataclass(frozen=True)
class Crawl:
    """Pages of one crawl, as rows of the articles channel.

    Args:
        name: unique within the source; also the idempotency key of the insert.
        articles: the rows, with times in UTC.
    """

    name: str
    articles: pa.Table

    @property
    def started_at(self) -> datetime:
        """Earliest time of its pages."""
        times: list[datetime] = self.articles["crawled_at"].to_pylist()
        return min(times)


@dataclass(frozen=True)
class ExpectedResults:
    """Expected results for the pages.

    Args:
        article_by_version: true article of each (url, crawled_at).
        near_pairs: pairs of urls of similar articles, among the pages that exist after the last crawl.
    """

    article_by_version: Mapping[tuple[str, datetime], str]
    near_pairs: frozenset[tuple[str, str]]


@dataclass(frozen=True)
class Source:
    """Crawls in order, and their expected results, if there are any."""

    name: str
    crawls: tuple[Crawl, ...]
    expected: ExpectedResults | None = None


def load_bundled_feed() -> Source:
    """The feed that ships with the example."""
    pages_by_crawl = feed.build_crawls()
    crawls = []
    for number, pages in enumerate(pages_by_crawl):
        rows = [{column: getattr(page, column) for column in COLUMNS} for page in pages]
        crawls.append(Crawl(f"crawl_{number}", pa.Table.from_pylist(rows, _SCHEMA)))
    text = {
        (page.url, page.crawled_at): page.article
        for pages in pages_by_crawl
        for page in pages
        if page.article is not None
    }
    live = {page.url: page.article for pages in pages_by_crawl for page in pages}
    sketches = {url: sample_shingles(shingles(article)) for url, article in live.items() if article is not None}
    return Source(
        "own feed", tuple(crawls), ExpectedResults(text, frozenset(find_similar_pairs(sketches, MIN_RESEMBLANCE)))
    )


def read_folder(folder: Path) -> Source:
    """Crawls of a folder, one per Parquet file in ``crawls/`` or else in the folder itself, in order of their names.

    Raises:
        EmptyInput: the folder has no Parquet file.
        SchemaMismatch: a file lacks a column, or a column has another type.
        BadRecord: a file is not Parquet, or a row has no site, url or readable time.
    """
    inner = folder / "crawls"
    files = sorted((inner if inner.is_dir() else folder).glob("*.parquet"))
    if not files:
        raise EmptyInput(
            f"{folder} holds no crawls",
            found="no Parquet file there" if folder.is_dir() else "no such folder",
            expected="a folder with crawls/*.parquet, one file per crawl",
            next="python -m examples.news, without a folder, runs on the feed that ships with it",
        )
    tables = [_read_crawl_file(file) for file in files]
    crawls = tuple(Crawl(file.stem, _to_articles(file, table)) for file, table in zip(files, tables, strict=True))
    return Source(folder.resolve().name, crawls, _read_expected_results(folder / "truth", tables, crawls))


def _read_crawl_file(file: Path) -> pa.Table:
    try:
        table = pq.read_table(file)
    except (pa.ArrowInvalid, OSError) as error:
        raise BadRecord(f"{file} cannot be read as Parquet", found=str(error), next="fetch the file again") from error
    missing = [column for column in COLUMNS if column not in table.column_names]
    if missing:
        raise SchemaMismatch(
            f"{file} is no crawl: it lacks {', '.join(missing)}",
            found=", ".join(table.column_names),
            expected=", ".join(COLUMNS),
        )
    return table


def _to_articles(file: Path, table: pa.Table) -> pa.Table:
    times = [_parse_crawl_time(file, row, value) for row, value in enumerate(table["crawled_at"].to_pylist())]
    rows = table.select(list(COLUMNS)).set_column(2, "crawled_at", pa.array(times, _SCHEMA.field("crawled_at").type))
    for column in ("site", "url"):
        if rows[column].null_count:
            row = rows[column].to_pylist().index(None)
            raise BadRecord(f"{file}: row {row} has no {column}", found="null", expected=f"the {column} of the page")
    try:
        return rows.cast(_SCHEMA)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        found = ", ".join(f"{field.name} {field.type}" for field in rows.schema)
        raise SchemaMismatch(f"{file} has columns of other types", found=found, expected=f"text: {error}") from error


def _parse_crawl_time(file: Path, row: int, value: object) -> datetime:
    """Crawl time in UTC. Texts may have different offsets, so they do not sort by time."""
    try:
        time = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        time = None
    if not isinstance(time, datetime):
        raise BadRecord(
            f"{file}: row {row} has no readable crawled_at",
            found=repr(value),
            expected="a timestamp, or a text such as 2024-03-01T06:00:00+01:00",
        )
    return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)


def _read_expected_results(folder: Path, tables: list[pa.Table], crawls: tuple[Crawl, ...]) -> ExpectedResults | None:
    """`article_text.parquet` (url, crawl_seq, article_text) and `near_dup_pairs_last_crawl.csv` (url_a, url_b)."""
    file = folder / "article_text.parquet"
    if not file.is_file() or any("crawl_seq" not in table.column_names for table in tables):
        return None
    times: dict[tuple[str, int], datetime] = {}
    for table, crawl in zip(tables, crawls, strict=True):
        names = zip(table["url"].to_pylist(), table["crawl_seq"].to_pylist(), strict=True)
        times.update(zip(names, crawl.articles["crawled_at"].to_pylist(), strict=True))
    text = {
        (row["url"], times[row["url"], row["crawl_seq"]]): row["article_text"]
        for row in pq.read_table(file, columns=["url", "crawl_seq", "article_text"]).to_pylist()
        if (row["url"], row["crawl_seq"]) in times
    }
    pairs = folder / "near_dup_pairs_last_crawl.csv"
    return ExpectedResults(text, _read_pairs(pairs) if pairs.is_file() else frozenset())


def _read_pairs(file: Path) -> frozenset[tuple[str, str]]:
    with file.open(encoding="utf-8", newline="") as lines:
        return frozenset((row["url_a"], row["url_b"]) for row in csv.DictReader(lines))
