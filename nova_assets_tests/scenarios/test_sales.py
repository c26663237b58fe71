"""The sales example over real data: what its queries give is what was sold, to the cent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from examples.sales.__main__ import compute_datasets, print_differences
from examples.sales.shops import detect_shop
from nova_assets.errors import SettingsError
from nova_assets.testing import World

DAYS = 4


@pytest.mark.spark
@pytest.mark.parametrize("source", ["retail_uci_online_by_day", "tpcds_sf1_store_window"])
def test_sales_by_store_and_by_product_equal_the_truth(shared_data: Path, spark: Any, source: str) -> None:
    folder = shared_data / source
    shop = detect_shop(folder)
    console = Console(record=True, width=200)
    with World(shop.project(), spark) as store:
        days = shop.insert_days(store, folder, DAYS)
        compute_datasets(store, days)
        assert print_differences(console, store, shop, folder, days) == 0
        said = console.export_text()
        assert "store_sales by day and store" in said and said.count("equal the truth") == 2
        store.insert("tickets", list(shop.files_by_day(folder).values())[-1], partition=f"day={days[0]}")
        compute_datasets(store, days[:1])
        assert print_differences(Console(quiet=True), store, shop, folder, days) == 1, "the check can fail"


def test_a_folder_without_sales(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="holds no sales"):
        detect_shop(tmp_path)
