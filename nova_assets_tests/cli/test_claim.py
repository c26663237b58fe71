"""``nova doctor --claim``: a person decides which copy of a catalog owns the warehouse."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import nova_assets as nova_package
from nova_assets_tests.cli.conftest import Nova

ORDERS = nova_package.Channel("orders", schema="id bigint", merge=nova_package.Append())


@pytest.fixture
def copied(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the catalog in another folder, beside the warehouse of the original."""
    monkeypatch.setenv("NOVA_WAREHOUSE", str(folder / "wh"))
    with nova_package.open(catalog=str(folder / "c.db")) as store:
        store.register(ORDERS)
        for n in range(3):
            store.insert("orders", [{"id": n}])
        store.compact("orders")
    (folder / "elsewhere").mkdir()
    return Path(shutil.copy(folder / "c.db", folder / "elsewhere" / "c.db"))


def test_a_copy_says_what_it_is_until_it_claims_the_warehouse(nova: Nova, folder: Path, copied: Path) -> None:
    finding = next(c for c in nova("--catalog", copied, "doctor", "--json").json["checks"] if c["name"] == "catalog")
    assert finding["status"] == "warning" and finding["facts"]["copied_from"] == str(folder / "c.db")
    assert finding["next"].startswith("nova doctor --claim")
    refused = nova("--catalog", copied, "gc", "--json")
    assert (refused.code, refused.error["code"]) == (1, "NOVA-COPY-UNDECIDED")

    planned = nova("--catalog", copied, "doctor", "--claim", "--dry-run", "--json").json
    assert planned == {
        "dry_run": True,
        "catalog": f"sqlite:///{copied}",
        "warehouse": str(folder / "wh"),
        "copied_from": str(folder / "c.db"),
    }
    assert nova("--catalog", copied, "gc").code == 1, "a dry run decides nothing"

    claimed = nova("--catalog", copied, "doctor", "--claim")
    assert claimed.code == 0 and "owns the warehouse" in claimed.out
    assert nova("--catalog", copied, "gc").code == 0
    original = nova("--catalog", folder / "c.db", "gc", "--json")
    assert (original.code, original.error["code"]) == (1, "NOVA-WAREHOUSE-MISMATCH")
    assert nova("--catalog", folder / "c.db", "doctor", "--claim").code == 0, "the original takes it back"
    assert nova("--catalog", folder / "c.db", "gc").code == 0 and nova("--catalog", copied, "gc").code == 1


def test_a_claim_needs_a_catalog_and_stands_alone(nova: Nova, folder: Path) -> None:
    assert nova("doctor", "--claim", "--repair").code == 2
    missing = nova("--catalog", folder / "none.db", "doctor", "--claim", "--json")
    assert (missing.code, missing.error["code"]) == (1, "NOVA-CATALOG-UNAVAILABLE")
    assert not (folder / "none.db").exists()
