"""Real sales on the shell: ``python -m nova_assets.examples.sales FOLDER [--check] [--days N]``."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import click
from rich.console import Console

from nova_assets.examples.sales.shops import Shop, problems, shop_of, sums, true_sums
from nova_assets.nova_error import NovaError
from nova_assets.store.store import Store
from nova_assets.wiring.open_store import open as open_deployment


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--check", "checked", is_flag=True, help="Compare with the truth beside the files; exit 1 if it differs.")
@click.option("--days", type=int, help="Only so many days, the first; all by default.")
def main(folder: Path, checked: bool, days: int | None) -> None:
    """Put the sales in FOLDER onto a channel, day by day, and have what its datasets in SQL lack made by ticks."""
    console = Console()
    try:
        shop = shop_of(folder)
        with (
            tempfile.TemporaryDirectory(prefix="nova-sales-") as home,
            open_deployment(shop.project(), f"sqlite:///{home}/catalog.db", Path(home, "warehouse")) as store,
        ):
            known = shop.insert(store, folder, days)
            console.print(f"{len(known)} days, {store.read('tickets').to_arrow().num_rows} lines", markup=False)
            make(store, None if days is None else known)
            sys.exit(report(console, store, shop, folder, known) if checked else 0)
    except NovaError as error:
        click.echo(str(error), err=True)
        sys.exit(1)


def make(store: Store, days: list[str] | None = None) -> None:
    """Have everything made; or, of some days, each dataset's partition, one after the other."""
    if days is None:
        while any(ran.error is None for ran in store.tick()):
            pass
        return
    for dataset in ("store_sales", "products_sales"):
        for day in days:
            store.run(dataset, f"day={day}")


def report(console: Console, store: Store, shop: Shop, folder: Path, days: list[str]) -> int:
    """Say how the datasets compare with the truth. Gives 1 where one differs."""
    code = 0
    for truth in shop.truths:
        found = sums(store, truth)
        wrong = problems(found, true_sums(folder, truth), dict.fromkeys(days))
        for line in wrong[:10]:
            console.print(line, style="red", markup=False)
        by = f"{truth.dataset} by day and {truth.key}: {len(found)} sums of {', '.join(truth.sums)}"
        console.print(f"{by} equal the truth" if not wrong else f"{by}, {len(wrong)} are wrong", markup=False)
        code = code or int(bool(wrong))
    return code


if __name__ == "__main__":
    main(prog_name="python -m nova_assets.examples.sales")
