"""Text in a column means what the table of conversions says, whichever texts stand beside it, and errors name it."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nova_assets as nova
from nova_assets.formats.input_file import InputFile
from nova_assets.formats.readers import read_table, read_valid_records
from nova_assets.formats.text_conversion import convert_text_column
from nova_assets.model.arrow_types import arrow_type
from nova_assets.model.schema import parse_ddl
from nova_assets.model.value_conversion import CSV, convert_value
from nova_assets_tests.formats.test_json_meaning import VALUES

TYPES = (
    "boolean tinyint smallint int bigint string float double decimal(10,2) decimal(38,0) date timestamp timestamp_ntz"
)
TEXTS = (
    [v.strip('"') for v in VALUES]
    + """
1e38 -1e38 3.4028235e38 3.4028236e38 1e-45 1e-46 0x1F 007 TRUE False t yes inf -Infinity nan 16777216 16777217 +5 5e0
9007199254740993.0 0e-400 0.00 -0.00 1,5 \u0661 99999999999999999999999999999999999999 1e37 1.10 1.105
""".split()
)
TEXTS += ["", " 1", "1 ", " 2024-01-01 ", "\t5", "a,b", 'say "hi"', "two\nlines", "1\x00"]


def meaning(text: str | None, ddl: str) -> Any:
    """What a text means by itself, by the rules alone."""
    type_ = parse_ddl(f"c {ddl}").field("c").type
    try:
        value = convert_value(text, type_, CSV)
    except ValueError:
        return "refused"
    return repr(pa.array([value], arrow_type(type_)).to_pylist()[0])


@pytest.mark.parametrize("ddl", TYPES.split())
def test_each_text_means_what_the_rules_say(ddl: str) -> None:
    type_ = parse_ddl(f"c {ddl}").field("c").type
    for text in TEXTS:
        column, refused = convert_text_column(pa.chunked_array([pa.array([text, None])]), type_, CSV)
        assert ("refused" if refused else repr(column.to_pylist()[0])) == meaning(text, ddl), text
        assert column.to_pylist()[1] is None and column.type == arrow_type(type_)


def csv_file(folder: Path, texts: list[str | None]) -> InputFile:
    """A file with one column; null is a field that is empty and not quoted."""
    out = io.StringIO()
    for text in ["c", *texts]:
        quoted = csv.QUOTE_ALL if text is not None else csv.QUOTE_MINIMAL
        csv.writer(out, quoting=quoted, lineterminator="\n").writerow([text, "x"] if text is not None else ["", "x"])
    path = folder / "a.csv"
    path.write_text(out.getvalue())
    return InputFile(path)


@settings(max_examples=int(os.environ.get("NOVA_FUZZ_STEPS", "60")), deadline=None)
@given(st.lists(st.sampled_from([*TEXTS, None]), min_size=1, max_size=6), st.sampled_from(TYPES.split()))
def test_a_field_of_csv_means_the_same_whatever_stands_beside_it(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str | None], ddl: str
) -> None:
    texts = [t for t in texts if t is None or "\x00" not in t]
    file = csv_file(tmp_path_factory.mktemp("csv"), texts)
    schema = parse_ddl(f"c {ddl}")
    parsed = read_valid_records(file, "csv", schema, drop_undeclared=True)
    meanings = [meaning(t, ddl) for t in texts]
    assert [repr(v) for v in parsed.table.column("c").to_pylist()] == [m for m in meanings if m != "refused"]
    assert len(parsed.refused) == meanings.count("refused")
    assert all(r.column == "c" and "column 'c': " in r.reason for r in parsed.refused)


BAD_ROWS = [
    ("two,1.5,2024-01-01", "id", "'two'"),
    ("2,cheap,2024-01-01", "v", "'cheap'"),
    ("2,1.5,yesterday", "at", "'yesterday'"),
    ("3000000000,1,2024-01-01", "id", "3000000000"),
    ("2,1e400,2024-01-01", "v", "1E+400"),
]


@pytest.mark.parametrize(("row", "column", "value"), BAD_ROWS)
def test_an_error_names_row_column_and_value(row: str, column: str, value: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"id,v,at\n1,1.0,2024-01-01\n{row}\n")
    with pytest.raises(nova.BadRecord, match=rf"row 3 \(the header is row 1\), column '{column}': ") as met:
        read_table(InputFile(path), "csv", parse_ddl("id int, v double, at timestamp"))
    assert value in str(met.value)
    assert (met.value.row, met.value.column) == (3, column)
