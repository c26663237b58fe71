"""A project whose one binding is triggered per day."""

from __future__ import annotations

from typing import Any

import nova_assets as nova

SALES = "day string, id bigint, shop string"

sales = nova.Channel("sales", schema=SALES, partitions=nova.daily("day", start="2024-01-01"))
copies = nova.Channel("copies", schema=SALES, partitions=nova.daily("day", start="2024-01-01"))


@nova.task(consumes=nova.new(sales), produces=nova.delta(copies))
def copy_sales(sales: Any) -> Any:
    return sales


project = nova.Project([nova.bind(nova.Workflowette("copy_day", [copy_sales]), when=nova.on_data(sales))])
