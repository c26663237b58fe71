"""Spark's implicit casts where two types meet: in comparisons, IN lists, CASE, COALESCE and similar."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo

from nova_assets.model.schema import DataType
from nova_assets.sql.evaluation.casting import BOOLEAN, DATE, DOUBLE, STRING, TIMESTAMP, Cast, cast_to_text, make_cast
from nova_assets.sql.evaluation.operand import Undecided
from nova_assets.sql.evaluation.values import Value
from nova_assets.sql.types.widening import MAX_DIGITS, VOID, as_decimal, is_integral, wider_type

_ORDERED_TYPES = (
    "string",
    "boolean",
    "date",
    "timestamp",
    "timestamp_ntz",
    "tinyint",
    "smallint",
    "int",
    "bigint",
    "double",
)


def comparison_casts(a: DataType, b: DataType, zone: tzinfo) -> tuple[Cast, Cast] | None:
    """Casts that make values of two types comparable, one per side. None if the types cannot be compared.

    ``=`` and ``<`` on the cast values agree with Spark's.
    """
    both = _comparison_type(a, b)
    if both is None:
        return None
    if both == VOID:
        return _unchanged, _unchanged
    left, right = make_cast(a, both, zone), make_cast(b, both, zone)
    return None if left is None or right is None else (left, right)


def _unchanged(value: Value) -> Value:
    return value


def _comparison_type(a: DataType, b: DataType) -> DataType | None:
    if VOID in (a, b):
        return VOID
    if a == b:
        return a if a.name in _ORDERED_TYPES or a.name == "decimal" else None
    if _is_exact_number(a) and _is_exact_number(b):
        return VOID if _common_digits(a, b) <= MAX_DIGITS else None  # Python compares exact numbers without a cast
    if DOUBLE in (a, b):
        return DOUBLE if all(t == DOUBLE or _is_exact_number(t) for t in (a, b)) else None
    if STRING in (a, b):
        return _text_comparison_type(a if b == STRING else b)
    return TIMESTAMP if {a, b} == {DATE, TIMESTAMP} else None


def _text_comparison_type(other_type: DataType) -> DataType | None:
    """The type to which a text is cast for a comparison. Beside a small integer type, some settings of Spark cast
    the text to a larger integer type, so a text that exceeds the small type is undecided.
    """
    return other_type if is_integral(other_type) or other_type in (DATE, TIMESTAMP, BOOLEAN) else None


def _is_exact_number(type_: DataType) -> bool:
    return is_integral(type_) or type_.name == "decimal"


def _common_digits(a: DataType, b: DataType) -> int:
    (p, s), (q, t) = as_decimal(a).args, as_decimal(b).args
    return max(p - s, q - t) + max(s, t)


def in_list_casts(a: DataType, b: DataType, zone: tzinfo) -> tuple[Cast, Cast] | None:
    """As ``comparison_casts``, for ``a IN (b, ...)``.

    Some settings of Spark compare a date among texts as text. Therefore only texts in Spark's own date format are
    decided.
    """
    if a != b and STRING in (a, b) and VOID not in (a, b):
        other_type = a if b == STRING else b
        casts = comparison_casts(a, b, zone) if other_type in (DATE, TIMESTAMP) else None
        if casts is None:
            return None
        return (
            (casts[0], _require_canonical_text(casts[1]))
            if b == STRING
            else (_require_canonical_text(casts[0]), casts[1])
        )
    return comparison_casts(a, b, zone)


def _require_canonical_text(cast_text: Cast) -> Cast:
    def canonical(text: Value) -> Value:
        value = cast_text(text)
        if cast_to_text(value) != text:
            raise Undecided(f"{text!r} is compared as text in some settings of Spark")
        return value

    return canonical


def common_type(types: Sequence[DataType]) -> DataType | None:
    """The common type of several values. None if there is none that all settings of Spark share.

    Beside another type, some settings of Spark cast text to the other type, and others cast the other type to text.
    """
    if any(t == STRING for t in types) and not all(t in (STRING, VOID) for t in types):
        return None
    common: DataType | None = types[0] if types else None
    for type_ in types[1:]:
        common = _wider_exact_type(common, type_)
    return common


def _wider_exact_type(a: DataType | None, b: DataType) -> DataType | None:
    if a is None:
        return None
    if _is_exact_number(a) and _is_exact_number(b) and _common_digits(a, b) > MAX_DIGITS and a != b:
        return None
    return wider_type(a, b)
