"""Values of partition columns as people write them, in the form that names of partitions contain."""

from __future__ import annotations

import re
from datetime import date, datetime, time

from nova_assets.errors import PartitionError
from nova_assets.model.schema import Schema

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def value_text(column: str, value: object, schema: Schema | None) -> str | None:
    """Text of a value in the name of a partition, which is that of Spark: ``7``, ``true``, ``2024-01-05``.

    Args:
        schema: columns of the channel, of which the type of the value follows; None if they are unknown.

    Raises:
        PartitionError: the column cannot have the value, or the value does not say which value of the column it is.
    """
    if value is None:
        return None
    type_name = schema.field(column).type.name if schema is not None and column in schema else ""
    text = _FORMATS.get(type_name, _text_of_any)(value)
    if text is None:
        raise PartitionError(
            f"partitions of {column!r} have no {value!r}",
            found=repr(value),
            expected=_EXPECTED.get(type_name, "a text"),
            column=column,
        )
    return text


def _text_of_any(value: object) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, date) and not isinstance(value, datetime):
        return value.isoformat()
    return str(value)


def _text_of_string(value: object) -> str | None:
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else None


def _text_of_boolean(value: object) -> str | None:
    text = str(value).lower() if isinstance(value, bool | str) else ""
    return text if text in ("true", "false") else None


def _text_of_whole_number(value: object) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return str(int(value)) if isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value) else None


def _text_of_date(value: object) -> str | None:
    if isinstance(value, datetime):
        is_day = value.tzinfo is None and value.time() == time()
        return value.date().isoformat() if is_day else None
    if isinstance(value, date):
        return value.isoformat()
    if not isinstance(value, str) or not _DATE.fullmatch(value):
        return None
    try:
        return date.fromisoformat(value).isoformat()
    except ValueError:
        return None


_FORMATS = {
    "string": _text_of_string,
    "boolean": _text_of_boolean,
    "date": _text_of_date,
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), _text_of_whole_number),
}

_EXPECTED = {
    "boolean": "true or false",
    "date": "a date, YYYY-MM-DD",
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), "a whole number, such as 7"),
}
