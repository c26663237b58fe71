"""Random tables, inserted, and read by every reader: each gives the same values, or refuses a column by name.

A type is any type of a channel, at any depth. The values are those at its edges, and nulls.
"""

from __future__ import annotations

import contextlib
import json
import math
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from click.testing import CliRunner

import nova_assets as nova
from nova_assets.cli.main import cli
from nova_assets.cli.read import to_json_value
from nova_assets.client.rows import RemoteSelection
from nova_assets.service.routes.data import RowStream
from nova_assets_tests.fuzz.values import TYPES, ColumnType

_LEAVES = [t for t in TYPES.values() if not pa.types.is_nested(t.arrow)]
_BIG = (2**53 + 1, -(2**53) - 1)
"""Whole numbers that a float rounds."""

_ROWS = 6
_COLUMNS = 8
_FORMAT_COLUMNS = 2
"""Columns that are also written in each other format."""

_CHANNEL = "c"

Make = Callable[[random.Random], Any]


def _random_type(rng: random.Random, depth: int) -> tuple[pa.DataType, Make]:
    """A type, and a function that makes its values."""
    kind = rng.choice(("leaf", "leaf", "list", "struct", "map")) if depth else "leaf"
    if kind == "leaf":
        leaf: ColumnType = rng.choice(_LEAVES)
        values = (*leaf.values, *_BIG) if leaf.ddl == "bigint" else leaf.values
        return leaf.arrow, lambda rng: rng.choice(values) if rng.random() < 0.75 else None
    inner, make = _random_type(rng, depth - 1)
    if kind == "list":
        return pa.list_(inner), _or_null(lambda rng: [make(rng) for _ in range(rng.randrange(4))])
    if kind == "map":
        keys = ("", "a", "é")
        return pa.map_(pa.string(), inner), _or_null(
            lambda rng: [(k, make(rng)) for k in rng.sample(keys, rng.randrange(4))]
        )
    other, make_other = _random_type(rng, depth - 1)
    return pa.struct([("x", inner), ("y", other)]), _or_null(lambda rng: {"x": make(rng), "y": make_other(rng)})


def _or_null(make: Make) -> Make:
    return lambda rng: make(rng) if rng.random() < 0.85 else None


def random_table(rng: random.Random) -> pa.Table:
    arrays: dict[str, pa.Array] = {"row": pa.array(range(_ROWS), pa.int32())}
    for n in range(_COLUMNS):
        type_, make = _random_type(rng, rng.randrange(3))
        arrays[f"c{n}"] = pa.array([make(rng) for _ in range(_ROWS)], type_)
    return pa.table(arrays)


def find_difference(seed: int, folder: Path, spark: Any = None) -> str | None:
    """Difference between a table and what a reader returns; None if there is none."""
    table = random_table(random.Random(seed))
    catalog, warehouse = f"sqlite:///{folder}/{seed}.db", folder / f"wh{seed}"
    expected = table.to_pylist()
    with nova.open(catalog=catalog, warehouse=warehouse, **({} if spark is None else {"spark": spark})) as store:
        store.register(nova.Channel(_CHANNEL, schema=table.schema))
        store.insert(_CHANNEL, table)
        readers: Mapping[str, Callable[[], list[dict[str, Any]]]] = {
            "to_arrow": lambda: store.read(_CHANNEL).to_arrow().to_pylist(),
            "to_batches": lambda: _batches(store),
            "service": lambda: _rows_of_service(store).to_arrow().to_pylist(),
            "to_pandas": lambda: _inserted_again(store, table, store.read(_CHANNEL).to_pandas()),
            "to_pandas of a service": lambda: _inserted_again(store, table, _rows_of_service(store).to_pandas()),
            **{f: lambda f=f: _stored_in_format(store, table, f) for f in ("orc", "avro", "csv", "json")},
        }
        if spark is not None:
            readers = {
                **readers,
                "to_spark": lambda: store.engine.frames.to_arrow(store.read(_CHANNEL).to_spark()).to_pylist(),
            }
        for name, read in readers.items():
            nan = None if "pandas" in name else "NaN"  # which is null in pandas
            try:
                rows = read()
            except nova.NovaError as error:
                return f"seed {seed}: {name}\n  {error}"
            wanted, actual = _comparable(_selected(expected, rows), nan), _comparable(rows, nan)
            if actual != wanted:
                return f"seed {seed}: {name}\n{_differences(wanted, actual, table)}"
    shown = CliRunner(env={"NOVA_CATALOG": catalog, "NOVA_WAREHOUSE": str(warehouse)}).invoke(
        cli, ["read", _CHANNEL, "--json"], prog_name="nova"
    )
    rows = json.loads(shown.stdout)["rows"]
    wanted_json = [{n: to_json_value(v) for n, v in row.items()} for row in expected]
    return None if rows == wanted_json else f"seed {seed}: nova read\n{_differences(wanted_json, rows, table)}"


def _batches(store: nova.Store) -> list[dict[str, Any]]:
    with store.pin(_CHANNEL) as pinned, pinned.read(_CHANNEL).to_batches() as reader:
        rows: list[dict[str, Any]] = reader.read_all().to_pylist()
    return rows


def _rows_of_spark(store: nova.Store) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = store.engine.frames.to_arrow(store.read(_CHANNEL).to_spark()).to_pylist()
    return rows


def _rows_of_service(store: nova.Store) -> RemoteSelection:
    """The rows, encoded and decoded as between a service and its client."""
    with store.pin(_CHANNEL) as pinned:
        stream = RowStream(lambda: contextlib.nullcontext(pinned.read(_CHANNEL).to_batches()))
        content = b"".join((stream._first, *stream._chunks))
        stream.close()
    return RemoteSelection(lambda path, body: pa.ipc.open_stream(content), "/v1/channels/c/read", {})


def _inserted_again(store: nova.Store, table: pa.Table, frame: Any) -> list[dict[str, Any]]:
    """Rows of a channel of its own into which the frame was inserted."""
    store.register(nova.Channel("again", schema=table.schema))
    store.insert("again", frame, kind="base")
    rows: list[dict[str, Any]] = store.read("again").to_arrow().to_pylist()
    return rows


def _stored_in_format(store: nova.Store, table: pa.Table, format_: Any) -> list[dict[str, Any]]:
    """Some columns, as blocks in another format: those that the format can hold."""
    kept = ["row"]
    for column in table.column_names[1 : 1 + _FORMAT_COLUMNS]:
        name = f"{format_}_{column}"
        part = table.select(["row", column])
        store.register(nova.Channel(name, schema=part.schema))
        try:
            store.insert(name, part, format=format_)
            kept.append(column)
        except (nova.SchemaMismatch, nova.DefinitionError):  # the format has no such type, or lacks a value
            pass
    columns = {c: store.read(f"{format_}_{c}").to_arrow()[c] for c in kept[1:]}
    rows: list[dict[str, Any]] = pa.table({"row": table["row"], **columns}).to_pylist()
    return rows


def _selected(expected: list[dict[str, Any]], rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: row[name] for name in rows[0]} for row in expected]


def _comparable(value: Any, nan: str | None) -> Any:
    """Value that is equal to another exactly if both are the same."""
    if isinstance(value, float):
        return nan if math.isnan(value) else repr(value)
    if isinstance(value, list | tuple):
        return [_comparable(v, nan) for v in value]
    return {k: _comparable(v, nan) for k, v in value.items()} if isinstance(value, dict) else value


def _differences(wanted: list[dict[str, Any]], actual: list[dict[str, Any]], table: pa.Table) -> str:
    lines = [
        f"  {name} {table.schema.field(name).type}: {got[name]!r}, not {want[name]!r}"
        for want, got in zip(wanted, actual, strict=False)
        for name in want
        if got.get(name) != want[name]
    ]
    return "\n".join([*lines[:5], f"  {len(actual)} rows of {len(wanted)}"])
