"""Every kind of input × every type × hard values: each arrives exactly or is refused, and all kinds agree."""

from __future__ import annotations

import io
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import fastavro
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

import nova_assets as nova
from nova_assets.engine.inputs.large_parquet import LargeParquetFiles, read_part
from nova_assets.formats import schema_fit
from nova_assets.model.schema import Schema, parse_ddl
from nova_assets.model.schema_evolution import reconcile_schema


class _Mark:
    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


REFUSED = _Mark("refused")
UNSAYABLE = _Mark("a kind has no way to say it")
TEXT_KINDS = ("dicts", "csv", "json")


@dataclass(frozen=True)
class Case:
    """One value for a column of a declared type.

    Args:
        source: the Arrow type in which typed kinds carry the value; None for a value that they cannot say.
        result: the value that arrives, or REFUSED.
        but: kind -> another result, or UNSAYABLE: text stands for other types there, or NaN for null.
    """

    declared: str
    value: Any
    source: pa.DataType | None
    result: Any
    but: Mapping[str, Any] = field(default_factory=dict)

    def result_for(self, kind: str) -> Any:
        return self.but.get(kind, self.result)


I64, F64, TEXT, LOCAL = pa.int64(), pa.float64(), pa.string(), pa.timestamp("us")
INSTANT, NANOS = pa.timestamp("us", "UTC"), pa.timestamp("ns")
NAN, INF = float("nan"), float("inf")
NOON = datetime(2024, 1, 31, 12, 0, 0, 123456)
EAST = timezone(timedelta(hours=2))
NOT_IN_TEXT = dict.fromkeys(TEXT_KINDS, UNSAYABLE)
"""Text stands for such a value there, or there is nothing but text."""
NAN_IN_PANDAS = {"pandas": None, "pandas objects": None, "pandas with Arrow types": None}
NO_CSV = {"csv": UNSAYABLE}


def cases() -> Iterator[Case]:
    yield from _numbers()
    yield from _others()
    yield from _times()
    yield from _nested()


def _numbers() -> Iterator[Case]:
    for declared, bits in (("tinyint", 8), ("smallint", 16), ("int", 32), ("bigint", 64)):
        top = 2 ** (bits - 1)
        yield Case(declared, top - 1, I64, top - 1)
        yield Case(declared, -top, I64, -top)
        yield Case(declared, top, I64 if bits < 64 else pa.uint64(), REFUSED)
        yield Case(declared, 3.0, F64, 3)
        yield Case(declared, 3.5, F64, REFUSED)
        yield Case(declared, Decimal("4.00"), pa.decimal128(9, 2), 4)
        yield Case(declared, Decimal("4.01"), pa.decimal128(9, 2), REFUSED)
        yield Case(declared, True, pa.bool_(), REFUSED)
        yield Case(declared, "1", TEXT, REFUSED, NO_CSV)
        yield Case(declared, NAN, F64, REFUSED, NAN_IN_PANDAS)
        yield Case(declared, INF, F64, REFUSED)
    yield Case("bigint", 2**63 - 1, pa.uint64(), 2**63 - 1)
    for declared in ("float", "double"):
        yield Case(declared, NAN, F64, NAN, NAN_IN_PANDAS)
        yield Case(declared, -INF, F64, -INF)
        yield Case(declared, -0.0, F64, -0.0)
        yield Case(declared, 2**24, I64, 2.0**24)
        yield Case(declared, True, pa.bool_(), REFUSED)
        yield Case(declared, "1", TEXT, REFUSED, NO_CSV)
        yield Case(declared, 6.022e23, F64, 6.022e23 if declared == "double" else 6.022000131241475e23)
        yield Case(declared, Decimal("0.5"), pa.decimal128(3, 1), 0.5)
        yield Case(declared, Decimal("1e400"), None, REFUSED)
        yield Case(declared, Decimal("1e-400"), None, REFUSED)
        yield Case(declared, 2**53 + 1, I64, REFUSED)
        yield Case(declared, Decimal(2**53 + 1), pa.decimal128(20, 0), REFUSED)
    yield Case("float", 0.1, F64, 0.10000000149011612)
    yield Case("float", 1e300, F64, REFUSED)
    yield Case("float", 1e-60, F64, REFUSED)
    yield Case("float", 2**24 + 1, I64, REFUSED)
    yield Case("float", 16777217.0, F64, REFUSED)
    yield Case("double", 0.1, F64, 0.1)
    yield Case("double", 1e308, F64, 1e308)
    yield Case("double", Decimal("0.1"), pa.decimal128(3, 1), 0.1)
    long = Decimal("1234567890123456789012345678.0123456789")
    for declared in ("decimal(10,2)", "decimal(38,10)"):
        yield Case(declared, Decimal("1.5"), pa.decimal128(5, 1), Decimal("1.5"))
        yield Case(declared, 7, I64, Decimal(7))
        yield Case(declared, 0.25, F64, Decimal("0.25"))
        yield Case(declared, Decimal("0.12345678901"), pa.decimal128(12, 11), REFUSED)
        yield Case(declared, NAN, F64, REFUSED, NAN_IN_PANDAS)
        yield Case(declared, True, pa.bool_(), REFUSED)
        yield Case(declared, "1.5", TEXT, REFUSED, NOT_IN_TEXT)
    yield Case("decimal(38,10)", long, pa.decimal128(38, 10), long)
    yield Case("decimal(38,10)", -long, pa.decimal128(38, 10), -long)
    yield Case("decimal(10,2)", 10**8, I64, REFUSED)
    yield Case("decimal(10,2)", Decimal("1.005"), pa.decimal128(5, 3), REFUSED)
    yield Case("decimal(38,0)", Decimal(10**38 - 1), pa.decimal128(38, 0), Decimal(10**38 - 1))
    yield Case("decimal(38,0)", 10**38, None, REFUSED)


def _others() -> Iterator[Case]:
    yield Case("boolean", True, pa.bool_(), True)
    yield Case("boolean", 1, I64, REFUSED, NO_CSV)
    yield Case("boolean", 1.0, F64, REFUSED)
    yield Case("boolean", "yes", TEXT, REFUSED)
    for text in ("", " é ", "null", "NaN", "1", "𝄞\t'"):
        yield Case("string", text, TEXT, text)
    yield Case("string", 1, I64, REFUSED, NO_CSV)
    yield Case("string", True, pa.bool_(), REFUSED, NO_CSV)
    yield Case("string", 0.5, F64, REFUSED, NO_CSV)
    yield Case("string", b"a", pa.binary(), REFUSED, {"csv": UNSAYABLE, "json": UNSAYABLE})
    yield Case("string", "\ud800", None, REFUSED, NO_CSV)
    yield Case("binary", b"\x00\xff", pa.binary(), b"\x00\xff", {"csv": UNSAYABLE, "json": UNSAYABLE})
    yield Case("binary", "a", TEXT, REFUSED, NOT_IN_TEXT)
    yield Case("binary", 1, I64, REFUSED, NO_CSV)


def _times() -> Iterator[Case]:
    midnight = datetime(2024, 1, 31)
    for day in (date(1, 1, 1), date(1500, 2, 28), date(2024, 2, 29), date(9999, 12, 31)):
        yield Case("date", day, pa.date32(), day)
        yield Case("timestamp_ntz", day, pa.date32(), datetime(day.year, day.month, day.day))
    yield Case("date", midnight, LOCAL, midnight.date(), {"csv": UNSAYABLE, "json": UNSAYABLE})
    yield Case("date", NOON, LOCAL, REFUSED)
    yield Case("date", midnight.replace(tzinfo=UTC), INSTANT, REFUSED)
    for declared in ("date", "timestamp", "timestamp_ntz"):
        yield Case(declared, 20000, I64, REFUSED)
        yield Case(declared, 1704067200, I64, REFUSED)
        yield Case(declared, 0.5, F64, REFUSED)
        yield Case(declared, "2024-01-31", TEXT, REFUSED, NOT_IN_TEXT)
        yield Case(declared, "soon", TEXT, REFUSED)
    yield Case("timestamp", date(2024, 1, 31), pa.date32(), REFUSED, {"csv": UNSAYABLE, "json": UNSAYABLE})
    for year in (1, 1500, 1969, 2024, 9999):
        local = NOON.replace(year=year)
        yield Case("timestamp", local.replace(tzinfo=UTC), INSTANT, local.replace(tzinfo=UTC))
        yield Case("timestamp", local, LOCAL, local.replace(tzinfo=UTC))
        yield Case("timestamp_ntz", local, LOCAL, local)
    east = NOON.replace(tzinfo=EAST)
    yield Case("timestamp", east, pa.timestamp("us", "+02:00"), east.astimezone(UTC))
    yield Case("timestamp_ntz", east, pa.timestamp("us", "+02:00"), REFUSED)
    yield Case("timestamp_ntz", NOON.replace(tzinfo=UTC), INSTANT, REFUSED)
    nanos = pd.Timestamp("2024-01-31T12:00:00.123456001")
    yield Case("timestamp", nanos, NANOS, REFUSED)
    yield Case("timestamp_ntz", nanos, NANOS, REFUSED)
    yield Case("timestamp_ntz", pd.Timestamp(NOON), NANOS, NOON)
    yield Case("timestamp_ntz", pd.NaT, None, None, NO_CSV)


def _nested() -> Iterator[Case]:
    yield Case("array<int>", [1, None, 2**31 - 1], pa.list_(I64), [1, None, 2**31 - 1], NO_CSV)
    yield Case("array<int>", [2**31], pa.list_(I64), REFUSED, NO_CSV)
    yield Case("array<int>", ["1"], pa.list_(TEXT), REFUSED, NO_CSV)
    yield Case("array<int>", [True], pa.list_(pa.bool_()), REFUSED, NO_CSV)
    yield Case("array<float>", [0.5, 1e300], pa.list_(F64), REFUSED, NO_CSV)
    yield Case("array<timestamp>", [NOON], pa.list_(LOCAL), [NOON.replace(tzinfo=UTC)], NO_CSV)
    yield Case("array<timestamp_ntz>", [NOON.replace(tzinfo=UTC)], pa.list_(INSTANT), REFUSED, NO_CSV)
    yield Case(
        "array<timestamp_ntz>", [pd.Timestamp("2024-01-31T00:00:00.000000001")], pa.list_(NANOS), REFUSED, NO_CSV
    )
    pairs = pa.map_(TEXT, I64)
    yield Case("map<string,int>", {"a": 1, "b": None}, pairs, [("a", 1), ("b", None)], NO_CSV)
    yield Case("map<string,int>", {"a": 2**31}, pairs, REFUSED, NO_CSV)
    both = pa.struct([("a", I64), ("b", TEXT)])
    yield Case("struct<a:int,b:string>", {"a": 1, "b": "x"}, both, {"a": 1, "b": "x"}, NO_CSV)
    yield Case("struct<a:int,b:string>", {"a": 1}, pa.struct([("a", I64)]), {"a": 1, "b": None}, NO_CSV)
    yield Case("struct<a:int,b:string>", {"a": 2**31, "b": "x"}, both, REFUSED, NO_CSV)
    yield Case("struct<a:int>", {"a": 1, "b": "x"}, both, REFUSED, NO_CSV)


# the kinds


Encoder = Callable[[Path, Case], Any]


def _table(case: Case) -> pa.Table:
    assert case.source is not None
    value = list(case.value.items()) if pa.types.is_map(case.source) else case.value
    return pa.table({"v": pa.array([value], case.source)})


def _file(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def _pandas_objects(folder: Path, case: Case) -> Any:
    series = pd.Series([None], dtype=object)
    series[0] = None
    series.iat[0] = case.value
    return pd.DataFrame({"v": series})


def _parquet(folder: Path, case: Case) -> Any:
    pq.write_table(_table(case), folder / "v.parquet")
    return folder / "v.parquet"


def _orc(folder: Path, case: Case) -> Any:
    orc.write_table(_table(case), folder / "v.orc")
    return folder / "v.orc"


def _csv(folder: Path, case: Case) -> Any:
    value = case.value
    text = value.isoformat() if isinstance(value, date) else str(value)
    quoted = '"' + text.replace('"', '""') + '"' if isinstance(value, str) else text
    return _file(folder, "v.csv", f"v\n{quoted}\n".encode())


def _json(folder: Path, case: Case) -> Any:
    value = None if case.value is pd.NaT else case.value
    if isinstance(value, Decimal):
        text = str(value)
    elif isinstance(value, float) and not math.isfinite(value):
        text = json.dumps(str(value).replace("inf", "Infinity").replace("nan", "NaN"))
    else:
        text = json.dumps(value, default=lambda v: v.isoformat())
    return _file(folder, "v.jsonl", b'{"v": %s}\n' % text.encode())


def _avro(folder: Path, case: Case) -> Any:
    assert case.source is not None
    record = {"type": "record", "name": "r", "fields": [{"name": "v", "type": ["null", _avro_type(case.source, "r")]}]}
    out = io.BytesIO()
    fastavro.writer(out, record, [{"v": case.value}])
    return _file(folder, "v.avro", out.getvalue())


def _avro_type(type_: pa.DataType, name: str) -> Any:
    simple = {pa.bool_(): "boolean", I64: "long", F64: "double", TEXT: "string", pa.binary(): "bytes"}
    if type_ in simple:
        return simple[type_]
    if pa.types.is_decimal(type_):
        return {"type": "bytes", "logicalType": "decimal", "precision": type_.precision, "scale": type_.scale}
    if type_ == pa.date32():
        return {"type": "int", "logicalType": "date"}
    if pa.types.is_timestamp(type_) and type_.unit == "us":
        return {"type": "long", "logicalType": "timestamp-micros" if type_.tz else "local-timestamp-micros"}
    if pa.types.is_list(type_):
        return {"type": "array", "items": ["null", _avro_type(type_.value_type, name)]}
    if pa.types.is_map(type_):
        return {"type": "map", "values": ["null", _avro_type(type_.item_type, name)]}
    if pa.types.is_struct(type_):
        fields = [{"name": f.name, "type": ["null", _avro_type(f.type, f"{name}_{f.name}")]} for f in type_]
        return {"type": "record", "name": f"{name}_v", "fields": fields}
    raise pa.ArrowNotImplementedError(f"Avro has no {type_}")


KINDS: Mapping[str, Encoder] = {
    "dicts": lambda _, case: [{"v": case.value}],
    "arrow": lambda _, case: _table(case),
    "pandas": lambda _, case: _table(case).to_pandas(),
    "pandas objects": _pandas_objects,
    "pandas with Arrow types": lambda _, case: _table(case).to_pandas(types_mapper=pd.ArrowDtype),
    "polars": lambda _, case: pl.from_arrow(_table(case)),
    "parquet": _parquet,
    "orc": _orc,
    "avro": _avro,
    "csv": _csv,
    "json": _json,
}
_WITHOUT_SOURCE = ("dicts", "pandas objects", "csv", "json")

KNOWN_LOSSES: Mapping[str, Callable[[Case], bool]] = {
    # What the other library does before nova sees the value.
    "pandas": lambda c: (
        c.source == pa.list_(INSTANT)
        or (isinstance(c.value, date) and not isinstance(c.value, datetime) and c.declared == "timestamp_ntz")
    ),
    "polars": lambda c: c.source is not None and ("map" in str(c.source) or "decimal" in str(c.source)),
    "orc": lambda c: c.source is not None and "timestamp" in str(c.source) and not 1700 < _year(c.value) < 2200,
    "avro": lambda c: isinstance(c.value, datetime) and c.value.year == 1,
}


def _year(value: Any) -> int:
    first = value[0] if isinstance(value, list) else value
    return int(first.year)


def encoded(kind: str, folder: Path, case: Case) -> Any:
    """The case as a kind of input has it; UNSAYABLE where it cannot."""
    if case.result_for(kind) is UNSAYABLE or (case.source is None and kind not in _WITHOUT_SOURCE):
        return UNSAYABLE
    if KNOWN_LOSSES.get(kind, lambda _: False)(case):
        return UNSAYABLE
    try:
        return KINDS[kind](folder, case)
    except (pa.ArrowException, pl.exceptions.PolarsError, OverflowError, NotImplementedError):
        return UNSAYABLE


def taken(store: nova.Store, data: Any, declared: str) -> Any:
    """The value as an insert would write it to a column of that type; or REFUSED."""
    schema = parse_ddl(f"v {declared}")
    try:
        table = store.engine.convert_input(data, schema)
        reconcile_schema("c", schema, store.engine.schema_of(table), "freeze")
    except (nova.SchemaMismatch, nova.BadRecord) as error:
        assert "'v'" in str(error) or "column v " in str(error), error
        return REFUSED
    return schema_fit.fit_to_schema(table, schema).column("v").to_pylist()[0]


def same(result: Any, expected: Any) -> bool:
    if isinstance(expected, float) and isinstance(result, float):
        return repr(result) == repr(expected)
    return type(result) is type(expected) and bool(result == expected)


@pytest.mark.parametrize("kind", KINDS)
def test_a_value_arrives_exactly_or_is_refused_whatever_the_kind(kind: str, tmp_path: Path) -> None:
    wrong, tried = [], 0
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh") as store:
        for case in cases():
            data = encoded(kind, tmp_path, case)
            if data is UNSAYABLE:
                continue
            tried += 1
            result = taken(store, data, case.declared)
            if not same(result, case.result_for(kind)):
                expected = case.result_for(kind)
                wrong.append(f"{case.value!r} ({case.source}) as {case.declared}: {result!r}, not {expected!r}")
    assert not wrong, "\n".join(wrong)
    assert tried > 60


def test_parquet_that_is_too_big_for_memory_is_read_by_the_same_rules(tmp_path: Path) -> None:
    """Part by part, as Spark's tasks read it."""

    def arrived(path: Path, schema: Schema) -> Any:
        try:
            rows = LargeParquetFiles([path], schema, allow_widening=False)
            columns = rows.row_schema()
            reconcile_schema("c", schema, columns, "freeze")
            [table] = [table for part in rows.split_into_parts() for table in read_part(part, schema, False, columns)]
        except nova.SchemaMismatch as error:
            assert "'v'" in str(error) or "column v " in str(error), error
            return REFUSED
        return schema_fit.fit_to_schema(table, schema).column("v").to_pylist()[0]

    wrong = []
    for case in cases():
        path = encoded("parquet", tmp_path, case)
        if path is not UNSAYABLE:
            result = arrived(Path(path), parse_ddl(f"v {case.declared}"))
            if not same(result, case.result_for("parquet")):
                wrong.append(f"{case.value!r} ({case.source}) as {case.declared}: {result!r}")
    assert not wrong, "\n".join(wrong)


def test_what_arrives_is_what_is_read(tmp_path: Path) -> None:
    good = [(f"c{n}", case) for n, case in enumerate(cases()) if case.result is not REFUSED]
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh") as store:
        store.register(nova.Channel("good", schema=", ".join(f"{n} {c.declared}" for n, c in good)))
        store.insert("good", [{n: c.value for n, c in good}])
        (row,) = store.read("good").to_arrow().to_pylist()
    assert not [f"{c.value!r} as {c.declared}: {row[n]!r}" for n, c in good if not same(row[n], c.result)]


REFUSALS: Mapping[str, tuple[str, Any, str]] = {
    "nanoseconds": (
        "timestamp",
        [{"v": NOON}, {"v": pd.Timestamp("2024-01-31T00:00:00.000000001")}],
        "row 2 .* column 'v'.*finer than a microsecond",
    ),
    "too large for a float": ("float", [{"v": 1e300}], "row 1 .* column 'v'.*1e.300 is no float: it is too large"),
    "pandas numbers as text": ("string", pd.DataFrame({"v": [1]}), "column v is bigint, not string"),
    "pandas booleans as numbers": ("int", pd.DataFrame({"v": [True]}), "column v is boolean, not int"),
    "pandas text as numbers": ("int", pd.DataFrame({"v": ["1"]}), "column 'v'.*'1' is no int"),
    "Arrow numbers": ("int", pa.table({"v": [1, 2**31]}), "row 2 .* column 'v'.*2147483648 is no int"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_names_column_row_and_value_and_changes_nothing(name: str, tmp_path: Path) -> None:
    declared, data, message = REFUSALS[name]
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh") as store:
        store.register(nova.Channel("c", schema=f"v {declared}"))
        with pytest.raises(nova.SchemaMismatch, match=f"(?s){message}"):
            store.insert("c", data)
        assert store.timeline("c") == []


@pytest.mark.spark
def test_spark_frames_follow_the_same_rules(tmp_path: Path, spark: Any) -> None:
    """All values that arrive in one insert, as one column each; each that is refused in a frame of its own."""
    from nova_assets.engine.rows.spark_conversion import convert_frame, parse_conversion_error
    from nova_assets.engine.session.shared_settings import temporary_settings
    from nova_assets.engine.session.spark_config import WRITE_SETTINGS

    sayable = []
    for case in cases():
        if case.source is not None and case.source != pa.uint64() and "[ns" not in str(case.source):
            sayable.append((f"c{len(sayable)}", case))
    table = pa.table({name: _table(case).column("v") for name, case in sayable})
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh", spark=spark) as store:
        pq.write_table(table, tmp_path / "all.parquet")  # createDataFrame makes instants of local times
        frame = spark.read.parquet(str(tmp_path / "all.parquet"))
        good = [(n, c) for n, c in sayable if c.result is not REFUSED]
        store.register(nova.Channel("good", schema=", ".join(f"{n} {c.declared}" for n, c in good)))
        store.insert("good", frame.select(*(n for n, _ in good)))
        (row,) = store.read("good").to_arrow().to_pylist()
        wrong = [f"{c.value!r} as {c.declared}: {row[n]!r}" for n, c in good if not same(row[n], c.result)]
        for name, case in ((n, c) for n, c in sayable if c.result is REFUSED):
            schema = parse_ddl(f"{name} {case.declared}")
            converted = convert_frame(frame.select(name), schema, allow_widening=False)
            try:
                reconcile_schema("c", schema, store.engine.schema_of(converted), "freeze")
                with temporary_settings(spark, WRITE_SETTINGS):
                    wrong.append(f"{case.value!r} as {case.declared}: {converted.collect()}, not refused")
            except nova.SchemaMismatch:
                pass
            except Exception as error:
                assert parse_conversion_error(error, "c") is not None, error
    assert not wrong, "\n".join(wrong)


@pytest.mark.spark
def test_a_value_that_spark_computes_is_refused_by_column_and_value(tmp_path: Path, spark: Any) -> None:
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh", spark=spark) as store:
        store.register(nova.Channel("c", schema="v int"))
        with pytest.raises(
            nova.SchemaMismatch, match=r"(?s)column 'v' has a value of another type.*2147483648 is no int"
        ):
            store.insert("c", spark.range(2**31, 2**31 + 1).toDF("v"))
        assert store.insert("c", spark.range(7, 8).toDF("v")).seq == 1
        assert store.read("c").to_arrow().to_pylist() == [{"v": 7}]


def test_a_wider_type_widens_a_channel_that_evolves(tmp_path: Path) -> None:
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh") as store:
        store.register(nova.Channel("c", schema="v int", on_schema_change="evolve"))
        store.insert("c", pa.table({"v": pa.array([2**40], I64)}))
        assert str(store.channels()[0].schema) == "v bigint"


@pytest.mark.parametrize("library", ["pandas", "polars", "pyspark"])
def test_rows_arrive_while_another_thread_imports_a_library(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library's module is there, and has no class yet."""
    monkeypatch.setitem(sys.modules, library, ModuleType(library))
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh") as store:
        store.register(nova.Channel("c", schema="v int"))
        assert store.insert("c", pa.table({"v": pa.array([7], pa.int32())})).seq == 1
