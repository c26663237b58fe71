"""What a line of JSON means depends on that line and on the schema alone: not on the lines beside it, nor on the reader
that the file happens to take, nor on whether it is an element of an array."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import nova_assets as nova
from nova_assets.formats.input_file import InputFile
from nova_assets.formats.parsed_records import ParsedRecords
from nova_assets.formats.readers import read_table, read_valid_records
from nova_assets.model.schema import parse_ddl

DDL = (
    "b boolean, t tinyint, i int, l bigint, s string, f float, d double, dt date, at timestamp, ntz timestamp_ntz, "
    "dec decimal(10,2), bin binary, a array<int>, st struct<x: bigint, y: array<struct<z: string>>>, m map<string,int>"
)
SCHEMA = parse_ddl(DDL)
SIMPLE = parse_ddl(
    "b boolean, t tinyint, i int, l bigint, s string, d double, dt date, at timestamp, ntz timestamp_ntz, "
    "dec decimal(10,2), wide decimal(38,0), a array<int>, st struct<x: bigint, y: array<struct<z: string>>>"
)
"""The types that pyarrow's reader is trusted with."""

VALUES = """
null true false 0 -0 0.0 -0.0 1 -1 1.0 1.5 1e2 1E400 -1e400 1e999999999 1e-400 5e-324 127 128 -128 -129 300 20000
2147483647 2147483648 1704067200 9007199254740992 9007199254740993 -9007199254740993.0 9223372036854775807
9223372036854775808 123456789012345678901234567890 0.1 3.4e38 3.5e38 16777217 1.005 99999999.99 100000000.00 NaN
Infinity -Infinity 01 +1 .5 5. 0x10 1_000 "" "a" "5" "1.5" "1_0" "NaN" "true" "null" " 5" "é" "\\u00e9" "\\u0000"
"\\ud800" "\\udc00" "\\ud83d\\ude00" "a\\nb" "2024-01-01" " 2024-01-01" "2024-1-1" "20240101" "2024-W01-1"
"0000-01-01" "0001-01-01" "9999-12-31" "10000-01-01" "-0001-01-01" "2024-02-30" "2024-01-01T10" "2024-01-01 10:11"
"2024-01-01T10:11:12" "2024-01-01T10:11:12Z" "2024-01-01T10:11:12+02:00" "2024-01-01 10:11:12 +02:00"
"2024-01-01T10:11:12+0200" "2024-01-01T10:11:12+02" "2024-01-01T10:11:12+25:00" "2024-01-01T10:11:12-00:00"
"2024-01-01T10:11:12.1" "2024-01-01T10:11:12.123456" "2024-01-01T10:11:12.1234567" "2024-01-01T10:11:12.1234560"
"2024-01-01T10:11:12.123456Z" "2024-01-01T24:00:00" "2024-01-01T23:59:60" "2024-01-01T10:11:12,5"
"0001-01-01T00:00:00+14:00" "9999-12-31T23:59:59.999999-14:00" "1500-01-01T00:00:00" "9999-12-31T23:59:59.999999"
[] [null] [1] [1,null,2] [1.0] [1.5] ["1"] [[1]] [2147483648] {} {"x":1} {"x":null} {"x":1.0} {"x":"1"} {"y":[]}
{"y":[{"z":"q"},null,{}]} {"y":[{"z":1}]} {"x":1,"w":2} {"y":[{"z":"q","w":1}]} {"x":1,"x":2} {"k":1} {"k":null}
""".split()
"""JSON values, and what is nearly one."""

LINES = ["null", "5", "[]", '"text"', "", "   ", "{}", "{", "}", '{"i":1}{"i":2}', '{"i":1},', "\ufeff{}", "nul", "[1]"]
LINES += ['{"i":1', '"st":{"x":1}}', '{"zz":1}', '{"i":1}//', "{'i':1}", '{"i":1}\x00', '{"i":1}\x0b', '{"s":"a\tb"}']


def objects(names: list[str]) -> st.SearchStrategy[str]:
    pairs = st.tuples(st.sampled_from(names), st.sampled_from(VALUES))
    return st.lists(pairs, max_size=3).map(lambda found: "{" + ",".join(f'"{n}":{v}' for n, v in found) + "}")


def parsed(lines: list[str], schema: Any, *, drop: bool = False) -> ParsedRecords:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "f.jsonl")
        path.write_bytes("\n".join(lines).encode())
        return read_valid_records(InputFile(path), "json", schema, drop_undeclared=drop)


def alone(lines: list[str], schema: Any, *, drop: bool = False) -> tuple[list[Any], list[Any]]:
    """The rows of lines, each read in a file of its own beside a line that is broken."""
    rows, refused = [], []
    for number, line in enumerate(lines, start=1):
        found = parsed(["{broken", line], schema, drop=drop)
        rows += [(number, repr(r)) for r in found.table.to_pylist()]
        refused += [(number, r.reason) for r in found.refused if r.line == 2]
    return rows, refused


def together(lines: list[str], schema: Any, *, drop: bool = False) -> tuple[list[Any], list[Any]]:
    found = parsed(lines, schema, drop=drop)
    rows = [(n, repr(r)) for n, r in zip(found.line_numbers, found.table.to_pylist(), strict=True)]
    return rows, [(r.line, r.reason) for r in found.refused]


@pytest.mark.slow
def test_each_value_means_the_same_alone_and_beside_a_broken_line() -> None:
    """The whole table of values and types, each line in a file alone."""
    lines = [f'{{"{name}":{value}}}' for name in SIMPLE.names for value in VALUES]
    rows, refused = together(["{broken", *lines], SIMPLE)
    beside = dict(rows) | dict(refused)
    for number, line in enumerate(lines, start=2):
        rows, refused = together([line], SIMPLE)
        assert [beside[number]] == [meaning for _, meaning in (*rows, *refused)], line


@settings(max_examples=int(os.environ.get("NOVA_FUZZ_STEPS", "100")), deadline=None)
@given(st.lists(st.one_of(objects(SIMPLE.names), st.sampled_from(LINES)), min_size=1, max_size=5), st.booleans())
@example(['{"st":{"x":1}}', '{"st":{"x":1,"w":2}}', "null"], True)
@example(['{"i":1}{"i":2}', '{"i":', "3}"], False)
@example(['{"d":-0}', '{"d":1e-400}', '{"at":20000}', '{"dt":20000}'], False)
def test_lines_mean_the_same_together_and_alone(lines: list[str], drop: bool) -> None:
    if lines[0].lstrip("\ufeff ").startswith("[") and not any(line.strip() for line in lines[1:]):
        return  # one array
    assert together(lines, SIMPLE, drop=drop) == alone(lines, SIMPLE, drop=drop)


@settings(max_examples=int(os.environ.get("NOVA_FUZZ_STEPS", "60")), deadline=None)
@given(st.lists(objects(SIMPLE.names), min_size=1, max_size=4))
def test_elements_of_an_array_mean_what_lines_mean(lines: list[str]) -> None:
    try:
        for line in lines:
            assert len(json.loads(line)) == line.count('":')  # a name that occurs twice
    except (ValueError, AssertionError):
        return  # an array that cannot be parsed to its end is refused whole
    with_array = parsed([f"[{','.join(lines)}]"], SIMPLE)
    apart = parsed(lines, SIMPLE)
    assert repr(with_array.table.to_pylist()) == repr(apart.table.to_pylist())
    assert [(r.reason, r.raw) for r in with_array.refused] == [(r.reason, r.raw) for r in apart.refused]


def whole(path: Path, content: str, ddl: str | None = DDL) -> list[dict[str, Any]]:
    path.write_text(content)
    rows: list[dict[str, Any]] = read_table(
        InputFile(path), "json", None if ddl is None else parse_ddl(ddl)
    ).to_pylist()
    return rows


@pytest.mark.parametrize("value", [20000, 1704067200])
@pytest.mark.parametrize("column", ["dt", "at", "ntz"])
def test_a_number_is_no_date(column: str, value: int, tmp_path: Path) -> None:
    with pytest.raises(nova.BadRecord, match=f"line 1, column '{column}': {value} is no") as met:
        whole(tmp_path / "a.jsonl", f'{{"{column}":{value}}}')
    assert met.value.column == column and met.value.line == 1


@pytest.mark.parametrize(
    ("value", "ddl"), [("1e999999999", None), ("1e999999999", DDL), ('"\\ud800"', None), ('"\\ud800"', DDL)]
)
def test_what_no_column_can_hold_names_line_and_column(value: str, ddl: str | None, tmp_path: Path) -> None:
    with pytest.raises(nova.BadRecord) as met:
        whole(tmp_path / "a.jsonl", f'{{"i":1}}\n{{"d":{value}}}', ddl)
    assert (met.value.line, met.value.column) == (2, "d")


def test_an_array_and_lines_lack_a_column_alike(tmp_path: Path) -> None:
    ddl = "id bigint, name string"
    assert whole(tmp_path / "a.json", '[{"id":1}]', ddl) == [{"id": 1, "name": None}]
    assert whole(tmp_path / "a.json", '{"id":1}', ddl) == [{"id": 1, "name": None}]


def test_undeclared_columns_of_some_lines_are_null_in_the_others(tmp_path: Path) -> None:
    rows = whole(tmp_path / "a.jsonl", '{"id":1}\n{"id":2,"x":2.5,"y":"2024-01-01"}\n{"id":3,"x":1}', "id bigint")
    assert rows == [
        {"id": 1, "x": None, "y": None},
        {"id": 2, "x": 2.5, "y": "2024-01-01"},
        {"id": 3, "x": 1, "y": None},
    ]


def test_lines_of_which_the_first_is_an_array_are_lines() -> None:
    found = parsed(["[1]", '{"i":1}'], SCHEMA)
    assert found.table.column("i").to_pylist() == [1]
    assert [(r.line, r.reason.split(":")[0]) for r in found.refused] == [(1, "no object")]
