"""Column types with their hard values, and one meaning of equality: that of Spark's ``groupBy``, in plain Python."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

_MOMENTS = [
    datetime(1, 1, 1),
    datetime(1582, 10, 4, 12),
    datetime(1969, 12, 31, 23, 59, 59, 999999),
    datetime(1970, 1, 1),
    datetime(2024, 3, 10, 2, 30, 0, 1),
    datetime(9999, 12, 31, 23, 59, 59, 999999),
]


@dataclass(frozen=True)
class ColumnType:
    """A Spark type, its Arrow type, and values at its edges.

    Args:
        wider: the type into which columns of this type may be widened, as its DDL; None where there is none.
        ranges: whether files of a channel may be clustered by such a column.
    """

    ddl: str
    arrow: pa.DataType
    values: tuple[Any, ...]
    wider: str | None = None
    orderable: bool = True
    ranges: bool = True

    @property
    def summable(self) -> bool:
        return bool(pa.types.is_integer(self.arrow) or pa.types.is_decimal(self.arrow))


def _integer(ddl: str, arrow: pa.DataType, bits: int, wider: str | None) -> ColumnType:
    limit = 2 ** (bits - 1)
    return ColumnType(ddl, arrow, (0, 1, 2, 3, -1, -limit, limit - 1), wider)


def _decimals(*texts: str) -> tuple[Decimal, ...]:
    return tuple(map(Decimal, texts))


_TYPES = (
    ColumnType("boolean", pa.bool_(), (True, False), ranges=False),
    _integer("tinyint", pa.int8(), 8, "int"),
    _integer("smallint", pa.int16(), 16, "bigint"),
    _integer("int", pa.int32(), 32, "bigint"),
    _integer("bigint", pa.int64(), 64, None),
    ColumnType(
        "float",
        pa.float32(),
        (0.0, -0.0, 1.5, -1.5, math.nan, math.inf, -math.inf, 3.4028234663852886e38, 1.401298464324817e-45),
        "double",
    ),
    ColumnType(
        "double",
        pa.float64(),
        (0.0, -0.0, 1.5, -1.5, math.nan, math.inf, -math.inf, 1.7976931348623157e308, 5e-324, 0.1),
    ),
    ColumnType(
        "decimal(9,2)",
        pa.decimal128(9, 2),
        _decimals("0.00", "1.10", "-1.10", "9999999.99", "-9999999.99"),
        "decimal(12,3)",
    ),
    ColumnType("decimal(12,3)", pa.decimal128(12, 3), _decimals("0.000", "1.100", "999999999.999")),
    ColumnType(
        "decimal(38,10)", pa.decimal128(38, 10), _decimals("0.0000000000", "9999999999999999999999999999.9999999999")
    ),
    ColumnType("string", pa.string(), ("", " ", "a", "A", "a ", "é", "e\u0301", "\x00", "\U0001f600", "null", "%2F/=")),
    ColumnType("binary", pa.binary(), (b"", b"\x00", b"a", b"\xff\xfe"), ranges=False),
    ColumnType(
        "date",
        pa.date32(),
        (date(1, 1, 1), date(1582, 10, 4), date(1970, 1, 1), date(2024, 2, 29), date(9999, 12, 31)),
        "timestamp_ntz",
    ),
    ColumnType("timestamp", pa.timestamp("us", "UTC"), tuple(m.replace(tzinfo=UTC) for m in _MOMENTS)),
    ColumnType("timestamp_ntz", pa.timestamp("us"), tuple(_MOMENTS)),
    ColumnType("array<double>", pa.list_(pa.float64()), ([], [0.0], [-0.0], [None], [math.nan, 1.0]), ranges=False),
    ColumnType(
        "struct<a:string,b:double>",
        pa.struct([("a", pa.string()), ("b", pa.float64())]),
        ({"a": "x", "b": 0.0}, {"a": "x", "b": -0.0}, {"a": None, "b": math.nan}, {"a": "", "b": None}),
        "struct<z:int,a:string,b:double,c:array<struct<d:int>>>",
        ranges=False,
    ),
    ColumnType(
        "map<string,int>", pa.map_(pa.string(), pa.int32()), ([], [("k", 1)], [("k", None), ("j", 2)]), orderable=False
    ),
)
TYPES: Mapping[str, ColumnType] = {t.ddl: t for t in _TYPES}
_NARROW_STRUCT = TYPES["struct<a:string,b:double>"]
_WIDE_STRUCT = ColumnType(
    "struct<z:int,a:string,b:double,c:array<struct<d:int>>>",
    pa.struct([("z", pa.int32()), *_NARROW_STRUCT.arrow, ("c", pa.list_(pa.struct([("d", pa.int32())])))]),
    (
        *({"z": None, **v, "c": None} for v in _NARROW_STRUCT.values),
        {"z": 1, "a": "x", "b": -0.0, "c": []},
        {"z": None, "a": None, "b": math.nan, "c": [{"d": 1}, None]},
    ),
    ranges=False,
)
WIDER_TYPES: Mapping[str, ColumnType] = {**TYPES, _WIDE_STRUCT.ddl: _WIDE_STRUCT}
"""Types that a column has once it is widened."""
KEY_TYPES = [t for t in TYPES.values() if t.orderable]
_UNBUCKETED = (pa.types.is_floating, pa.types.is_decimal, pa.types.is_nested)
BUCKETED_TYPES = [t for t in KEY_TYPES if not any(is_one(t.arrow) for is_one in _UNBUCKETED)]
"""Key types of channels that lie in buckets."""
ORDER_TYPES = [TYPES[n] for n in ("int", "double", "decimal(9,2)", "string", "timestamp", "date")]


def canonical(value: Any, type_: ColumnType) -> Any:
    """A hashable value, equal to another exactly if Spark groups both together.

    Zeros of both signs are one value, and so are all NaNs. A date is the midnight that it becomes as a wider type. A
    struct leaves out its nulls, which a wider struct has more of.
    """
    if pa.types.is_map(type_.arrow) and value is not None:
        return frozenset((k, v) for k, v in value)
    return _canonical(value)


def _canonical(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, list | tuple):
        return tuple(map(_canonical, value))
    if isinstance(value, dict):
        return tuple((k, _canonical(v)) for k, v in sorted(value.items()) if v is not None)
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day)
    return value


def rank(value: Any) -> tuple[int, Any]:
    """Where a canonical value stands in Spark's order: nulls are least, NaN is greatest."""
    return (0, 0) if value is None else (2, 0) if value == "NaN" else (1, value)


def limits(type_: ColumnType) -> tuple[Any, Any]:
    """The least and the greatest value of a type that can be summed."""
    if pa.types.is_decimal(type_.arrow):
        greatest = _EXACT.scaleb(Decimal("9" * type_.arrow.precision), -type_.arrow.scale)
        return greatest.copy_negate(), greatest
    limit = 2 ** (type_.arrow.bit_width - 1)
    return -limit, limit - 1


Combiner = Callable[[Any, Any], Any]


def past_nulls(combine: Combiner) -> Combiner:
    """The combiner that passes over nulls."""
    return lambda a, b: b if a is None else a if b is None else combine(a, b)


_EXACT = Context(prec=200)


def _added(a: Any, b: Any) -> Any:
    """The sum with all of its digits."""
    return _EXACT.add(a, b) if isinstance(b, Decimal) else a + b


COMBINERS: Mapping[str, Combiner] = {
    "sum": past_nulls(_added),
    "min": past_nulls(lambda a, b: min(a, b, key=rank)),
    "max": past_nulls(lambda a, b: max(a, b, key=rank)),
    "bool_and": past_nulls(lambda a, b: a and b),
    "bool_or": past_nulls(lambda a, b: a or b),
}
