"""Every kind of input × every type × hard values: each arrives exactly or is refused, and all kinds agree."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import nova_assets as nova
from nova_assets.engine.inputs.large_parquet import LargeParquetFiles, read_part
from nova_assets.formats import schema_fit
from nova_assets.model.schema import Schema, parse_ddl
from nova_assets.model.schema_evolution import reconcile_schema
from nova_assets_tests.contracts.conversion_cases import I64, NOON, REFUSED, UNSAYABLE, all_cases
from nova_assets_tests.contracts.input_encoders import ENCODERS, arrow_table, encode_case


def inserted_and_read(store: nova.Store, data: Any, declared: str) -> Any:
    """The value as an insert would write it to a column of that type; or REFUSED."""
    schema = parse_ddl(f"v {declared}")
    try:
        table = store.engine.inputs.convert(data, schema)
        reconcile_schema("c", schema, store.engine.frames.schema_of(table), "freeze")
    except (nova.SchemaMismatch, nova.BadRecord) as error:
        assert "'v'" in str(error) or "column v " in str(error), error
        return REFUSED
    return schema_fit.fit_to_schema(table, schema).column("v").to_pylist()[0]


def same(result: Any, expected: Any) -> bool:
    if isinstance(expected, float) and isinstance(result, float):
        return repr(result) == repr(expected)
    return type(result) is type(expected) and bool(result == expected)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ENCODERS)
def test_a_value_arrives_exactly_or_is_refused_whatever_the_kind(kind: str, tmp_path: Path) -> None:
    wrong, tried = [], 0
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh") as store:
        for case in all_cases():
            data = encode_case(kind, tmp_path, case)
            if data is UNSAYABLE:
                continue
            tried += 1
            result = inserted_and_read(store, data, case.declared)
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
    for case in all_cases():
        path = encode_case("parquet", tmp_path, case)
        if path is not UNSAYABLE:
            result = arrived(Path(path), parse_ddl(f"v {case.declared}"))
            if not same(result, case.result_for("parquet")):
                wrong.append(f"{case.value!r} ({case.source}) as {case.declared}: {result!r}")
    assert not wrong, "\n".join(wrong)


def test_what_arrives_is_what_is_read(tmp_path: Path) -> None:
    good = [(f"c{n}", case) for n, case in enumerate(all_cases()) if case.result is not REFUSED]
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
    for case in all_cases():
        if case.source is not None and case.source != pa.uint64() and "[ns" not in str(case.source):
            sayable.append((f"c{len(sayable)}", case))
    table = pa.table({name: arrow_table(case).column("v") for name, case in sayable})
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
                reconcile_schema("c", schema, store.engine.frames.schema_of(converted), "freeze")
                with temporary_settings(spark, WRITE_SETTINGS):
                    wrong.append(f"{case.value!r} as {case.declared}: {converted.collect()}, not refused")
            except nova.SchemaMismatch:
                pass
            except Exception as error:
                assert parse_conversion_error(error, "c") is not None, error
    assert not wrong, "\n".join(wrong)


@pytest.mark.core
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
