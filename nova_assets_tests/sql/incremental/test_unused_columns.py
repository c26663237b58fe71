"""Changes of columns that a query does not use."""

from __future__ import annotations

from typing import Any

import pytest

from nova_assets_tests.sql.incremental.test_datasets import deploy, maintenances, order

__all__ = ["deploy"]


@pytest.mark.spark
def test_a_change_of_columns_that_the_query_does_not_use_replaces_nothing(deploy: Any) -> None:
    ranked = "SELECT user, id, RANK() OVER (PARTITION BY user ORDER BY id) AS r FROM orders"
    one = deploy("auto", ranks=f"SELECT user, COUNT(DISTINCT id) AS n, MAX(r) AS m FROM ({ranked}) GROUP BY user")
    one.store.insert("orders", [order(1, 1), order(2, 1)])
    one.tick()
    heads = []
    for changed in (order(1, 1, 70), order(1, 2, 70)):
        one.store.insert("orders", [changed])
        assert one.tick() == ["ranks"]
        one.check()
        heads.append(one.head("ranks"))
    assert heads == [1, 2], "only the second change takes a number"
    assert maintenances(one, "ranks")[-1] == ("replacement", "base")
