"""Equality and order of values, as in Spark. All engines use one definition of equality, that of ``groupBy``.

``0.0`` and ``-0.0`` are equal, and NaN equals NaN, at any depth of a value. Other values are equal if they are
identical: text and bytes byte by byte, decimals of one type by their number, times by their instant. A map cannot be a
key. As values, two maps are equal if they have equal entries, in any order.

Each class of equal values has one *canonical* form: ``0.0``, and one NaN. Keys are written in canonical form
(``engine/rows/canonical_keys`` for Arrow and Spark), so engines that compare bytes or hashes agree with engines that
compare numbers. Other columns keep the input value. ``canonical_value`` decides whether two of their values differ.
"""

from __future__ import annotations

import math
from typing import Any

from nova_assets.model.schema import DataType

FLOATS = frozenset({"float", "double"})


def canonical_value(value: Any) -> Any:
    """Canonical form of a Python value. Two values are equal if the ``repr`` of their canonical forms is equal."""
    # Spark, Arrow and Python disagree on zeros: 0.0 and -0.0 would be two live rows of one key (R11).
    if isinstance(value, float):
        return math.nan if math.isnan(value) else value + 0.0
    if isinstance(value, dict):
        return {name: canonical_value(v) for name, v in value.items()}
    if isinstance(value, list):
        found = [canonical_value(v) for v in value]
        return sorted(found, key=repr) if found and all(isinstance(v, tuple) for v in found) else found
    if isinstance(value, tuple):  # map entries are tuples
        return tuple(canonical_value(v) for v in value)
    return value


def has_unequal_representations(type_: DataType) -> bool:
    """Whether values of a type can be equal without being identical."""
    return type_.name in FLOATS or any(has_unequal_representations(f.type) for f in type_.fields)


def can_be_key(type_: DataType) -> bool:
    """Whether a type can be part of a key: Spark cannot group by maps, at any depth."""
    return type_.name != "map" and all(can_be_key(f.type) for f in type_.fields)


def spark_sort_key(value: Any) -> tuple[int, Any]:
    """Sort key of a value of an ``order_by`` column: nulls first, NaN last, as in Spark."""
    if value is None:
        return (0, 0)
    if isinstance(value, float) and math.isnan(value):
        return (2, 0)
    return (1, value)
