"""``nova read``: rows on a terminal, in a pipe, as JSON, in files."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from nova_assets_tests.cli.conftest import Nova, write_json_lines

pytestmark = pytest.mark.spark

TEA, JAM = {"item": "tea", "count": 7}, {"item": "jam", "count": 1}


@pytest.fixture
def changed_stock(with_shop: None, nova: Nova, folder: Path) -> None:
    """Stock at version 2: tea and jam came, then the tea changed and the jam went."""
    nova("insert", "stock", write_json_lines(folder / "1.jsonl", TEA, JAM))
    then = write_json_lines(folder / "2.jsonl", {**TEA, "count": 6}, {**JAM, "_deleted": True})
    assert nova("insert", "stock", then, "--json").json["seq"] == 2


@pytest.mark.usefixtures("changed_stock")
def test_in_a_pipe_rows_come_with_tabs(nova: Nova) -> None:
    assert nova("read", "stock").out == "item\tcount\ntea\t6\n"


@pytest.mark.usefixtures("changed_stock")
def test_versions_and_changes_as_json(nova: Nova) -> None:
    old = nova("read", "stock", "--at", 1, "--json").json
    assert sorted(old["rows"], key=lambda r: r["item"]) == [JAM, TEA]
    assert (old["channel"], old["at"], old["since"], old["blocks"]) == ("stock", 1, None, "Δ(0→1)")
    changed = nova("read", "stock", "--since", 1, "--columns", "item,_deleted", "--json").json
    assert {r["item"]: r["_deleted"] for r in changed["rows"]} == {"tea": False, "jam": True}
    assert changed["columns"] == ["item", "_deleted"] and changed["at"] == 2


@pytest.mark.usefixtures("changed_stock")
def test_limit_gives_at_most_so_many(nova: Nova) -> None:
    assert len(nova("read", "stock", "--at", 1, "--limit", 1, "--json").json["rows"]) == 1
    assert len(nova("read", "stock", "--at", 1, "--limit", 9, "--json").json["rows"]) == 2


@pytest.mark.core
@pytest.mark.usefixtures("changed_stock")
def test_files_of_every_kind_hold_the_rows(nova: Nova, folder: Path) -> None:
    output = nova("read", "stock", "--output", folder / "stock.parquet")
    assert output.code == 0 and "stock.parquet: 1 row, " in output.out
    assert pq.read_table(folder / "stock.parquet").to_pylist() == [{"item": "tea", "count": 6}]
    nova("read", "stock", "--output", folder / "stock.csv")
    with (folder / "stock.csv").open() as file:
        assert list(csv.DictReader(file)) == [{"item": "tea", "count": "6"}]
    found = nova("read", "stock", "--output", folder / "stock.jsonl", "--json").json
    assert json.loads((folder / "stock.jsonl").read_text()) == {"item": "tea", "count": 6}
    assert found["count"] == 1 and found["output"].endswith("stock.jsonl")
    assert not [p for p in folder.iterdir() if p.name.startswith(".stock")]


@pytest.mark.core
@pytest.mark.usefixtures("changed_stock")
def test_what_was_written_can_be_inserted_again(nova: Nova, folder: Path) -> None:
    for suffix in ("parquet", "csv", "jsonl"):
        nova("read", "stock", "--output", folder / f"stock.{suffix}")
        assert nova("insert", "stock", folder / f"stock.{suffix}", "--kind", "base").code == 0
    assert nova("read", "stock").out == "item\tcount\ntea\t6\n"


@pytest.mark.usefixtures("changed_stock")
@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["stocks"], "NOVA-CHANNEL-NOT-FOUND", "orders, stock"),
        (["stock", "--at", "9"], "NOVA-VERSION-NOT-FOUND", "0 to 2"),
        (["stock", "--columns", "colour"], "NOVA-SCHEMA-MISMATCH", "colour"),
        (["stock", "--output", "nowhere/stock.csv"], "NOVA-ERROR", "nowhere/stock.csv cannot be written"),
    ],
)
def test_what_cannot_be_read_says_why(nova: Nova, arguments: list[str], code: str, says: str) -> None:
    nova("init")
    output = nova("read", *arguments)
    assert output.code == 1 and output.out == ""
    assert output.err.startswith(f"[{code}]") and says in output.err


@pytest.mark.core
def test_without_a_catalog_it_says_where_it_looked(with_shop: None, nova: Nova, folder: Path) -> None:
    read = nova("read", "stock")
    assert read.code == 0 and f"there is no catalog at sqlite:///{folder}/.nova/catalog.db yet" in read.err
    assert list(folder.iterdir()) == []
