"""``nova compact`` and ``nova collect``: what they would do, and what collecting does. Neither needs Spark for it."""

from __future__ import annotations

import pytest

from nova_assets.store import Store
from nova_assets_tests.cli.conftest import Nova


@pytest.fixture
def counted(stub_store: Store) -> Store:
    """Stock counted three times and compacted; consumed after the first."""
    stub_store.register(stub_store.project)
    stub_store.insert("stock", [{"item": "tea", "count": 7}])
    stub_store.insert("stock", [{"item": "jam", "count": 1}])
    stub_store.compact("stock")
    stub_store.insert("stock", [{"item": "jam", "count": 0, "_deleted": True}])
    return stub_store


def test_a_dry_run_says_what_and_why_and_changes_nothing(nova: Nova, counted: Store) -> None:
    said = nova("compact", "stock", "--dry-run", "--json").json
    assert said == {
        "dry_run": True,
        "channels": [
            {
                "channel": "stock",
                "partitions": [{"partition": "", "at": 3, "why": "asked for"}],
                "commit": None,
                "blocks": [],
            }
        ],
    }
    assert "Nothing to compact." in nova("compact", "stock", "--due", "--dry-run").out
    shown = nova("collect", "stock", "--dry-run")
    assert shown.code == 0 and "would go" in shown.out and "the newest snapshot" in shown.out
    assert len(counted.catalog.history("stock").blocks) == 4


def test_what_nobody_needs_is_collected_and_the_timeline_says_so(nova: Nova, counted: Store) -> None:
    said = nova("collect", "stock", "--json").json
    [channel] = said["channels"]
    assert [b["range"] for b in channel["collected"]] == ["Δ(0→1)", "Δ(1→2)"]
    assert {h["range"]: h["by"] for h in channel["held"]} == {
        "B2": ["the newest snapshot"],
        "Δ(2→3)": ["the newest snapshot"],
    }
    shown = nova("timeline", "stock").out
    assert "compact" in shown and "collect" in shown
    gone = nova("read", "stock", "--at", "1")
    assert gone.code == 1 and "NOVA-BLOCK-COLLECTED" in gone.err and "2 or later" in gone.err and "retain=" in gone.err
    assert nova("collect", "nothing").code == 1


def test_an_empty_catalog_has_nothing_to_do(nova: Nova) -> None:
    assert "Nothing to compact." in nova("compact", "--dry-run").out
    assert "There is no block." in nova("collect", "--dry-run").out


def test_a_dry_run_of_a_restoration(nova: Nova, counted: Store) -> None:
    said = nova("restore", "stock", "--at", "1", "--dry-run")
    assert said.code == 0 and said.out.strip() == "stock, now at 3, would become what it was at 1: Δ(0→1)"
    assert nova("restore", "stock", "--at", "9").code == 1 and counted.catalog.channel("stock").head == 3


def test_an_unreadable_period_lets_nothing_go(nova: Nova, counted: Store) -> None:
    said = nova("collect", "stock", "--retain", "30days")
    assert said.code == 1 and "NOVA-DEFINITION" in said.err and "'30days'" in said.err and "30s" in said.err
    assert len(counted.catalog.history("stock").blocks) == 4
