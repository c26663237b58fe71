"""Files of every format, cut short, altered and with hostile values: each is inserted whole or refused with a
``NovaError``; nothing is half-written, no process dies, and no file keeps another waiting.

``NOVA_FUZZ_STEPS`` (files a format) and ``NOVA_FUZZ_SEED`` make longer runs and others.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import random
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

import nova_assets as nova
from nova_assets_tests.formats.test_json_meaning import LINES, VALUES
from nova_assets_tests.formats.test_text_columns import TEXTS

STEPS = int(os.environ.get("NOVA_FUZZ_STEPS", "12"))
SEED = int(os.environ.get("NOVA_FUZZ_SEED", "20240131"))
DDL = (
    "id bigint, name string, n int, d decimal(10,2), f double, b boolean, day date, at timestamp, raw binary, "
    "tags array<string>, s struct<x: bigint, y: string>"
)
FLAT = "id bigint, name string, n int, d decimal(10,2), f double, b boolean, day date, at timestamp, raw binary"
"""The columns that CSV can say."""

ROWS = [
    {
        "id": n,
        "name": None if n % 7 == 3 else f"n{n % 5}",
        "n": n % 11,
        "d": Decimal(n) / 4,
        "f": n / 3,
        "b": n % 2 == 0,
        "day": date(2024, 1, 1 + n % 28),
        "at": datetime(2024, 1, 1, n % 24, tzinfo=UTC),
        "raw": b"r" * (n % 3),
        "tags": ["a", "b"] * (n % 3),
        "s": {"x": n, "y": "q"},
    }
    for n in range(40)
]
Fuzzed = Callable[[random.Random], bytes]


def table() -> pa.Table:
    return pa.Table.from_pylist(ROWS, pa.schema([(n, t) for n, t in zip(TYPES.names, TYPES.types, strict=True)]))


TYPES = pa.schema(
    {
        "id": pa.int64(),
        "name": pa.string(),
        "n": pa.int32(),
        "d": pa.decimal128(10, 2),
        "f": pa.float64(),
        "b": pa.bool_(),
        "day": pa.date32(),
        "at": pa.timestamp("us", "UTC"),
        "raw": pa.binary(),
        "tags": pa.list_(pa.string()),
        "s": pa.struct({"x": pa.int64(), "y": pa.string()}),
    }
)
AVRO = [("id", "long"), ("name", ["null", "string"]), ("n", "int"), ("f", "double"), ("b", "boolean"), ("raw", "bytes")]


def written(write: Callable[[Any], Any]) -> bytes:
    sink = io.BytesIO()
    write(sink)
    return sink.getvalue()


def avro(codec: str) -> bytes:
    fields: list[Any] = [{"name": n, "type": t} for n, t in AVRO]
    fields.append({"name": "day", "type": {"type": "int", "logicalType": "date"}})
    fields.append({"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}})
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
    fields.append({"name": "d", "type": decimal})
    fields.append({"name": "tags", "type": {"type": "array", "items": "string"}})
    inner = [{"name": "x", "type": "long"}, {"name": "y", "type": "string"}]
    fields.append({"name": "s", "type": {"type": "record", "name": "q", "fields": inner}})
    schema = {"type": "record", "name": "r", "fields": fields}
    return written(lambda sink: fastavro.writer(sink, schema, ROWS, codec=codec))


def lines() -> list[str]:
    def said(value: Any) -> str:
        if isinstance(value, bytes):
            return value.decode()
        return value.isoformat() if isinstance(value, date) else str(value)

    return [json.dumps(r, default=said) for r in ROWS]


def csv_lines() -> list[str]:
    names = [n for n in TYPES.names if n not in ("tags", "s")]
    return [",".join(names), *(",".join("" if r[n] is None else _field(r[n]) for n in names) for r in ROWS)]


def _field(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value).replace(" ", "T") if value else str(value)


def fuzz_lines(rng: random.Random) -> bytes:
    some = rng.sample(lines(), rng.randint(1, 8))
    for _ in range(rng.choice((0, 1, 1, 2, 5))):
        hostile = f'{{"{rng.choice([*TYPES.names, "zz", "_deleted"])}":{rng.choice(VALUES)}}}'
        place = rng.choice((0, rng.randint(0, len(some))))
        some.insert(place, rng.choice((hostile, hostile, rng.choice(LINES), "[" * 100_000, '{"a":' * 5000)))
    text = "\n".join(some)
    return (f"[{','.join(some)}]" if rng.random() < 0.2 else text).encode("utf-8", "surrogatepass")


def fuzz_csv(rng: random.Random) -> bytes:
    header, *rows = csv_lines()
    some = rng.sample(rows, rng.randint(0, 8))
    for _ in range(rng.choice((0, 1, 1, 2, 5))):
        fields = rng.choice(rows).split(",")
        fields[rng.randrange(len(fields))] = rng.choice([*TEXTS, '"', "'", "null", "\ufeff", "a" * 70_000])
        some.insert(rng.randint(0, len(some)), ",".join(fields[: rng.choice((len(fields), len(fields), 3))]))
    if rng.random() < 0.15:
        header = rng.choice((header.replace("name", "id"), header + ",zz", "", "\ufeff" + header, header.upper()))
    return "\n".join([header, *some]).encode("utf-8", "surrogatepass")


def columnar(rng: random.Random) -> pa.Table:
    """A table, maybe with columns that the channel has not, of other types, twice, or with values out of range."""
    found = table()
    kind = rng.randrange(8)
    if kind == 0:
        found = found.append_column("zz", pa.array(["x"] * len(ROWS)))
    elif kind == 1:
        found = found.append_column("id", found.column("id"))
    elif kind == 2:
        found = found.set_column(0, "id", pa.array([None] * len(ROWS), pa.int64()))
    elif kind == 3:
        found = found.set_column(2, "n", pa.array([2**40] * len(ROWS)))
    elif kind == 4:
        times = pa.array([rng.choice((-(2**62), 2**62, 0, -(10**17)))] * len(ROWS), pa.timestamp("us", "UTC"))
        found = found.set_column(7, "at", times)
    elif kind == 5:
        found = found.slice(0, 0)
    return found


def altered(content: bytes, rng: random.Random) -> bytes:
    """Bytes changed, cut out, put in, or the end cut off."""
    out = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        if not out:
            break
        at = rng.randrange(len(out)) if rng.random() < 0.5 else len(out) - 1 - rng.randrange(min(len(out), 300))
        match rng.randrange(6):
            case 0:
                out[at] = rng.randrange(256)
            case 1:
                out[at] ^= 1 << rng.randrange(8)
            case 2:
                del out[at : at + rng.randrange(1, 9)]
            case 3:
                out[at:at] = rng.randbytes(rng.randrange(1, 5))
            case 4:
                out[at : at + 4] = b"\xff" * 4
            case 5 if rng.random() < 0.3:
                del out[at:]
    return bytes(out)


def parquet(rng: random.Random) -> bytes:
    compression = rng.choice(("none", "snappy", "zstd", "gzip"))
    return written(lambda sink: pq.write_table(columnar(rng), sink, compression=compression, row_group_size=15))


def orc_file(rng: random.Random) -> bytes:
    compression = rng.choice(("uncompressed", "zlib", "zstd", "snappy"))
    return written(lambda sink: orc.write_table(columnar(rng), sink, compression=compression))


FORMATS: dict[str, tuple[str, Fuzzed]] = {
    "jsonl": (DDL, fuzz_lines),
    "jsonl.gz": (DDL, lambda rng: gzip.compress(fuzz_lines(rng))),
    "csv": (FLAT, fuzz_csv),
    "parquet": (DDL, parquet),
    "orc": (DDL, orc_file),
    "avro": (DDL, lambda rng: avro(rng.choice(("null", "deflate")))),
}


def fuzzed(format_: str, rng: random.Random) -> bytes:
    content = FORMATS[format_][1](rng)
    return altered(content, rng) if rng.random() < (0.3 if format_ in ("jsonl", "csv") else 0.8) else content


@pytest.mark.slow
@pytest.mark.parametrize("format_", FORMATS)
def test_a_file_is_inserted_whole_or_refused(format_: str, tmp_path: Path) -> None:
    rng = random.Random(f"{SEED}{format_}")
    ddl = FORMATS[format_][0]
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh") as store:
        store.register(nova.Channel("frozen", schema=ddl))
        store.register(nova.Channel("evolving", schema=ddl, on_schema_change="evolve"))
        store.register(nova.Channel("keyed", merge=nova.Upsert(key="id"), schema=ddl))
        rows = dict.fromkeys(("frozen", "evolving", "keyed"), 0)
        for step in range(STEPS):
            channel = rng.choice(list(rows))
            path = tmp_path / f"{step}.{format_}"
            path.write_bytes(fuzzed(format_, rng))
            heads, blocks = {s.channel.name: s.head for s in store.channels()}, blocks_of(tmp_path)
            try:
                commit = store.insert(channel, path)
            except nova.NovaError as error:
                assert path.name in str(error) or repr(channel) in str(error), str(error)
                assert {s.channel.name: s.head for s in store.channels()} == heads, path
                assert blocks_of(tmp_path) == blocks, "nothing is left of it"
            else:
                rows[channel] += sum(f.rows for b in commit.blocks for f in b.manifest.files)
        for channel in ("frozen", "evolving"):
            assert store.read(channel).to_arrow().num_rows == rows[channel]
        store.read("keyed").to_arrow()


def blocks_of(root: Path) -> set[Path]:
    return {p for p in (root / "wh").rglob("*") if p.is_file() and "blocks" in p.parts}


@pytest.mark.slow
@pytest.mark.parametrize("format_", FORMATS)
def test_a_file_keeps_no_other_waiting(format_: str, tmp_path: Path) -> None:
    rng = random.Random(f"{SEED}{format_} arriving")
    landing = tmp_path / "landing"
    landing.mkdir()
    channel = nova.Channel("c", schema=FORMATS[format_][0], source=nova.files(str(landing), min_age="1s"))
    project = nova.Project(channels=[channel])
    with nova.open(project, catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh") as store:
        names = [f"{n}.{format_}" for n in range(STEPS)]
        for name in names:
            put(landing / name, fuzzed(format_, rng))
        put(landing / "good.jsonl", b'{"id": 4711}\n')
        received = store.receive("c")
        assert received.files == STEPS + 1 and received.waiting == 0
        found = store.read("c").to_arrow()
        assert found.num_rows == received.rows and 4711 in found.column("id").to_pylist()
        left = store.replay("c")  # each again: what was set aside is still not right
        assert store.receive("c").rows == 0 and left.rows == 0


def put(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    os.utime(path, (1, 1))
