"""Files of which some records are damaged: what is right is taken, what is not is refused by line, with its text."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nova_assets as nova
from nova_assets.formats import input_file as files
from nova_assets.formats.input_file import InputFile
from nova_assets.formats.parsed_records import ParsedRecords
from nova_assets.formats.readers import format_from_file_name, read_table, read_valid_records
from nova_assets.model.schema import parse_ddl

SCHEMA = parse_ddl("id bigint, name string, price decimal(10,2), at timestamp")
GOOD = {"id": 1, "name": "a", "price": "1.50", "at": "2024-01-01T00:00:00Z"}


def parsed(path: Path, content: bytes, **options: Any) -> ParsedRecords:
    path.write_bytes(content)
    format_ = format_from_file_name(path.name)
    assert format_ is not None
    return read_valid_records(InputFile(path, **options), format_, SCHEMA)


def lines(*values: Any) -> bytes:
    return b"\n".join(v if isinstance(v, bytes) else json.dumps(v).encode() for v in values)


def ids(found: ParsedRecords) -> list[Any]:
    return list(found.table.column("id").to_pylist())


BAD_LINES: dict[str, tuple[bytes, str]] = {
    "cut short": (b'{"id": 2, "na', "no JSON"),
    "no object": (b"[1, 2]", "no object"),
    "another type": (lines({**GOOD, "id": "two"}), "column 'id': 'two' is no bigint"),
    "too large": (lines({**GOOD, "id": 2**63}), "is no bigint"),
    "not exact": (lines({**GOOD, "price": 1.005}), "is no decimal"),
    "an unknown column": (lines({**GOOD, "extra": 1}), "that the channel does not have: 'extra'"),
    "a name twice": (b'{"id": 1, "id": 2}', "twice"),
    "another encoding": ('{"id": 2, "name": "é"}'.encode("latin-1"), "utf-8"),
    "two objects": (b'{"id": 2}{"id": 3}', "Extra data"),
    "deep": (b'{"id": ' + b"[" * 100_000, "no JSON"),
}


@pytest.mark.parametrize("case", BAD_LINES)
def test_a_bad_line_of_json_is_refused_alone(case: str, tmp_path: Path) -> None:
    raw, reason = BAD_LINES[case]
    found = parsed(tmp_path / "a.json", lines(GOOD, b"", raw, {**GOOD, "id": 3}))
    assert ids(found) == [1, 3] and list(found.line_numbers) == [1, 4]
    (refused,) = found.refused
    assert refused.line == 3 and reason in refused.reason
    assert refused.raw is not None and refused.raw[:50] == raw.decode("utf-8", "backslashreplace")[:50]


BAD_ROWS: dict[str, tuple[bytes, str]] = {
    "a field too few": (b"2,b", "Expected 4 columns, got 2"),
    "a field too many": (b"2,b,1.0,2024-01-01,x", "Expected 4 columns, got 5"),
    "another type": (b"two,b,1.0,2024-01-01", "'two'"),
    "no time": (b"2,b,1.0,yesterday", "'yesterday' is no timestamp"),
    "another encoding": ("2,é,1.0,2024-01-01".encode("latin-1"), "UTF8"),
}


@pytest.mark.parametrize("case", BAD_ROWS)
def test_a_bad_row_of_csv_is_refused_alone(case: str, tmp_path: Path) -> None:
    raw, reason = BAD_ROWS[case]
    content = b'id,name,price,at\n1,"a\nb",1.50,2024-01-01 00:00:00Z\n' + raw + b"\n3,c,,\n"
    found = parsed(tmp_path / "a.csv", content)
    assert ids(found) == [1, 3] and list(found.line_numbers) == [2, 5]
    (refused,) = found.refused
    assert refused.line == 4 and reason in refused.reason
    assert found.table.column("name").to_pylist() == ["a\nb", "c"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a.json", "a.csv"])
@settings(deadline=None)
@given(broken=st.sets(st.integers(0, 30)))
def test_whatever_is_broken_the_rest_is_read(name: str, broken: set[int], tmp_path_factory: Any) -> None:
    good: Callable[[int], bytes] = (
        (lambda n: lines({**GOOD, "id": n})) if name == "a.json" else (lambda n: f"{n},a,1.50,2024-01-01".encode())
    )
    head = [] if name == "a.json" else [b"id,name,price,at"]
    all_lines = [b"x;" if n in broken else good(n) for n in range(31)]
    found = parsed(tmp_path_factory.mktemp("f") / name, lines(*head, *all_lines))
    assert ids(found) == [n for n in range(31) if n not in broken]
    first = 1 + len(head)
    assert list(found.line_numbers) == [n + first for n in range(31) if n not in broken]
    assert [r.line for r in found.refused] == [n + first for n in sorted(broken)]


WHOLE_FILES: dict[str, tuple[str, bytes, str]] = {
    "gzip cut short": ("a.json.gz", gzip.compress(lines(*[{**GOOD, "id": n} for n in range(999)]))[:500], "to its end"),
    "no gzip": ("a.json.gz", lines(GOOD), "to its end"),
    "zstd cut short": ("a.json.zst", pa.compress(lines(*[GOOD] * 999), "zstd", asbytes=True)[:40], "to its end"),
    "no zstd": ("a.json.zst", lines(GOOD), "to its end"),
    "Parquet cut short": ("a.parquet", b"PAR1 and nothing else", "not a complete Parquet file"),
    "Avro cut short": ("a.avro", b"Obj\x01\x04", "not a complete Avro file"),
    "no Avro": ("a.avro", lines(GOOD), "not a complete Avro file"),
    "CSV cut short": ("a.csv", b'id,name,price,at\n1,"a', "ends inside a quoted value"),
    "CSV of other columns": ("a.csv", b"id,name\n1,a\n", "columns are missing: price, at"),
    "CSV of more columns": ("a.csv", b"id,name,price,at,more\n", "that the channel does not have: more"),
    "CSV without a byte": ("a.csv", b"", "is empty"),
    "a JSON array cut short": ("a.json", b'[{"id": 1}, {"id"', "not a JSON array"),
}


@pytest.mark.parametrize("case", WHOLE_FILES)
def test_a_file_that_is_not_whole_is_refused_whole(case: str, tmp_path: Path) -> None:
    name, content, reason = WHOLE_FILES[case]
    with pytest.raises(nova.NovaError, match=f"(?s){name}.*{reason}"):
        parsed(tmp_path / name, content)


def test_parquet_of_another_schema_is_refused_whole(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": ["x"], "name": ["b"]}), tmp_path / "a.parquet")
    with pytest.raises(nova.BadRecord, match=r"column id is string, not bigint.*price .* is missing"):
        read_valid_records(InputFile(tmp_path / "a.parquet"), "parquet", SCHEMA)


def test_a_compressed_file_may_not_become_too_large(tmp_path: Path) -> None:
    bomb = gzip.compress(b" " * 10_000_000)
    assert len(bomb) < 20_000
    with pytest.raises(nova.BadRecord, match="more than 1000000 bytes after decompression"):
        parsed(tmp_path / "a.json.gz", bomb, max_bytes=1_000_000)


def test_a_line_that_is_too_long_takes_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files.read_lines, "__defaults__", (1000,))
    found = parsed(tmp_path / "a.json", lines(GOOD, {**GOOD, "name": "x" * 5000}, {**GOOD, "id": 3}))
    assert ids(found) == [1, 3]
    (refused,) = found.refused
    assert (refused.line, refused.reason) == (2, "the line is too long")
    assert refused.raw is not None and len(refused.raw) < 1100


def test_all_formats_give_the_same(tmp_path: Path) -> None:
    avro = io.BytesIO()
    fields = [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ]
    (right,) = parsed(tmp_path / "a.json", lines(GOOD)).table.to_pylist()
    fastavro.writer(avro, {"type": "record", "name": "r", "fields": fields}, [right])
    pq.write_table(pa.Table.from_pylist([right]), tmp_path / "p.parquet")
    contents = {
        "b.json.gz": gzip.compress(lines(GOOD)),
        "c.json.zst": pa.compress(b"\xef\xbb\xbf" + lines(GOOD) + b"\r\n", "zstd", asbytes=True),
        "d.json": b"[" + lines(GOOD) + b"]",
        "e.csv": b"name,at,id,price\r\na,2024-01-01T00:00:00Z,1,1.50\r\n",
        "f.avro": avro.getvalue(),
        "g.parquet": (tmp_path / "p.parquet").read_bytes(),
    }
    for name, content in contents.items():
        found = parsed(tmp_path / name, content)
        assert found.table.to_pylist() == [right], name
        assert not found.refused and found.table.schema.names == list(SCHEMA.names)
        whole = format_from_file_name(name)
        assert (
            whole is not None
            and read_table(InputFile(tmp_path / name), whole, SCHEMA).select(SCHEMA.names).num_rows == 1
        )


def test_lines_of_text(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes("one\n\ntwo é\n".encode() + b"\xff\n")
    found = read_valid_records(InputFile(tmp_path / "a.log"), "text", parse_ddl("line string"))
    assert found.table.column("line").to_pylist() == ["one", "", "two é"]
    assert [(r.line, r.raw) for r in found.refused] == [(4, "\\xff")]


def test_an_avro_record_of_another_type_is_refused_alone(tmp_path: Path) -> None:
    out = io.BytesIO()
    schema = {"type": "record", "name": "r", "fields": [{"name": "id", "type": ["long", "string"]}]}
    fastavro.writer(out, schema, [{"id": 1}, {"id": "x"}, {"id": 3}])
    found = parsed(tmp_path / "a.avro", out.getvalue())
    assert ids(found) == [1, 3]
    assert [(r.line, r.reason, r.raw) for r in found.refused] == [(2, "column 'id': 'x' is no bigint", '{"id": "x"}')]


@pytest.mark.parametrize("name", ["a.json", "b.csv", "c.parquet", "d.avro"])
def test_columns_that_are_not_wanted_are_left_out_on_demand(name: str, tmp_path: Path) -> None:
    """Also where one record is bad, and where they are of one type here and of another there."""
    path, schema = tmp_path / name, parse_ddl("id bigint")
    if name == "a.json":
        path.write_bytes(lines({"id": 1, "x": 1}, {"id": "?", "x": [2]}, {"id": 3, "x": "three", "y": {}}))
    elif name == "b.csv":
        path.write_text("x,id\n1,1\n2,?\nthree,3\n")
    elif name == "c.parquet":
        pq.write_table(pa.table({"id": [1, 3], "x": [{"y": 1}, {"y": 2}]}), path)
    else:
        fields = [{"name": "id", "type": ["long", "string"]}, {"name": "x", "type": "long"}]
        with path.open("wb") as out:
            fastavro.writer(
                out, {"type": "record", "name": "r", "fields": fields}, [{"id": n, "x": 1} for n in (1, "?", 3)]
            )
    format_ = format_from_file_name(name)
    assert format_ is not None
    found = read_valid_records(InputFile(path), format_, schema, drop_undeclared=True)
    assert found.table.to_pydict() == {"id": [1, 3]}
    assert [r.line for r in found.refused] == ([] if name == "c.parquet" else [3 if name == "b.csv" else 2])


def test_a_header_that_names_a_column_twice_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("id,name,ID\n1,a,2\n")
    for schema in (None, SCHEMA):
        with pytest.raises(nova.BadRecord, match="the header names column 'ID' twice") as error:
            read_table(InputFile(file), "csv", schema)
        assert (error.value.found, error.value.line) == ("id, name, ID", 1)
    with pytest.raises(nova.BadRecord, match="the header names column 'ID' twice"):
        parsed(file, file.read_bytes())
