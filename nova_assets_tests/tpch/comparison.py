"""Compares two results as bags of rows. Numbers that DuckDB computes as doubles may differ in their last digits."""

from __future__ import annotations

import math
from collections import defaultdict
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa

RELATIVE_TOLERANCE = 1e-9

Rows: TypeAlias = list[tuple[Any, ...]]


def difference(actual: pa.Table, expected: pa.Table) -> str:
    """Differences between two results; empty if they are equal.

    Rows are compared as bags. Decimals, integers, texts and dates must be equal. If a column of ``expected`` is a
    double, values may differ by 1e-9 of the value. If the same column of ``actual`` is a decimal, values may also
    differ by half of its last digit, because Spark rounds averages and quotients to this digit.
    """
    names, expected_names = ([n.lower() for n in table.column_names] for table in (actual, expected))
    if names != expected_names:
        return f"columns {names}, expected {expected_names}"
    rounded = [i for i, field in enumerate(expected.schema) if pa.types.is_floating(field.type)]
    steps = [_half_step(actual.schema.field(i).type) for i in rounded]
    actual_rows, expected_rows = _by_exact_values(actual, rounded), _by_exact_values(expected, rounded)
    lines = []
    for exact in dict.fromkeys([*actual_rows, *expected_rows]):
        mine, theirs = sorted(actual_rows[exact], key=_order), sorted(expected_rows[exact], key=_order)
        if len(mine) != len(theirs):
            lines.append(f"{exact}: {len(mine)} times, expected {len(theirs)}")
            continue
        for row, other in zip(mine, theirs, strict=True):
            if not all(map(_is_close, row, other, steps)):
                lines.append(f"{exact}: {row}, expected {other}")
    return "\n".join(lines)


def _by_exact_values(table: pa.Table, rounded: list[int]) -> defaultdict[tuple[Any, ...], Rows]:
    """Values of the rounded columns, by the values of the other columns."""
    rows: defaultdict[tuple[Any, ...], Rows] = defaultdict(list)
    columns = [column.to_pylist() for column in table.columns]
    for row in zip(*columns, strict=True):
        exact = tuple(value for i, value in enumerate(row) if i not in rounded)
        rows[exact].append(tuple(row[i] for i in rounded))
    return rows


def _order(row: tuple[Any, ...]) -> tuple[float, ...]:
    return tuple(-math.inf if value is None else float(value) for value in row)


def _half_step(type_: pa.DataType) -> float:
    """Half of the last digit of a decimal; 0 for other types."""
    return 0.5 * 10.0**-type_.scale if pa.types.is_decimal(type_) else 0.0


def _is_close(actual: float | Decimal | None, expected: float | None, half_step: float) -> bool:
    if actual is None or expected is None:
        return actual is expected
    return abs(float(actual) - expected) <= half_step * 1.0001 + RELATIVE_TOLERANCE * abs(expected)
