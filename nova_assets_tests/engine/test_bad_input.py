"""Bad input: each says what, where, what was expected and what to do; each changes nothing. None of it starts Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import nova_assets as nova

DDL = "id bigint, name string, price double"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[nova.Store]:
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh") as opened:
        opened.register(
            [
                nova.Channel("bag", schema=DDL),
                nova.Channel("keyed", merge=nova.Upsert(key="id"), schema=DDL),
                nova.Channel("open"),
            ]
        )
        opened.insert("bag", [{"id": 1, "name": "a", "price": 1.0}])
        opened.insert("keyed", [{"id": 1, "name": "a", "price": 1.0}])
        yield opened


def state(store: nova.Store, tmp_path: Path) -> Any:
    """What an outsider could see: heads, timelines, files."""
    files = sorted(p.relative_to(tmp_path).as_posix() for p in (tmp_path / "wh").rglob("*.parquet"))
    folders = sorted(p.name for p in (tmp_path / "wh" / "blocks").iterdir())
    instants = {
        s.channel.name: [i for i in store.timeline(s.channel.name) if i.action != "rollback"] for s in store.channels()
    }
    return [(s.channel.name, s.head, len(instants[s.channel.name])) for s in store.channels()], files, folders


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def truncated_parquet(folder: Path) -> Path:
    pq.write_table(
        pa.table({"id": list(range(1000)), "name": ["x"] * 1000, "price": [1.0] * 1000}), folder / "t.parquet"
    )
    whole = (folder / "t.parquet").read_bytes()
    return written(folder / "t.parquet", whole[: len(whole) // 2])


def columnless_parquet(folder: Path) -> Path:
    pq.write_table(pa.table({"x": [1, 2]}).select([]), folder / "c.parquet")
    return folder / "c.parquet"


def row(**other: Any) -> dict[str, Any]:
    return {"id": 2, "name": "b", "price": 2.0, **other}


CASES: dict[str, tuple[str, Any, type[nova.NovaError], str]] = {
    "another type": ("bag", [row(price="cheap")], nova.SchemaMismatch, "column 'price'.*'cheap' is no double"),
    "a missing column": ("bag", [{"id": 2, "name": "b"}], nova.SchemaMismatch, "column price double is missing"),
    "a column too many": ("bag", [row(extra=1)], nova.SchemaMismatch, "column extra bigint is not on the channel"),
    "an Arrow column of another type": (
        "bag",
        pa.table({"id": ["x"], "name": ["b"], "price": [1.0]}),
        nova.SchemaMismatch,
        "column id is string, not bigint",
    ),
    "a null key": ("keyed", [row(id=None)], nova.BadKey, "key column 'id' is null in 1 rows"),
    "a missing key": ("keyed", [{"name": "b", "price": 1.0}], nova.NovaError, "id"),
    "a key twice": (
        "keyed",
        [row(), row(price=3.0)],
        nova.BadKey,
        "2 live rows of one key.*merge model has no order_by",
    ),
    "deletions in a bag": ("bag", [row(_deleted=True)], nova.SchemaMismatch, "append-only.*'_deleted'"),
    "an empty list": ("bag", [], nova.EmptyInput, "no data to insert"),
    "dicts without a column": ("open", [{}, {}], nova.EmptyInput, "the rows to insert have no columns.*2 rows"),
    "a table without a column": (
        "open",
        pa.table({"x": [1]}).select([]),
        nova.EmptyInput,
        "the rows to insert have no columns",
    ),
    "pandas without a column": (
        "open",
        pd.DataFrame(index=[1, 2]),
        nova.EmptyInput,
        "the rows to insert have no columns",
    ),
    "JSON without a column": (
        "open",
        lambda f: written(f / "e.jsonl", b"{}\n{}\n"),
        nova.BadRecord,
        "no column.*2 rec",
    ),
    "Parquet without a column": ("open", columnless_parquet, nova.BadRecord, "no column"),
    "a file without a byte": ("bag", lambda f: written(f / "e.csv", b""), nova.EmptyInput, "e.csv is empty"),
    "truncated Parquet": ("bag", truncated_parquet, nova.BadRecord, "t.parquet"),
    "truncated JSON lines": (
        "bag",
        lambda f: written(f / "t.jsonl", json.dumps(row()).encode() + b'\n{"id": 3, "na'),
        nova.BadRecord,
        "t.jsonl: line 2 is no JSON",
    ),
    "JSON of another encoding": (
        "bag",
        lambda f: written(f / "l.jsonl", json.dumps(row()).encode() + '\n{"id": 3, "name": "é"}'.encode("latin-1")),
        nova.BadRecord,
        "l.jsonl: line 2 is no JSON",
    ),
    "CSV of another encoding": (
        "bag",
        lambda f: written(f / "l.csv", "id,name,price\n2,é,2.0\n".encode("latin-1")),
        nova.BadRecord,
        "l.csv: row 2.*invalid UTF8",
    ),
    "truncated CSV": (
        "bag",
        lambda f: written(f / "t.csv", b'id,name,price\n2,b,2.0\n3,"c'),
        nova.BadRecord,
        "t.csv: the file ends inside a quoted value",
    ),
    "a ragged CSV": ("bag", lambda f: written(f / "r.csv", b"id,name,price\n2,b\n"), nova.BadRecord, "r.csv: row 2"),
    "text as Parquet": ("bag", lambda f: written(f / "x.parquet", b"hello"), nova.BadRecord, "x.parquet"),
    "a missing file": ("bag", lambda f: f / "none.csv", nova.BadRecord, "none.csv"),
    "a format that is not known": ("bag", lambda f: written(f / "a.xls", b"x"), nova.BadRecord, "a.xls"),
    "an unknown channel": ("bags", [row()], nova.ChannelNotFound, "no channel is called 'bags'"),
    "an unknown kind of data": ("bag", 42, nova.NovaError, "int"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_told_and_changes_nothing(case: str, store: nova.Store, tmp_path: Path) -> None:
    channel, data, kind, message = CASES[case]
    before = state(store, tmp_path)
    with pytest.raises(kind, match=f"(?s){message}") as met:
        store.insert(channel, data(tmp_path) if callable(data) else data)
    assert met.value.code.startswith("NOVA-") and (met.value.expected or met.value.next or met.value.found)
    assert state(store, tmp_path) == before, "nothing has changed, and nothing is left"


def test_an_unwritable_warehouse_is_told(tmp_path: Path) -> None:
    written(tmp_path / "file", b"not a folder")
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "file" / "wh") as store:
        store.register(nova.Channel("bag", schema=DDL))
        with pytest.raises(nova.WarehouseUnavailable, match=r"the warehouse .* cannot be (read|written)") as met:
            store.insert("bag", [row()])
        assert "NOVA_WAREHOUSE" in str(met.value.next)
        assert store.timeline("bag") == []


def test_paths_in_the_catalog_cannot_lead_out_of_the_warehouse(tmp_path: Path) -> None:
    from nova_assets.engine.storage.warehouse import Warehouse
    from nova_assets.model.block import DataFile

    warehouse = Warehouse(tmp_path / "wh")
    for path in ("../secret.parquet", "blocks/../../x/y", "/etc/passwd", "blocks/a/../../b", "blocks/a/.."):
        with pytest.raises(nova.FileMissing):
            warehouse.file_address(DataFile(path, 1, 1))
    written(tmp_path / "keep", b"x")
    for folder in ("..", "blocks/..", "blocks", "", "blocks/a/b"):
        with pytest.raises(nova.WarehouseUnavailable):
            warehouse.delete_block_folder(folder) if (
                tmp_path / "wh" / folder
            ).exists() else warehouse.block_folder_address(folder)
    assert (tmp_path / "keep").exists()


def test_a_file_that_was_changed_or_removed_is_told(store: nova.Store, tmp_path: Path) -> None:
    (file,) = store.timeline("bag")[0].blocks[0].manifest.files
    path = tmp_path / "wh" / file.path
    path.write_bytes(path.read_bytes() + b"!")
    with pytest.raises(nova.FileMissing, match="was changed after it was committed"):
        store.engine.warehouse.verified_addresses([file])  # type: ignore[attr-defined]
    path.unlink()
    with pytest.raises(nova.FileMissing, match="not in the warehouse"):
        store.engine.warehouse.verified_addresses([file])  # type: ignore[attr-defined]
