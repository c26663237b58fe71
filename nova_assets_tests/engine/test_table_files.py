"""Large local tables reach Spark as files, with the same rows as without a file, and only where Spark can read them."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nova_assets.engine.rows.spark_versions import collect_to_arrow, frame_from_arrow
from nova_assets.engine.tasks import sql_query
from nova_assets.engine.tasks.sql_query import MIN_ROWS_OF_FILE, frames_with_files

pytestmark = pytest.mark.spark

COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "yes": (pa.bool_(), [True, False, None]),
    "tiny": (pa.int8(), [-128, 127, None]),
    "big": (pa.int64(), [-(2**63), 2**63 - 1, None]),
    "single": (pa.float32(), [math.nan, -0.0, None]),
    "double": (pa.float64(), [math.nan, -0.0, math.inf, None]),
    "amount": (pa.decimal128(38, 10), [Decimal("-9999999999999999999999999999.9999999999"), Decimal(0), None]),
    "day": (pa.date32(), [date(1, 1, 1), date(1582, 10, 4), date(1582, 10, 15), date(9999, 12, 31), None]),
    "at": (
        pa.timestamp("us", "UTC"),
        [datetime(1, 1, 1, tzinfo=UTC), datetime(1582, 10, 10, 1, 2, 3, 4, tzinfo=UTC), None],
    ),
    "local": (pa.timestamp("us"), [datetime(1, 1, 1), datetime(1883, 11, 18, 12, 3, 57, 999999), None]),
    "text": (pa.string(), ["", "a", "A", "ä\u0000", "x" * 500, None]),
    "bytes": (pa.binary(), [b"", b"\xff\x00", None]),
    "with `quotes`, {braces} and.dots": (pa.string(), ["b", None]),
}


def table(rows: int) -> pa.Table:
    return pa.table(
        {name: pa.array([v[n % len(v)] for n in range(rows)], type_) for name, (type_, v) in COLUMNS.items()}
    )


def comparable(rows: pa.Table) -> list[str]:
    return sorted(map(repr, rows.to_pylist()))  # repr tells -0.0 from 0.0


def is_read_from_files(frame: Any) -> bool:
    return bool(frame.inputFiles())


def test_the_rows_of_a_file_are_those_of_the_table(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "[a]{b}*?"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    rows = table(MIN_ROWS_OF_FILE)
    expected = frame_from_arrow(spark, rows)
    with frames_with_files(spark, {"rows": rows}) as frames:
        assert is_read_from_files(frames["rows"])
        assert [(f.name, f.dataType) for f in frames["rows"].schema] == [(f.name, f.dataType) for f in expected.schema]
        assert comparable(collect_to_arrow(frames["rows"])) == comparable(collect_to_arrow(expected))
    assert not [*folder.iterdir()], "the files are gone"


def test_other_tables_need_no_file(spark: Any) -> None:
    rows = MIN_ROWS_OF_FILE
    tables = {"few": table(rows - 1), "nested": pa.table({"a": pa.array([[1]] * rows)})}
    known = spark.range(3)
    with frames_with_files(spark, {**tables, "known": known}) as frames:
        assert not any(is_read_from_files(frames[name]) for name in tables)
        assert [collect_to_arrow(frames[name]).num_rows for name in tables] == [rows - 1, rows]
        assert frames["known"] is known


@pytest.mark.core
def test_a_full_disk_is_no_failure(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(*_: Any, **__: Any) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(pq, "write_table", write)
    with frames_with_files(spark, {"rows": table(MIN_ROWS_OF_FILE)}) as frames:
        assert frames["rows"].count() == MIN_ROWS_OF_FILE


@pytest.mark.core
@pytest.mark.parametrize(
    ("master", "settings", "is_file"),
    [
        ("local[2]", {}, True),
        ("local[2]", {"spark.io.encryption.enabled": "true"}, False),
        ("yarn", {}, False),
    ],
)
def test_sessions_without_files(master: str, settings: dict[str, str], is_file: bool) -> None:
    session = SimpleNamespace(sparkContext=SimpleNamespace(master=master), conf=settings)
    assert sql_query._can_be_file(session, table(1)) == is_file
