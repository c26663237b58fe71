"""What a test of kills runs in a process of its own: one execution of two maintained queries, the second of which reads
the result of the first.

``python -m nova_assets_tests.sql.incremental.kill_worker CATALOG WAREHOUSE``
"""

from __future__ import annotations

import sys
from typing import Any

import nova_assets as nova

ORDERS = nova.Channel("orders", merge=nova.Upsert(key="id"), schema="id int, user int, amount int")
TOTALS = nova.Channel("totals", merge=nova.Upsert(key="user"), schema="user int, n bigint, total bigint")
SIZES = nova.Channel("sizes", merge=nova.Multiset(), schema="size string, user int, total bigint")
KEEP_TOTALS = nova.incremental(
    "keep_totals",
    "SELECT user, COUNT(*) AS n, SUM(amount) AS total FROM orders GROUP BY user",
    produces=nova.delta(TOTALS),
)
KEEP_SIZES = nova.incremental(
    "keep_sizes",
    "SELECT IF(total > 10, 'large', 'small') AS size, user, total FROM totals",
    produces=nova.delta(SIZES),
)
PROJECT = nova.Project(
    [
        nova.bind(nova.Workflowette("totals", [KEEP_TOTALS]), channels={"orders": ORDERS}),
        nova.bind(nova.Workflowette("sizes", [KEEP_SIZES]), channels={"totals": TOTALS}),
    ],
    channels=[ORDERS],
)


def open_store(catalog: str, warehouse: str, spark: Any = None) -> nova.Store:
    return nova.open(PROJECT, catalog, warehouse, spark, lease=0.5, grace=0.1)


if __name__ == "__main__":
    with open_store(sys.argv[1], sys.argv[2]) as store:
        store.run("totals")
        store.run("sizes")
    print("done")
