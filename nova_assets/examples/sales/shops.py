"""Real sales, in the form of the example: an online shop's (UCI "Online Retail", CC-BY-4.0), and those that TPC-DS's
generator makes. Each is a folder with a file for each day, and with the truth beside them."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import nova_assets as nova
from nova_assets.errors import SettingsError
from nova_assets.store.store import Store

HERE = Path(__file__).parent

Sums = dict[tuple[str, ...], tuple[Decimal, ...]]
"""(day, store) or (day, product) -> what was sold there and then."""


@dataclass(frozen=True)
class Truth:
    """What a dataset comes to.

    Args:
        dataset: whose rows are summed up.
        key: its column that is summed up by, beside the day.
        sums: its columns that are summed.
        file: where the truth is.
        columns: of that file: the key's, and those of the sums.
    """

    dataset: str
    key: str
    sums: tuple[str, ...]
    file: str
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Shop:
    """A source of sales.

    Args:
        name: of the folder with its queries.
        days: below the folder with the data, where those of the days are.
        schema: of a day's file.
        start: the first day.
    """

    name: str
    days: str
    schema: str
    start: str
    truths: tuple[Truth, ...]

    def project(self) -> nova.Project:
        """Its datasets, by their queries."""
        tickets = nova.Channel(
            "tickets",
            schema=f"{self.schema}, day string",
            partitions=[nova.daily("day", start=self.start)],
            description="A row for each line of a bill.",
        )
        return nova.Project(bindings=nova.datasets(HERE / self.name, channels=[tickets]))

    def files(self, folder: Path) -> dict[str, Path]:
        """Day -> its file, oldest first."""
        return {f.parent.name.removeprefix("day="): f for f in sorted((folder / self.days).glob("day=*/*"))}

    def insert(self, store: Store, folder: Path, days: int | None = None) -> list[str]:
        """Put days onto the channel, the first of them or all. Gives which."""
        files = list(self.files(folder).items())[:days]
        for day, file in files:
            store.insert("tickets", file, partition=f"day={day}", idempotency_key=day)
        return [day for day, _ in files]


RETAIL = Shop(
    "retail",
    ".",
    "InvoiceNo string, StockCode string, Description string, Quantity int, InvoiceDate string, "
    "UnitPrice decimal(10,2), CustomerID string, Country string",
    "2010-12-01",
    (
        Truth("store_sales", "store", ("revenue",), "truth_revenue_by_day_country.csv", ("country", "revenue")),
        Truth(
            "products_sales",
            "product",
            ("pieces",),
            "truth_quantity_by_day_product.csv.gz",
            ("stock_code", "quantity"),
        ),
    ),
)

_SUMS = ("nb_sales", "pieces", "revenue")
_TRUE_SUMS = ("n", "quantity", "net_paid")

TPCDS = Shop(
    "tpcds",
    "store_sales",
    ", ".join(
        [f"ss_{n}_sk int" for n in "sold_date sold_time item customer cdemo hdemo addr store promo".split()]
        + ["ss_ticket_number int", "ss_quantity int"]
        + [
            f"ss_{n} decimal(7,2)"
            for n in (
                "wholesale_cost list_price sales_price ext_discount_amt ext_sales_price ext_wholesale_cost "
                "ext_list_price ext_tax coupon_amt net_paid net_paid_inc_tax net_profit"
            ).split()
        ]
    ),
    "2000-11-01",
    (
        Truth("store_sales", "store", _SUMS, "truth_store_sales_by_day_store.csv.gz", ("ss_store_sk", *_TRUE_SUMS)),
        Truth("products_sales", "product", _SUMS, "truth_products_sales_by_day.csv.gz", ("ss_item_sk", *_TRUE_SUMS)),
    ),
)


def shop_of(folder: Path) -> Shop:
    """Which of them a folder holds. Raises SettingsError."""
    for shop in (TPCDS, RETAIL):
        if shop.files(folder):
            return shop
    raise SettingsError(
        f"{folder} holds no sales",
        found=", ".join(sorted(p.name for p in folder.iterdir())[:5]) or "nothing",
        expected="day=YYYY-MM-DD/sales.csv.gz, or store_sales/day=YYYY-MM-DD/part.parquet",
    )


def sums(store: Store, truth: Truth) -> Sums:
    """What was sold, as the dataset says. Nothing at all is none, as where nobody has counted."""
    found: Sums = {}
    for row in store.read(truth.dataset).to_arrow().to_pylist():
        key = (row["day"], _text(row[truth.key]))
        before = found.get(key, (Decimal(0),) * len(truth.sums))
        found[key] = tuple(b + Decimal(row[c] or 0) for b, c in zip(before, truth.sums, strict=True))
    return found


def true_sums(folder: Path, truth: Truth) -> Sums:
    """What was sold, in truth."""
    key, *columns = truth.columns
    return {(row["day"], row[key]): tuple(Decimal(row[c] or 0) for c in columns) for row in _rows(folder / truth.file)}


def problems(found: Sums, right: Sums, days: Mapping[str, object] | None = None) -> list[str]:
    """Where the two differ, on some days or on all."""
    keys = sorted(k for k in {*found, *right} if days is None or k[0] in days)
    return [f"{k}: {found.get(k)} instead of {right.get(k)}" for k in keys if found.get(k) != right.get(k)]


def _rows(file: Path) -> Iterator[dict[str, str]]:
    with gzip.open(file, "rt", newline="") if file.suffix == ".gz" else file.open(newline="") as lines:
        yield from csv.DictReader(lines)


def _text(value: object) -> str:
    return "" if value is None else str(value)
