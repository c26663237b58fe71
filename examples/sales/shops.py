"""Sales of two shops: an online shop (UCI "Online Retail", CC-BY-4.0), and the shop of TPC-DS's generator.

Each shop is a folder with a file for each day, and with files of expected sums.
"""

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
"""Sums of each (day, store) or (day, product)."""


@dataclass(frozen=True)
class ExpectedSums:
    """Expected sums of a dataset.

    Args:
        dataset: name of the dataset.
        key_column: column of the dataset by which the rows are summed, besides the day.
        sum_columns: columns of the dataset that are summed.
        file: name of the file with the expected sums.
        file_columns: columns of the file: the key column, then the sums.
    """

    dataset: str
    key_column: str
    sum_columns: tuple[str, ...]
    file: str
    file_columns: tuple[str, ...]


@dataclass(frozen=True)
class Shop:
    """A source of sales.

    Args:
        name: name of the folder with its queries.
        days_folder: folder of the daily files, below the folder with the data.
        file_schema: schema of a daily file, as DDL.
        first_day: first day of the data.
    """

    name: str
    days_folder: str
    file_schema: str
    first_day: str
    expected_sums: tuple[ExpectedSums, ...]

    def project(self) -> nova.Project:
        """The channel of the sales, and the datasets of the shop's queries."""
        tickets = nova.Channel(
            "tickets",
            schema=f"{self.file_schema}, day string",
            partitions=[nova.daily("day", start=self.first_day)],
            description="A row for each line of a bill.",
        )
        return nova.Project(bindings=nova.datasets(HERE / self.name, channels=[tickets]))

    def files_by_day(self, folder: Path) -> dict[str, Path]:
        """Daily files by day, oldest first."""
        return {f.parent.name.removeprefix("day="): f for f in sorted((folder / self.days_folder).glob("day=*/*"))}

    def insert_days(self, store: Store, folder: Path, max_days: int | None = None) -> list[str]:
        """Insert the first ``max_days`` days, or all days, and return the inserted days."""
        files = list(self.files_by_day(folder).items())[:max_days]
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
        ExpectedSums("store_sales", "store", ("revenue",), "truth_revenue_by_day_country.csv", ("country", "revenue")),
        ExpectedSums(
            "products_sales",
            "product",
            ("pieces",),
            "truth_quantity_by_day_product.csv.gz",
            ("stock_code", "quantity"),
        ),
    ),
)

_SUMS = ("nb_sales", "pieces", "revenue")
_EXPECTED_SUMS = ("n", "quantity", "net_paid")

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
        ExpectedSums(
            "store_sales", "store", _SUMS, "truth_store_sales_by_day_store.csv.gz", ("ss_store_sk", *_EXPECTED_SUMS)
        ),
        ExpectedSums(
            "products_sales", "product", _SUMS, "truth_products_sales_by_day.csv.gz", ("ss_item_sk", *_EXPECTED_SUMS)
        ),
    ),
)


def detect_shop(folder: Path) -> Shop:
    """The shop whose data a folder holds.

    Raises:
        SettingsError: the folder holds no sales.
    """
    for shop in (TPCDS, RETAIL):
        if shop.files_by_day(folder):
            return shop
    raise SettingsError(
        f"{folder} holds no sales",
        found=", ".join(sorted(p.name for p in folder.iterdir())[:5]) or "nothing",
        expected="day=YYYY-MM-DD/sales.csv.gz, or store_sales/day=YYYY-MM-DD/part.parquet",
    )


def sum_dataset(store: Store, expected_sums: ExpectedSums) -> Sums:
    """Sums of the dataset. A null counts as 0."""
    sums: Sums = {}
    for row in store.read(expected_sums.dataset).to_arrow().to_pylist():
        key = (row["day"], _text(row[expected_sums.key_column]))
        before = sums.get(key, (Decimal(0),) * len(expected_sums.sum_columns))
        sums[key] = tuple(b + Decimal(row[c] or 0) for b, c in zip(before, expected_sums.sum_columns, strict=True))
    return sums


def read_expected_sums(folder: Path, expected_sums: ExpectedSums) -> Sums:
    """Expected sums, from the file in the folder."""
    key, *columns = expected_sums.file_columns
    return {
        (row["day"], row[key]): tuple(Decimal(row[c] or 0) for c in columns)
        for row in _read_csv_rows(folder / expected_sums.file)
    }


def describe_sum_differences(actual: Sums, expected: Sums, days: Mapping[str, object] | None = None) -> list[str]:
    """One line for each sum that differs, on the given days or on all days."""
    keys = sorted(k for k in {*actual, *expected} if days is None or k[0] in days)
    return [f"{k}: {actual.get(k)} instead of {expected.get(k)}" for k in keys if actual.get(k) != expected.get(k)]


def _read_csv_rows(file: Path) -> Iterator[dict[str, str]]:
    with gzip.open(file, "rt", newline="") if file.suffix == ".gz" else file.open(newline="") as lines:
        yield from csv.DictReader(lines)


def _text(value: object) -> str:
    return "" if value is None else str(value)
