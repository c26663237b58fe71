"""Real sales on the shell: ``python -m examples.sales FOLDER [--check] [--days N]``."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import click
from rich.console import Console

from examples.sales.shops import (
    Shop,
    describe_sum_differences,
    detect_shop,
    read_expected_sums,
    sum_dataset,
)
from nova_assets.nova_error import NovaError
from nova_assets.store.store import Store
from nova_assets.wiring.open_store import open as open_deployment


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option(
    "--check", "checked", is_flag=True, help="Compare with the expected sums in FOLDER; exit 1 if they differ."
)
@click.option("--days", type=int, help="Insert only the first N days; all by default.")
def main(folder: Path, checked: bool, days: int | None) -> None:
    """Insert the sales in FOLDER into a channel, day by day, and compute the datasets in SQL."""
    console = Console()
    try:
        shop = detect_shop(folder)
        with (
            tempfile.TemporaryDirectory(prefix="nova-sales-") as home,
            open_deployment(shop.project(), f"sqlite:///{home}/catalog.db", Path(home, "warehouse")) as store,
        ):
            known = shop.insert_days(store, folder, days)
            console.print(f"{len(known)} days, {store.read('tickets').to_arrow().num_rows} lines", markup=False)
            compute_datasets(store, None if days is None else known)
            sys.exit(print_differences(console, store, shop, folder, known) if checked else 0)
    except NovaError as error:
        click.echo(str(error), err=True)
        sys.exit(1)


def compute_datasets(store: Store, days: list[str] | None = None) -> None:
    """Compute the partitions of the given days, or all partitions with ticks."""
    if days is None:
        while any(ran.error is None for ran in store.tick()):
            pass
        return
    for dataset in ("store_sales", "products_sales"):
        for day in days:
            store.run(dataset, f"day={day}")


def print_differences(console: Console, store: Store, shop: Shop, folder: Path, days: list[str]) -> int:
    """Compare the datasets with the expected sums, and return the exit code: 1 if a dataset differs."""
    code = 0
    for truth in shop.expected_sums:
        found = sum_dataset(store, truth)
        wrong = describe_sum_differences(found, read_expected_sums(folder, truth), dict.fromkeys(days))
        for line in wrong[:10]:
            console.print(line, style="red", markup=False)
        by = f"{truth.dataset} by day and {truth.key_column}: {len(found)} sums of {', '.join(truth.sum_columns)}"
        console.print(f"{by} equal the truth" if not wrong else f"{by}, {len(wrong)} are wrong", markup=False)
        code = code or int(bool(wrong))
    return code


if __name__ == "__main__":
    main(prog_name="python -m examples.sales")
