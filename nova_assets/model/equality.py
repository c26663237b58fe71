"""What it means that two values are equal. There is one meaning, and it is that of Spark's ``groupBy``.

``0.0`` and ``-0.0`` are equal, and NaN equals NaN, at any depth of a value. Everything else is equal if it is the same:
text and bytes byte by byte, decimals of one type by their number, times by their instant. A map is no key. As values,
two maps are equal if they hold equal entries, in any order.

One value of each class stands for all of it, its *canonical* form: ``0.0``, and one NaN. Keys are written in canonical
form (``engine/equality`` for Arrow and Spark). So engines that compare bytes or hashes agree with those that compare
numbers. Other columns keep what was given; ``canonical`` tells whether two of their values are a change.
"""

from __future__ import annotations

import math
from typing import Any

from nova_assets.model.schema import DataType

FLOATS = frozenset({"float", "double"})


def canonical_value(value: Any) -> Any:
    """The value that stands for all that equal this one, as Python has it. Two are equal if their ``repr`` is."""
    if isinstance(value, float):
        return math.nan if math.isnan(value) else value + 0.0
    if isinstance(value, dict):
        return {name: canonical_value(v) for name, v in value.items()}
    if isinstance(value, list):
        found = [canonical_value(v) for v in value]
        return sorted(found, key=repr) if found and all(isinstance(v, tuple) for v in found) else found
    if isinstance(value, tuple):  # an entry of a map
        return tuple(canonical_value(v) for v in value)
    return value


def has_unequal_representations(type_: DataType) -> bool:
    """Whether values of a type can be equal and yet not be the same."""
    return type_.name in FLOATS or any(has_unequal_representations(f.type) for f in type_.fields)


def can_be_key(type_: DataType) -> bool:
    """Whether rows can be told apart by values of a type: Spark groups by no map, at any depth."""
    return type_.name != "map" and all(can_be_key(f.type) for f in type_.fields)
