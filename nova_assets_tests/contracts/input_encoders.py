"""Encoders that turn a case into each kind of input: tables, data frames, dicts and files."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from nova_assets_tests.contracts.conversion_cases import F64, I64, INSTANT, TEXT, UNSAYABLE, Case

Encoder = Callable[[Path, Case], Any]


def arrow_table(case: Case) -> pa.Table:
    assert case.source is not None
    value = list(case.value.items()) if pa.types.is_map(case.source) else case.value
    return pa.table({"v": pa.array([value], case.source)})


def written_file(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def _pandas_objects(folder: Path, case: Case) -> Any:
    series = pd.Series([None], dtype=object)
    series[0] = None
    series.iat[0] = case.value
    return pd.DataFrame({"v": series})


def _parquet(folder: Path, case: Case) -> Any:
    pq.write_table(arrow_table(case), folder / "v.parquet")
    return folder / "v.parquet"


def _orc(folder: Path, case: Case) -> Any:
    orc.write_table(arrow_table(case), folder / "v.orc")
    return folder / "v.orc"


def _csv(folder: Path, case: Case) -> Any:
    value = case.value
    text = value.isoformat() if isinstance(value, date) else str(value)
    quoted = '"' + text.replace('"', '""') + '"' if isinstance(value, str) else text
    return written_file(folder, "v.csv", f"v\n{quoted}\n".encode())


def _json(folder: Path, case: Case) -> Any:
    value = None if case.value is pd.NaT else case.value
    if isinstance(value, Decimal):
        text = str(value)
    elif isinstance(value, float) and not math.isfinite(value):
        text = json.dumps(str(value).replace("inf", "Infinity").replace("nan", "NaN"))
    else:
        text = json.dumps(value, default=lambda v: v.isoformat())
    return written_file(folder, "v.jsonl", b'{"v": %s}\n' % text.encode())


def _avro(folder: Path, case: Case) -> Any:
    assert case.source is not None
    record = {"type": "record", "name": "r", "fields": [{"name": "v", "type": ["null", _avro_type(case.source, "r")]}]}
    out = io.BytesIO()
    fastavro.writer(out, record, [{"v": case.value}])
    return written_file(folder, "v.avro", out.getvalue())


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


ENCODERS: Mapping[str, Encoder] = {
    "dicts": lambda _, case: [{"v": case.value}],
    "arrow": lambda _, case: arrow_table(case),
    "pandas": lambda _, case: arrow_table(case).to_pandas(),
    "pandas objects": _pandas_objects,
    "pandas with Arrow types": lambda _, case: arrow_table(case).to_pandas(types_mapper=pd.ArrowDtype),
    "polars": lambda _, case: pl.from_arrow(arrow_table(case)),
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


def encode_case(kind: str, folder: Path, case: Case) -> Any:
    """The case as a kind of input has it; UNSAYABLE where it cannot."""
    if case.result_for(kind) is UNSAYABLE or (case.source is None and kind not in _WITHOUT_SOURCE):
        return UNSAYABLE
    if KNOWN_LOSSES.get(kind, lambda _: False)(case):
        return UNSAYABLE
    try:
        return ENCODERS[kind](folder, case)
    except (pa.ArrowException, pl.exceptions.PolarsError, OverflowError, NotImplementedError):
        return UNSAYABLE
