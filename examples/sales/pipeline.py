"""Sales of stores and of products: the example datasets of BigDataFlow (part 2).

Only the queries in ``sql/`` are written by hand. Schemas, partitions and the inputs of each task follow from the
queries. Commands to try in a checkout:

    nova --project examples.sales.pipeline:project show store_sales
    nova --project examples.sales.pipeline:project show products_sales day=2022-03-31
"""

from __future__ import annotations

from pathlib import Path

import nova_assets as nova

tickets = nova.Channel(
    "tickets",
    schema="product_id string, price decimal(10,2), day string, store string",
    partitions=[nova.daily("day", start="2022-03-01"), nova.static("store", ["Detroit", "Paris"])],
    description="A row for each piece sold.",
)

project = nova.Project(bindings=nova.datasets(Path(__file__).parent / "sql", channels=[tickets]))
