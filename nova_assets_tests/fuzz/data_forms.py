"""Rows in the forms in which users insert them."""

from __future__ import annotations

import math
from datetime import date, datetime
from typing import Any

import pyarrow as pa

from nova_assets_tests.fuzz.commands import DELETED
from nova_assets_tests.fuzz.naive import Column


class Stale(Exception):
    """A command does not fit the channel as it is, because earlier commands were left out."""


def as_data(rows: list[dict[str, Any]], columns: tuple[Column, ...], form: str, keyed: bool) -> Any:
    if form == "dicts" and rows:
        return rows if keyed else [{n: v for n, v in r.items() if n != DELETED} for r in rows]
    try:
        arrays = {c.name: pa.array([_as_type(r.get(c.name), c) for r in rows], c.type.arrow) for c in columns}
    except (pa.ArrowException, OverflowError) as error:  # rows of a column as it was widened
        raise Stale from error
    if keyed:
        arrays[DELETED] = pa.array([bool(r.get(DELETED)) for r in rows], pa.bool_())
    return pa.table(arrays)


def _as_type(value: Any, column: Column) -> Any:
    """A date as the midnight that it is in a column that brings moments. Raises Stale: the type has no such value."""
    narrow = column.type.arrow == pa.float32() and value is not None and not math.isnan(value)
    if narrow and pa.scalar(value, pa.float32()).as_py() != value:  # pyarrow rounds it
        raise Stale
    is_date = isinstance(value, date) and not isinstance(value, datetime)
    return datetime(value.year, value.month, value.day) if is_date and column.type.ddl == "timestamp_ntz" else value


def twins(row: dict[str, Any], key: list[Column]) -> dict[str, Any]:
    """The key once more, with the other sign where it is a zero."""
    return {c.name: -row[c.name] if row[c.name] == 0 and isinstance(row[c.name], float) else row[c.name] for c in key}
