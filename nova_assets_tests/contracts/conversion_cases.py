"""Hard values for every declared type, with the value that must arrive for each kind of input."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa

I64, F64, TEXT, LOCAL = pa.int64(), pa.float64(), pa.string(), pa.timestamp("us")
INSTANT, NANOS = pa.timestamp("us", "UTC"), pa.timestamp("ns")
NAN, INF = float("nan"), float("inf")


class Marker:
    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


REFUSED = Marker("refused")
UNSAYABLE = Marker("a kind has no way to say it")
TEXT_KINDS = ("dicts", "csv", "json")


@dataclass(frozen=True)
class Case:
    """One value for a column of a declared type.

    Args:
        source: the Arrow type in which typed kinds carry the value; None for a value that they cannot say.
        result: the value that arrives, or REFUSED.
        other_results: kind -> another result, or UNSAYABLE: text stands for other types there, or NaN for null.
    """

    declared: str
    value: Any
    source: pa.DataType | None
    result: Any
    other_results: Mapping[str, Any] = field(default_factory=dict)

    def result_for(self, kind: str) -> Any:
        return self.other_results.get(kind, self.result)


NOON = datetime(2024, 1, 31, 12, 0, 0, 123456)
EAST = timezone(timedelta(hours=2))
NOT_IN_TEXT = dict.fromkeys(TEXT_KINDS, UNSAYABLE)
"""Text stands for such a value there, or there is nothing but text."""

NAN_IN_PANDAS = {"pandas": None, "pandas objects": None, "pandas with Arrow types": None}
NO_CSV = {"csv": UNSAYABLE}


def all_cases() -> Iterator[Case]:
    yield from _numbers()
    yield from _other_scalars()
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


def _other_scalars() -> Iterator[Case]:
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
