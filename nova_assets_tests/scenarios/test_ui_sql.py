"""Datasets in SQL in Dagster's pages, in a real browser: automation that makes what is missing, and what came late.

Screenshots of every station are kept in ``build/screenshots``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from examples.sales.pipeline import project
from nova_assets_tests.dagster_dev import dagster_dev, waited_for
from nova_assets_tests.scenarios import ui_sales
from nova_assets_tests.scenarios.ui import MARKS, Deployment, Person

pytestmark = MARKS

STORES = ("Detroit", "Paris")
DAYS = ("2022-03-30", "2022-03-31")


def sold(day: str, store: str, *prices: str) -> list[dict[str, Any]]:
    return [{"product_id": "p1", "price": p, "day": day, "store": store} for p in prices]


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    place = tmp_path_factory.mktemp("ui")
    catalog, warehouse = f"sqlite:///{place}/c.db", str(place / "wh")
    environment = {"NOVA_CATALOG": catalog, "NOVA_WAREHOUSE": warehouse}
    with nova.open(project, catalog, warehouse) as store:
        store.register(project)
        store.insert("tickets", [row for d in DAYS for s in STORES for row in sold(d, s, "1.50", "2.00")])
        with dagster_dev(place / "home", ["-f", str(Path(ui_sales.__file__))], environment=environment) as url:
            yield Deployment(store, url)


def there(deployed: Deployment, dataset: str) -> dict[str, int]:
    """Partition -> the number at which it was given something last."""
    return {p.partition: p.seq for p in deployed.store.partitions(dataset)}


@pytest.mark.exhaustive
def test_what_is_missing_is_made_and_seen(deployed: Deployment, person: Person) -> None:
    person.go("automation")
    person.sees("nova_tick_sensor")
    person.photographs("automation")
    waited_for(lambda: len(there(deployed, "products_sales")) == len(DAYS), "both days of products_sales")
    rows = deployed.store.read("products_sales").to_arrow().to_pylist()
    assert [(r["nb_sales"], str(r["revenue"])) for r in rows] == [(4, "7.00")] * 2
    assert len(deployed.store.executions("store_sales")) == len(DAYS) * len(STORES), "each task once"

    person.go("assets/store_sales?view=partitions")
    person.sees("Detroit", "Paris", "2022-03-31")
    person.photographs("sql-partitions")
    person.go("assets/store_sales?view=lineage")
    person.sees("tickets", "store_sales", "products_sales")
    person.photographs("sql-lineage")
    person.go("assets/products_sales?view=overview")
    person.sees("What is sold of each product", "nb_sales", "products@example.org")
    person.photographs("sql-overview")


@pytest.mark.exhaustive
def test_what_came_late_is_made_again_and_nothing_else(deployed: Deployment, person: Person) -> None:
    before = there(deployed, "store_sales")
    deployed.store.insert("tickets", sold("2022-03-31", "Paris", "4.00"))

    def late() -> bool:
        rows = deployed.store.read("products_sales").to_arrow().to_pylist()
        return sorted(str(r["revenue"]) for r in rows) == ["11.00", "7.00"]

    waited_for(late, "the day to which data came")
    after = there(deployed, "store_sales")
    assert [p for p in after if after[p] != before[p]] == ["day=2022-03-31/store=Paris"]
    [latest] = deployed.store.executions("store_sales", 1)
    person.go(f"runs/{latest.run_id}")
    person.sees("Launched by", "nova_tick_sensor", "to compute: 1 of store_sales")
    person.photographs("sql-late-run")
    person.go("assets/store_sales?view=events")
    person.sees("2022-03-31|Paris", "nova/consumed")
    person.photographs("sql-events")
