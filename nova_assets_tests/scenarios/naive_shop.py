"""Batches of orders for ``shop_twice``, and what its channels must hold after each: computed from all orders."""

from __future__ import annotations

from collections import defaultdict
from datetime import date
from typing import Any

from nova_assets.store.store import Store
from nova_assets_tests.scenarios.shop_twice import FROM


def order(of_day: int, number: int, shop: str, amount: int, *, deleted: bool = False) -> dict[str, Any]:
    return {"day": date(2026, 1, of_day), "id": number, "shop": shop, "amount": amount, "_deleted": deleted}


BATCHES: list[tuple[str, list[dict[str, Any]]]] = [
    (
        "2026-01-02",
        [order(2, 1, "Lyon", 12), order(2, 2, "Metz", 5), order(2, 3, "Metz", 20), order(2, 4, "Brest", 11)],
    ),
    # one becomes large, one becomes small, one is deleted
    ("2026-01-02", [order(2, 2, "Metz", 15), order(2, 3, "Metz", 4), order(2, 1, "Lyon", 12, deleted=True)]),
    ("2026-01-01", [order(1, 5, "Lyon", 30), order(1, 6, "Lyon", 2)]),  # a day that is late
]
"""The partition of each batch, and its orders."""


def expected(batches: int) -> tuple[list[tuple[Any, ...]], dict[str, tuple[int, int]]]:
    """Rows of ``large`` and sums of ``totals`` after some batches."""
    orders: dict[Any, dict[str, Any]] = {}
    for row in (row for _, rows in BATCHES[:batches] for row in rows):
        orders.pop((row["day"], row["id"]), None)
        if not row["_deleted"]:
            orders[row["day"], row["id"]] = row
    kept = [r for r in orders.values() if r["amount"] >= FROM]
    sums: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for r in kept:
        total, count = sums[r["shop"]]
        sums[r["shop"]] = total + r["amount"], count + 1
    return sorted((r["day"], r["id"], r["shop"], r["amount"]) for r in kept), dict(sums)


def held(store: Store, suffix: str = "") -> tuple[list[tuple[Any, ...]], dict[str, tuple[int, int]]]:
    """The same of the channels; shops without orders are left out."""
    large = store.read(f"large{suffix}").to_arrow().to_pylist()
    totals = store.read(f"totals{suffix}").to_arrow().to_pylist()
    return (
        sorted((r["day"], r["id"], r["shop"], r["amount"]) for r in large),
        {r["shop"]: (r["total"], r["orders"]) for r in totals if r["orders"] or r["total"]},
    )
