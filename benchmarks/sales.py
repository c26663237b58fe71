"""What late rows cost the sales example: rows written, bytes read and CPU time, beside computing the days again.

    python -m benchmarks.sales --folder FOLDER [--quick] [--json FILE] [--days 8] [--shares 0.001,0.01,0.1]
                               [--refresh incremental]

FOLDER holds the sales of one of the example's shops. Random rows arrive late, for all days at once. Each change
is carried through both datasets, in a store whose datasets are maintained and in a store whose datasets have
``refresh="full"``. Bytes read are those of all read calls of the process, of Spark and of Spark's Python workers.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import nova_assets as nova
from benchmarks import measure
from examples.sales.shops import HERE, Shop, detect_shop
from nova_assets.engine.session.lazy_session import LazySparkSession
from nova_assets.store.store import Store

DAYS = 8
SHARES = (0.001, 0.01, 0.1)
DATASETS = ("store_sales", "products_sales")

Refresh = Literal["auto", "incremental", "full"]


@dataclass
class Effort:
    """What it took to carry a change through the datasets."""

    cost: measure.Cost
    bytes_read: int
    rows_written: int
    strategies: tuple[str, ...]


class Sales:
    """A store with the sales of a shop."""

    def __init__(self, root: Path, shop: Shop, days: list[str], refresh: Refresh) -> None:
        root.mkdir()
        tickets = next(c for c in shop.project().channels if c.name == "tickets")
        project = nova.Project(nova.datasets(HERE / shop.name, channels=[tickets], refresh=refresh))
        self.days = days
        self.store: Store = nova.open(
            project, f"sqlite:///{root}/catalog.db", root / "warehouse", LazySparkSession().get()
        )

    def arrive(self, rows_by_day: dict[str, pa.Table]) -> None:
        for day, rows in rows_by_day.items():
            if rows.num_rows:
                self.store.insert("tickets", rows, partition=f"day={day}")

    def refresh(self) -> Effort:
        """Carry what has arrived through both datasets."""
        before, written, strategies = bytes_read(), 0, set[str]()

        def run() -> None:
            nonlocal written
            for dataset in DATASETS:
                for day in self.days:
                    for report in self.store.run(dataset, f"day={day}").tasks:
                        written += report.wrote.get(dataset) or 0
                        maintenance = report.facts.get("maintenance") or {"strategy": "full"}
                        strategies.add(str(maintenance["strategy"]))

        cost = measure.cost_of(run)
        return Effort(cost, bytes_read() - before, written, tuple(sorted(strategies)))

    def result(self, dataset: str) -> list[dict[str, Any]]:
        return sorted(self.store.read(dataset).to_arrow().to_pylist(), key=str)


def bytes_read() -> int:
    """Bytes that this process and all processes below it have read so far, from files, pipes and sockets."""
    total = 0
    for pid in measure.process_tree(os.getpid()):
        try:
            lines = Path(f"/proc/{pid}/io").read_text().splitlines()
        except OSError:
            continue
        total += int(lines[0].removeprefix("rchar: "))
    return total


def main() -> None:
    given = _options()
    shares = [float(s) for s in given.shares.split(",")]
    shop = detect_shop(Path(given.folder))
    with tempfile.TemporaryDirectory(prefix="sales-") as home:
        tickets = _read_tickets(Path(home, "whole"), shop, Path(given.folder), int(given.days))
        days = sorted(set(tickets["day"].to_pylist()))
        kept = Sales(Path(home, "kept"), shop, days, given.refresh)
        full = Sales(Path(home, "full"), shop, days, "full")
        shown, figures = list[list[Any]](), dict[str, Any]()
        for label, batch in _split(tickets, shares).items():
            efforts: dict[str, Effort] = {}
            for name, sales in (("maintained", kept), ("full", full)):
                sales.arrive({day: batch.filter(pc.equal(batch["day"], day)) for day in days})
                efforts[name] = sales.refresh()
                shown.append([label, f"{batch.num_rows:,}", name, *_cells(efforts[name])])
            figures[label] = {name: asdict(effort) for name, effort in efforts.items()}
        for dataset in DATASETS:
            assert kept.result(dataset) == full.result(dataset), dataset
    columns = ("late", "rows", "datasets", "strategies", "rows written", "MB read", "wall s", "CPU s")
    measure.show(f"{shop.name}: {len(days)} days, {tickets.num_rows:,} rows of tickets", columns, shown)
    measure.keep(given.json, figures)


def _read_tickets(root: Path, shop: Shop, folder: Path, days: int) -> pa.Table:
    with Sales(root, shop, [], "full").store as store:
        shop.insert_days(store, folder, days)
        return store.read("tickets").to_arrow()


def _split(tickets: pa.Table, shares: Sequence[float]) -> Mapping[str, pa.Table]:
    """The rows that arrive in time, and the rows that arrive late: a random share of all rows for each change."""
    lots = np.random.default_rng(27).random(tickets.num_rows)
    bounds = np.cumsum([0.0, *shares])
    late = {
        f"{share:.1%}": tickets.filter(pa.array((low <= lots) & (lots < low + share)))
        for share, low in zip(shares, bounds, strict=False)
    }
    return {"in time": tickets.filter(pa.array(lots >= bounds[-1])), **late}


def _cells(effort: Effort) -> list[Any]:
    strategies = "/".join(effort.strategies)
    return [strategies, f"{effort.rows_written:,}", effort.bytes_read / 1e6, effort.cost.wall, effort.cost.cpu]


def _options() -> argparse.Namespace:
    given = measure.options(
        "What late rows cost the sales example, beside computing the days again.",
        folder="folder with the sales of a shop",
        days=f"number of days; {DAYS} by default",
        shares="shares of the rows that arrive late, such as 0.001,0.01; 0.001 to 0.1 by default",
        refresh="policy of the maintained datasets: auto (default) or incremental",
    )
    usual = {
        "days": (2, DAYS),
        "shares": ("0.1", ",".join(map(str, SHARES))),
        "refresh": ("auto", "auto"),
    }
    return measure.fill_in(given, usual)


if __name__ == "__main__":
    main()
