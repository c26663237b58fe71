"""Overflow checks for sums of integers and decimals: the range of a column, and an upper bound on its sums.

Nobody could read a sum that exceeds the type of its column, so a delta that would cause one is rejected before the
commit. Files record the minimum and maximum of each summed column. A key has at most one live row per block, so no sum
exceeds the total of these bounds. Rows are read only if that total is too large.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction

from nova_assets.errors import SumOverflow
from nova_assets.model.block import Block, DataFile
from nova_assets.model.merge import Keyed, MergeModel
from nova_assets.model.reads import Read, source_blocks
from nova_assets.model.schema import DataType, Schema
from nova_assets.nova_error import NovaError

# Such a delta is not stored in a wider type: that moves the limit and removes none, and consumers rely on the type.

_INTEGER_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}


def greatest_symmetric_value(type_: DataType) -> Fraction | None:
    """Greatest number of a type whose negative is also in the type; None for floats, which have infinity."""
    if type_.name in _INTEGER_BITS:
        return Fraction(2 ** (_INTEGER_BITS[type_.name] - 1) - 1)
    if type_.name == "decimal":
        precision, scale = type_.args
        return Fraction(10**precision - 1, 10**scale)
    return None


def is_in_type_range(value: Fraction, type_: DataType) -> bool:
    """Whether a sum is a value of its column's type."""
    greatest = greatest_symmetric_value(type_)
    return (
        greatest is None or -greatest <= value <= greatest or (type_.name in _INTEGER_BITS and value == -greatest - 1)
    )


def overflowable_sums(model: MergeModel, schema: Schema) -> dict[str, DataType]:
    """Columns that a model sums and that can overflow, with their types."""
    columns = [c for c, f in model.combine if f == "sum" and c in schema] if isinstance(model, Keyed) else []
    return {c: schema.field(c).type for c in columns if greatest_symmetric_value(schema.field(c).type) is not None}


def largest_recorded_magnitude(files: Iterable[DataFile], column: str) -> Fraction | None:
    """Upper bound on the absolute values of a column in these files; None if a file does not record its range."""
    largest = Fraction(0)
    for file in files:
        if not file.rows:
            continue
        if column not in file.ranges:
            return None
        largest = max(largest, *(abs(Fraction(str(v))) for v in file.ranges[column]))
    return largest


@dataclass(frozen=True, slots=True)
class RequireSumHeadroom:
    """Precondition of a commit: data that was committed to a partition meanwhile leaves a sum within its type.

    Args:
        seq: head of the channel for which the sums were checked.
        headroom: by how much a sum may still grow; None if no later delta may have been committed.
    """

    channel: str
    seq: int
    partition: str
    column: str
    headroom: Fraction | None


def sum_overflow_error(
    error_label: str, column: str, type_: DataType, key: Mapping[str, object], value: Fraction
) -> SumOverflow:
    """Error for a sum that would exceed the type of its column."""
    key_text = ", ".join(f"{c} = {v!r}" for c, v in key.items())
    return SumOverflow(
        f"{error_label}: the sum of column {column!r} would be {_format_number(value)} "
        f"for key {key_text}, which exceeds {type_}",
        found=_format_number(value),
        expected=f"no more than {_format_number(greatest_symmetric_value(type_) or Fraction(0))}, in all "
        "and in what came after any version",
        next=WIDEN_TYPE_ADVICE,
        column=column,
        key=dict(key),
        value=_format_number(value),
    )


def _format_number(value: Fraction) -> str:
    """The number in decimal notation."""
    if value.denominator == 1:
        return str(value.numerator)
    digits = len(str(value.denominator))
    with localcontext() as context:
        context.prec = 100
        return f"{(Decimal(value.numerator) / Decimal(value.denominator)):.{digits}f}".rstrip("0").rstrip(".")


WIDEN_TYPE_ADVICE = (
    "register the channel with a wider type for the column and replace=True (bigint, or decimal(38,s)); "
    "or replace the key's row by a deletion and a live row"
)

_OVERFLOW_MARKERS = (
    "[ARITHMETIC_OVERFLOW",
    "[CAST_OVERFLOW",
    "[NUMERIC_VALUE_OUT_OF_RANGE",
    "OverflowError: a sum of column",
)
"""Parts of error messages, from Spark and from functions of this package in this process or its workers, that report
an overflowing sum.
"""


@contextmanager
def name_channel_in_overflow_errors(read: Read) -> Iterator[None]:
    """Context for computing the rows of a read, which reports an overflowing sum with the name of its channel.

    Raises:
        SumOverflow: the channel contains data from before such sums were rejected.
    """
    try:
        yield
    except NovaError:
        raise
    except Exception as error:
        blocks = [s for s in source_blocks(read) if isinstance(s, Block)]
        text = f"{type(error).__name__}: {error}"  # as in the traceback of a worker
        if not blocks or not any(mark in text for mark in _OVERFLOW_MARKERS):
            raise
        type_by_column = overflowable_sums(blocks[-1].merge, blocks[-1].manifest.schema)
        if not type_by_column:
            raise
        raise SumOverflow(
            f"channel {blocks[-1].channel!r} cannot be read: for some key, a sum is no value of its column's type",
            found="; ".join(str(error).splitlines()[:1]),
            expected=", ".join(f"{c} as {t}" for c, t in type_by_column.items()),
            next=WIDEN_TYPE_ADVICE,
            channel=blocks[-1].channel,
        ) from error
