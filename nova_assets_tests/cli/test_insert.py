"""``nova insert``: all of the files or nothing, without starting Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nova_assets_tests.cli.conftest import Nova, write_json_lines

pytestmark = [pytest.mark.usefixtures("with_shop"), pytest.mark.slow]

TEA = {"id": 1, "item": "tea", "price": 2.5}
JAM = {"id": 2, "item": "jam", "price": 4.0}


def head(nova: Nova, channel: str) -> int:
    """Where a channel is; -1 where nobody knows it."""
    found = {c["name"]: c["head"] for c in nova("channels", "--json").json["channels"]}
    return int(found.get(channel, -1))


def test_files_of_every_kind_become_one_block_each_time(nova: Nova, folder: Path, orders_file: Path) -> None:
    (folder / "orders.csv").write_text("id,item,price\n3,tea,2.5\n")
    pq.write_table(pa.Table.from_pylist([TEA, JAM, TEA]), folder / "orders.parquet")
    first = nova("insert", "orders", orders_file)
    assert first.code == 0 and first.out.startswith("orders Δ(0→1): 2 rows, ")
    assert nova("insert", "orders", folder / "orders.csv").out.startswith("orders Δ(1→2): 1 row, ")
    both = nova("insert", "orders", orders_file, folder / "orders.jsonl", "--json")
    assert both.json["seq"] == 3 and [b["rows"] for b in both.json["blocks"]] == [4]
    assert nova("insert", "orders", folder / "orders.parquet", "--kind", "base").out.startswith("orders B4: 3 rows, ")


@pytest.mark.core
def test_a_block_in_another_format_and_a_file_that_stays_as_it_is(nova: Nova, folder: Path, orders_file: Path) -> None:
    (folder / "orders.csv").write_text("id,item,price\n3,tea,2.5\n")
    orc = nova("insert", "orders", orders_file, "--format", "orc", "--json").json
    assert orc["blocks"][0]["format"] == "orc"
    kept = nova("insert", "orders", folder / "orders.csv", "--keep-files", "--json").json
    assert kept["blocks"][0]["format"] == "csv" and kept["blocks"][0]["bytes"] == 24
    assert nova("insert", "orders", folder / "orders.csv", "--keep-files", "--dry-run").code == 0
    refused = nova("insert", "orders", orders_file, "--merge", "upsert")
    assert refused.code == 1 and "merge 'upsert' needs a key, and channel 'orders' has none" in refused.err
    unknown = nova("insert", "orders", orders_file, "--merge", "os:path", "--dry-run")
    assert unknown.code == 1 and "names no merge model" in unknown.err
    same = nova("insert", "orders", orders_file, "--merge", "append", "--json").json
    assert same["seq"] == 3 and "merge" not in same["blocks"][0]


def test_it_does_not_start_spark(nova_process: Nova, orders_file: Path, folder: Path) -> None:
    """With no Java at all."""
    (folder / "sitecustomize.py").write_text(
        "import nova_assets.engine.session.java as java\njava._list_java_candidates = lambda: iter([('PATH', None)])\n"
    )
    root = str(Path(__file__).resolve().parents[2])
    output = nova_process("insert", "orders", orders_file, PYTHONPATH=f"{folder}:{root}", JAVA_HOME="/nowhere")
    assert output.code == 0, output.err
    assert output.out.startswith("orders Δ(0→1): 2 rows")


def test_the_same_key_again_changes_nothing(nova: Nova, orders_file: Path) -> None:
    nova("insert", "orders", orders_file, "--key", "monday")
    again = nova("insert", "orders", orders_file, "--key", "monday")
    assert again.code == 0 and "already inserted with the key 'monday', nothing changed" in again.out
    repeated = nova("insert", "orders", orders_file, "--key", "monday", "--json").json
    assert repeated["repeated"] is True and repeated["seq"] == 1
    assert head(nova, "orders") == 1


def test_files_without_rows_change_nothing_and_say_so(nova: Nova, folder: Path, orders_file: Path) -> None:
    nova("insert", "orders", orders_file)
    (folder / "none.csv").write_text("id,item,price\n")
    output = nova("insert", "orders", folder / "none.csv")
    assert output.code == 0 and output.out == "orders stays at 1: the files contain no rows\n"
    found = nova("insert", "orders", folder / "none.csv", "--json").json
    assert (found["seq"], found["head"], found["blocks"]) == (None, 1, [])


def test_deletions_are_counted(nova: Nova, folder: Path) -> None:
    nova("insert", "stock", write_json_lines(folder / "a.jsonl", {"item": "tea", "count": 7}))
    gone = write_json_lines(folder / "b.jsonl", {"item": "tea", "count": 7, "_deleted": True})
    output = nova("insert", "stock", gone)
    assert output.code == 0 and "1 row, 1 of them deletions" in output.out


@pytest.mark.parametrize("kind", ["delta", "base"])
def test_a_dry_run_checks_and_changes_nothing(nova: Nova, folder: Path, orders_file: Path, kind: str) -> None:
    unregistered = nova("insert", "orders", orders_file, "--kind", kind, "--dry-run")
    assert unregistered.code == 0
    assert not (folder / ".nova").exists()
    nova("insert", "orders", orders_file)
    output = nova("insert", "orders", orders_file, "--kind", kind, "--dry-run")
    block = "Δ(1→2)" if kind == "delta" else "B2"
    assert output.code == 0 and f"1 file would become orders {block}" in output.out
    assert head(nova, "orders") == 1
    asked = nova("insert", "orders", orders_file, "--kind", kind, "--dry-run", "--json").json
    assert (asked["head"], [c["type"] for c in asked["schema"]]) == (1, ["bigint", "string", "double"])


def wrong_schema(folder: Path) -> Path:
    file = folder / "wrong.parquet"
    pq.write_table(pa.table({"id": ["one"], "colour": ["red"]}), file)
    return file


def truncated_parquet(folder: Path) -> Path:
    whole = folder / "whole.parquet"
    pq.write_table(pa.Table.from_pylist([TEA] * 100), whole)
    file = folder / "truncated.parquet"
    file.write_bytes(whole.read_bytes()[:-20])
    return file


def truncated_json(folder: Path) -> Path:
    file = folder / "truncated.jsonl"
    file.write_text('{"id": 1, "item": "tea", "price": 2.5}\n{"id": 2, "item": "ja')
    return file


def truncated_csv(folder: Path) -> Path:
    file = folder / "truncated.csv"
    file.write_text('id,item,price\n1,tea,2.5\n2,"ja')
    return file


def missing_file(folder: Path) -> Path:
    return folder / "nowhere.parquet"


def empty_file(folder: Path) -> Path:
    file = folder / "empty.parquet"
    file.write_bytes(b"")
    return file


def file_of_unknown_format(folder: Path) -> Path:
    file = folder / "orders.xlsx"
    file.write_bytes(b"PK")
    return file


@pytest.mark.parametrize(
    ("make", "code", "says"),
    [
        (wrong_schema, "NOVA-SCHEMA-MISMATCH", ["id"]),
        (truncated_parquet, "NOVA-BAD-RECORD", ["truncated.parquet"]),
        (truncated_json, "NOVA-BAD-RECORD", ["truncated.jsonl"]),
        (truncated_csv, "NOVA-BAD-RECORD", ["truncated.csv"]),
        (missing_file, None, ["nowhere.parquet"]),
        (empty_file, None, ["empty.parquet"]),
        (file_of_unknown_format, None, ["orders.xlsx"]),
    ],
)
@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
def test_what_cannot_be_inserted_is_refused_and_changes_nothing(
    nova: Nova, folder: Path, orders_file: Path, make: Any, code: str | None, says: list[str], dry: list[str]
) -> None:
    nova("insert", "orders", orders_file)
    before = sorted(p for p in (folder / ".nova" / "warehouse").rglob("*"))
    refused = nova("insert", "orders", orders_file, make(folder), "--json", *dry)
    assert refused.code == 1 and refused.out == ""
    assert refused.error["code"] == code or (code is None and refused.error["code"] != "NOVA-UNEXPECTED"), refused.err
    assert all(word in refused.error["what"] + refused.error.get("found", "") for word in says), refused.err
    assert head(nova, "orders") == 1
    assert sorted(p for p in (folder / ".nova" / "warehouse").rglob("*")) == before


@pytest.mark.core
def test_a_file_of_another_schema_hears_of_every_column(nova: Nova, folder: Path) -> None:
    nova("init")
    output = nova("insert", "orders", wrong_schema(folder))
    assert output.code == 1 and output.err.startswith("[NOVA-SCHEMA-MISMATCH] channel 'orders'")
    for problem in ("id is string, not bigint", "item string is missing", "price double is missing", "colour string"):
        assert problem in output.err
    assert "expected: id bigint, item string, price double" in output.err and "next:" in output.err


@pytest.mark.core
def test_a_missing_or_null_key_is_refused(nova: Nova, folder: Path) -> None:
    nova("init")
    null = write_json_lines(folder / "null.jsonl", {"item": None, "count": 1})
    output = nova("insert", "stock", null)
    assert output.code == 1 and output.err.startswith("[NOVA-BAD-KEY]") and "item" in output.err
    twice = write_json_lines(folder / "twice.jsonl", {"item": "tea", "count": 1}, {"item": "tea", "count": 2})
    output = nova("insert", "stock", twice)
    assert output.code == 1 and output.err.startswith("[NOVA-BAD-KEY]")
    assert head(nova, "stock") == 0


@pytest.mark.core
def test_an_unknown_channel_lists_the_known_ones(nova: Nova, orders_file: Path) -> None:
    nova("init")
    output = nova("insert", "order", orders_file)
    assert output.code == 1
    assert "no channel is called 'order'" in output.err and "archive, latest, orders, stock" in output.err


@pytest.mark.core
def test_a_warehouse_that_cannot_be_written_is_refused(nova: Nova, folder: Path, orders_file: Path) -> None:
    (folder / "file").write_text("")
    output = nova("--warehouse", "file/warehouse", "insert", "orders", orders_file)
    assert output.code == 1 and "[NOVA-WAREHOUSE-UNAVAILABLE]" in output.err
    assert head(nova, "orders") == 0


@pytest.mark.core
def test_what_cannot_be_launched_at_once_is_there_all_the_same(
    nova: Nova, orders_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    output = nova("insert", "orders", orders_file, "--launch")
    assert output.code == 0 and output.out.startswith("orders Δ(0→1): 2 rows")
    assert "no run was launched" in output.err and "DAGSTER_HOME" in output.err
    assert nova("insert", "orders", orders_file, "--launch", "--json").json["launched"] == {}
    monkeypatch.setenv("NOVA_DAGSTER_URL", "nowhere")
    refused = nova("insert", "orders", orders_file, "--launch")
    assert refused.code == 1 and "NOVA-SETTINGS" in refused.err
    monkeypatch.delenv("NOVA_DAGSTER_URL")
    assert head(nova, "orders") == 2
