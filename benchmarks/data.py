"""What the benchmarks run on: real data where it is there (NOVA_SHARED_DATA, ``../shared/data``), otherwise made up."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv

SHARED = Path(os.environ.get("NOVA_SHARED_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")


def retail_lines(rows: int) -> pa.Table:
    """Lines of invoices: those of UCI's Online Retail, repeated with other invoice numbers until there are enough."""
    days = sorted((SHARED / "retail_uci_online_by_day").glob("day=*/sales.csv.gz"))
    table = pa.concat_tables([_day(p) for p in days]) if days else _made_up(100_000)
    copies = -(-rows // table.num_rows)
    return pa.concat_tables([table] * copies).slice(0, rows).combine_chunks()


def _day(path: Path) -> pa.Table:
    types = {"InvoiceNo": pa.string(), "StockCode": pa.string(), "Quantity": pa.int64(), "UnitPrice": pa.float64()}
    convert = pa.csv.ConvertOptions(column_types=types, include_columns=[*types, "Country"])
    table = pa.csv.read_csv(
        path, convert_options=convert, parse_options=pa.csv.ParseOptions(newlines_in_values=True)
    ).rename_columns(["invoice", "code", "quantity", "price", "country"])
    day = date.fromisoformat(path.parent.name.removeprefix("day="))
    return table.append_column("day", pa.repeat(pa.scalar(day), table.num_rows))


def _made_up(rows: int) -> pa.Table:
    rng = random.Random(1)
    start = date(2011, 1, 1)
    return pa.table(
        {
            "invoice": [str(536365 + n // 20) for n in range(rows)],
            "code": [str(10000 + rng.randrange(3000)) for _ in range(rows)],
            "quantity": [rng.randint(-2, 24) for _ in range(rows)],
            "price": [rng.randint(1, 2000) / 100 for _ in range(rows)],
            "country": [rng.choice(["United Kingdom", "France", "EIRE"]) for _ in range(rows)],
            "day": [start + timedelta(days=n * 60 // rows) for n in range(rows)],
        }
    )


def news_crawls(count: int) -> Iterator[Any]:
    """Crawls of a news site, or of the feed that ships with the example."""
    from examples.news import sources

    folder = SHARED / "news_rust_blog"
    source = sources.read_folder(folder) if folder.is_dir() else sources.load_bundled_feed()
    for crawl in source.crawls[:count]:
        yield crawl.articles
