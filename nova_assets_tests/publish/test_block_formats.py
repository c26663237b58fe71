"""Channels whose blocks have several file formats, in tables that others read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from nova_assets_tests.publish.shop import Row, Shop, rows

FORMATS = ["csv", "orc", "avro", "json", "parquet"]
KEYED = nova.Upsert(key=["dt", "action", "id"])


def insert(shop: Shop, kind: Any, format: Any, *given: Row) -> None:
    shop.store.insert("actions", rows(*given), kind=kind, format=format)


def tables_show_the_channel(shop: Shop) -> None:
    shop.publish()
    assert shop.in_folder() == shop.in_iceberg() == shop.in_channel()
    files = [p for p in shop.resolved.rglob("*") if p.is_file() and p.name != "_SUCCESS"]
    assert files and all(p.suffix == ".parquet" for p in files)


@pytest.mark.slow
@pytest.mark.parametrize("merge", [nova.Append(), KEYED], ids=["append", "upsert"])
def test_tables_hold_one_format(tmp_path: Path, merge: Any) -> None:
    shop = Shop(tmp_path, merge)
    for n, name in enumerate(FORMATS):
        insert(shop, "delta", name, ("2024-01-01", "login", n, n), ("2024-01-02", f"by {name}", n, n))
    tables_show_the_channel(shop)
    assert len(shop.in_channel()) == 2 * len(FORMATS)
    insert(shop, "delta", "csv", ("2024-01-02", "by csv", 0, 7))
    tables_show_the_channel(shop)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_a_base_of_another_format_is_not_linked(tmp_path: Path, name: str) -> None:
    shop = Shop(tmp_path)
    insert(shop, "base", name, ("2024-01-01", "login", 1, 10), ("2024-01-02", "view", 2, 20))
    tables_show_the_channel(shop)
    assert len(shop.in_channel()) == 2
