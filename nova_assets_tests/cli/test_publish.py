"""``nova publish``, ``editions`` and ``withdraw``, without starting Spark."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from nova_assets_tests.cli.conftest import Nova

PROJECT = """
import nova_assets as nova

orders = nova.Channel("orders", nova.Upsert(key="id"), "id bigint, price double", publish=nova.hive("exports/orders"))
project = nova.Project(channels=[orders, nova.Channel("plain", schema="id bigint")])
"""


@pytest.fixture(autouse=True)
def project(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "shown.py").write_text(PROJECT)
    (folder / "pyproject.toml").write_text('[tool.nova]\nproject = "shown:project"\n')
    (folder / "orders.csv").write_text("id,price\n1,2.5\n2,3.5\n")
    monkeypatch.delitem(sys.modules, "shown", raising=False)


def test_published_and_withdrawn(nova: Nova, folder: Path) -> None:
    assert nova("insert", "orders", "orders.csv").code == 0
    output = nova("publish", "orders", "--dry-run").out
    assert output == "hive:exports/orders would show 1, 2 rows in 1 file\n  1 partition would be compacted first\n"
    assert not (folder / "exports").exists(), "looking changes nothing"
    made = nova("publish", "orders", "--json").json
    assert [(e["table"], e["edition"], e["seq"], e["rows"]) for e in made["editions"]] == [
        ("hive:exports/orders", 1, 1, 2)
    ]
    assert (folder / "exports/orders/_SUCCESS").exists()
    assert nova("publish", "orders").out == "The tables of orders already show its head.\n"
    assert nova("publish", "orders", "--dry-run").out == "hive:exports/orders already shows 1\n"
    assert "hive:exports/orders" in nova("published", "orders").out
    assert nova("unpublish", "orders", "--dry-run").out == "hive:exports/orders would be removed\n"
    assert (folder / "exports/orders").is_symlink()
    assert nova("unpublish", "orders").out == "hive:exports/orders was removed\n"
    assert not (folder / "exports/orders").exists()
    assert nova("published", "orders").out == "orders has not been published yet.\n"


def test_what_cannot_be_published(nova: Nova, folder: Path) -> None:
    output = nova("publish", "plain")
    assert output.code == 1 and "channel 'plain' is not published anywhere" in output.err
    assert "publish=nova.hive" in output.err
    (folder / "exports/orders").mkdir(parents=True)
    nova("insert", "orders", "orders.csv")
    output = nova("publish", "orders")
    assert output.code == 1
    assert "exists already, and does not belong to this channel" in output.err and "--take-over" in output.err
    assert nova("unpublish", "orders", "hive:x").code == 1
