"""``nova compact`` and ``nova gc``: what they would do, and what collecting does. Neither needs Spark for it."""

from __future__ import annotations

import pytest

import nova_assets
from nova_assets.store.store import Store
from nova_assets_tests.cli.conftest import Nova


@pytest.fixture
def store_with_compacted_stock(stub_store: Store) -> Store:
    """Stock counted three times and compacted; consumed after the first."""
    stub_store.register(stub_store.project)
    stub_store.insert("stock", [{"item": "tea", "count": 7}])
    stub_store.insert("stock", [{"item": "jam", "count": 1}])
    stub_store.compact("stock")
    stub_store.insert("stock", [{"item": "jam", "count": 0, "_deleted": True}])
    return stub_store


def test_a_dry_run_says_what_and_why_and_changes_nothing(nova: Nova, store_with_compacted_stock: Store) -> None:
    output = nova("compact", "stock", "--dry-run", "--json").json
    assert output == {
        "dry_run": True,
        "channels": [
            {
                "channel": "stock",
                "partitions": [{"partition": "", "at": 3, "range": "B3", "why": "requested"}],
                "commit": None,
                "blocks": [],
                "ways": [],
            }
        ],
    }
    assert "Nothing to compact." in nova("compact", "stock", "--due", "--dry-run").out
    shown = nova("gc", "stock", "--dry-run")
    assert shown.code == 0 and "would be collected" in shown.out and "the newest snapshot" in shown.out
    assert len(store_with_compacted_stock.catalog.histories.of("stock").blocks) == 4


def test_what_nobody_needs_is_collected_and_the_timeline_says_so(nova: Nova, store_with_compacted_stock: Store) -> None:
    output = nova("gc", "stock", "--json").json
    [channel] = output["channels"]
    assert [b["range"] for b in channel["collected"]] == ["Δ(0→1)", "Δ(1→2)"]
    assert {h["range"]: h["by"] for h in channel["held"]} == {
        "B2": ["the newest snapshot"],
        "Δ(2→3)": ["the newest snapshot"],
    }
    shown = nova("timeline", "stock").out
    assert "compact" in shown and "collect" in shown
    gone = nova("read", "stock", "--at", "1")
    assert gone.code == 1 and "NOVA-BLOCK-COLLECTED" in gone.err and "2 or later" in gone.err and "retain=" in gone.err
    assert nova("gc", "nothing").code == 1


def test_deltas_are_chained_when_that_is_asked_for(nova: Nova, store_with_compacted_stock: Store) -> None:
    store_with_compacted_stock.insert("stock", [{"item": "rum", "count": 2}])
    assert "Δ(2→4)" in nova("compact", "stock", "--chain", "--dry-run").out
    assert store_with_compacted_stock.compact("stock", chained=True) is not None
    assert "Δ(2→4)" in nova("timeline", "stock").out and "Δ(2→3)" in nova("gc", "stock", "--dry-run").out
    assert nova("compact", "stock", "--chain", "--due").code == 2


def test_partitions_are_dropped(nova: Nova, stub_store: Store) -> None:
    days = nova_assets.daily("day", start="2020-01-01", keep="1d")
    stub_store.register(nova_assets.Channel("sales", schema="day string, n bigint", partitions=days))
    stub_store.insert("sales", [{"day": "2024-01-01", "n": 1}, {"day": "2024-01-02", "n": 2}])
    would = nova("drop", "sales", "--expired", "--dry-run")
    assert "Would be dropped from sales" in would.out and "day=2024-01-01" in would.out
    output = nova("drop", "sales", "--partition", "2024-01-01", "--json").json
    assert output == {"dry_run": False, "channel": "sales", "partitions": ["day=2024-01-01"], "seq": 2}
    assert "no such partition" in nova("drop", "sales", "--partition", "2024-01-01").out
    assert nova("drop", "sales", "--expired").out == "Dropped from sales, which is now at 3:\n  day=2024-01-02\n"
    assert "drop" in nova("timeline", "sales").out
    for wrong in (["sales"], ["sales", "--expired", "--partition", "2024-01-01"]):
        assert nova("drop", *wrong).code == 2
    assert nova("drop", "sales", "--partition", "tomorrow").code == 1


def test_an_empty_catalog_has_nothing_to_do(nova: Nova) -> None:
    assert "Nothing to compact." in nova("compact", "--dry-run").out
    assert "There are no blocks." in nova("gc", "--dry-run").out


def test_a_dry_run_of_a_restoration(nova: Nova, store_with_compacted_stock: Store) -> None:
    output = nova("restore", "stock", "--at", "1", "--dry-run")
    assert output.code == 0 and output.out.strip() == "stock, now at 3, would be restored to 1: Δ(0→1)"
    assert (
        nova("restore", "stock", "--at", "9").code == 1
        and store_with_compacted_stock.catalog.definitions.channel("stock").head == 3
    )


def test_an_unreadable_period_lets_nothing_go(nova: Nova, store_with_compacted_stock: Store) -> None:
    output = nova("gc", "stock", "--retain", "30months")
    assert output.code == 1 and "NOVA-DEFINITION" in output.err and "'30months'" in output.err and "30s" in output.err
    assert len(store_with_compacted_stock.catalog.histories.of("stock").blocks) == 4
