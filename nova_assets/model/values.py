"""Python values as values of a declared type, one by one, so that what does not fit can be named.

For rows given as dicts, and for text that the fast parsers refuse or cannot type.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from nova_assets.model.schema import DataType

# More than microseconds, which Python's parser would cut off without a word.
_TOO_FINE = re.compile(r"[.,]\d{6}\d*[1-9]")

_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}


def coerced(value: Any, type_: DataType) -> Any:
    """A value as ``pyarrow.array(..., type=...)`` takes it for that type, meaning exactly the same.

    Text is read where JSON has nothing better: decimals, dates and times in ISO form. Times without a zone are UTC
    where the type is ``timestamp``.

    Raises:
        ValueError: it is no value of that type.
    """
    if value is None:
        return None
    if hasattr(value, "item") and type(value).__module__ == "numpy" and getattr(value, "ndim", 0) == 0:
        value = value.item()
    return _READERS[type_.name](value, type_)


def _wrong(value: Any, type_: DataType) -> ValueError:
    shown = repr(value)
    return ValueError(f"{shown if len(shown) <= 80 else shown[:77] + '...'} is no {type_}")


def _boolean(value: Any, type_: DataType) -> bool:
    if isinstance(value, bool):
        return value
    raise _wrong(value, type_)


def _integer(value: Any, type_: DataType) -> int:
    number = _number(value, type_)
    limit = 2 ** (_BITS[type_.name] - 1)
    if isinstance(value, str) or number != number.to_integral_value() or not -limit <= number < limit:
        raise _wrong(value, type_)
    return int(number)


def _floating(value: Any, type_: DataType) -> float:
    if isinstance(value, float):
        return value
    if value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise _wrong(value, type_)
    try:
        found = float(value)
    except (ValueError, OverflowError) as error:
        raise _wrong(value, type_) from error
    if isinstance(value, int) and int(found) != value:
        raise _wrong(value, type_)
    return found


def _decimal(value: Any, type_: DataType) -> Decimal:
    number = _number(value, type_)
    precision, scale = type_.args
    scaled = number.scaleb(scale)
    if scaled != scaled.to_integral_value() or abs(scaled) >= 10**precision:
        raise _wrong(value, type_)
    return number


def _number(value: Any, type_: DataType) -> Decimal:
    """Any finite number, exactly as it is written; a number in quotes, too."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
        raise _wrong(value, type_)
    try:
        number = Decimal(repr(value) if isinstance(value, float) else value)
    except InvalidOperation as error:
        raise _wrong(value, type_) from error
    if not number.is_finite():
        raise _wrong(value, type_)
    return number


def _string(value: Any, type_: DataType) -> str:
    if not isinstance(value, str):
        raise _wrong(value, type_)
    return value


def _binary(value: Any, type_: DataType) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str):
        return value.encode()
    raise _wrong(value, type_)


def _date(value: Any, type_: DataType) -> date:
    if isinstance(value, datetime):
        if value.time() == datetime.min.time():
            return value.date()
        raise _wrong(value, type_)
    if isinstance(value, date):
        return value
    found: date = _parsed(date.fromisoformat, value, type_)
    return found


def _timestamp(value: Any, type_: DataType) -> datetime:
    time = value if isinstance(value, datetime) else _parsed(datetime.fromisoformat, value, type_)
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def _timestamp_ntz(value: Any, type_: DataType) -> datetime:
    time = value if isinstance(value, datetime) else _parsed(datetime.fromisoformat, value, type_)
    if time.tzinfo is not None:
        raise _wrong(value, type_)
    return time


def _parsed(parse: Callable[[str], Any], value: Any, type_: DataType) -> Any:
    if not isinstance(value, str) or _TOO_FINE.search(value):
        raise _wrong(value, type_)
    try:
        return parse(value.strip())
    except ValueError as error:
        raise _wrong(value, type_) from error


def _array(value: Any, type_: DataType) -> list[Any]:
    if hasattr(value, "tolist") and type(value).__module__ == "numpy":
        value = value.tolist()
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise _wrong(value, type_)
    return [coerced(v, type_.fields[0].type) for v in value]


def _map(value: Any, type_: DataType) -> list[tuple[Any, Any]]:
    pairs = list(value.items()) if isinstance(value, Mapping) else value
    if not isinstance(pairs, Sequence) or isinstance(pairs, str | bytes):
        raise _wrong(value, type_)
    key, item = type_.fields
    found = []
    for pair in pairs:
        if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) != 2 or pair[0] is None:
            raise _wrong(value, type_)
        found.append((coerced(pair[0], key.type), coerced(pair[1], item.type)))
    return found


def _struct(value: Any, type_: DataType) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _wrong(value, type_)
    fields = {f.name: f.type for f in type_.fields}
    if not set(value) <= set(fields):
        raise _wrong(value, type_)
    return {name: coerced(value.get(name), inner) for name, inner in fields.items()}


_READERS: dict[str, Callable[[Any, DataType], Any]] = {
    "boolean": _boolean,
    **dict.fromkeys(_BITS, _integer),
    "float": _floating,
    "double": _floating,
    "decimal": _decimal,
    "string": _string,
    "binary": _binary,
    "date": _date,
    "timestamp": _timestamp,
    "timestamp_ntz": _timestamp_ntz,
    "array": _array,
    "map": _map,
    "struct": _struct,
}


def order_of(value: Any) -> tuple[int, Any]:
    """Where a value of an ``order_by`` column stands: nulls least, NaN greatest, as Spark has it."""
    if value is None:
        return (0, 0)
    if isinstance(value, float) and math.isnan(value):
        return (2, 0)
    return (1, value)
