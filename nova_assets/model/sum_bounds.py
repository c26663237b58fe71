"""Sums of whole numbers and decimals: how large their column lets them get, and a bound on how large they are.

A sum that leaves its column's type could be read by nobody, so a delta that would make one is refused before it is
committed. The files of blocks say the least and greatest value of each summed column. A key has one live row in a block
at most, so no sum is larger than what these bounds add up to. Only where that is too much, rows are looked at.
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

_INTEGER_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}


def greatest_number(type_: DataType) -> Fraction | None:
    """The greatest number of a type, whose negative is in the type, too; None for floats, which have infinity."""
    if type_.name in _INTEGER_BITS:
        return Fraction(2 ** (_INTEGER_BITS[type_.name] - 1) - 1)
    if type_.name == "decimal":
        precision, scale = type_.args
        return Fraction(10**precision - 1, 10**scale)
    return None


def is_in_type_range(value: Fraction, type_: DataType) -> bool:
    """Whether a sum is a value of its column's type."""
    greatest = greatest_number(type_)
    return (
        greatest is None or -greatest <= value <= greatest or (type_.name in _INTEGER_BITS and value == -greatest - 1)
    )


def overflowable_sums(model: MergeModel, schema: Schema) -> dict[str, DataType]:
    """The columns that a model sums, and that can overflow, with their types."""
    columns = [c for c, f in model.combine if f == "sum" and c in schema] if isinstance(model, Keyed) else []
    return {c: schema.field(c).type for c in columns if greatest_number(schema.field(c).type) is not None}


def largest_magnitude(files: Iterable[DataFile], column: str) -> Fraction | None:
    """No value of a column in these files is farther from 0; None where a file does not say."""
    largest = Fraction(0)
    for file in files:
        if not file.rows:
            continue
        if column not in file.ranges:
            return None
        largest = max(largest, *(abs(Fraction(str(v))) for v in file.ranges[column]))
    return largest


@dataclass(frozen=True, slots=True)
class SumHeadroom:
    """Requires that what others have committed to a partition meanwhile leaves a sum within its type.

    Args:
        seq: the channel's head for which the sums were checked.
        headroom: by so much a sum may still grow; None where no later delta may have been committed.
    """

    channel: str
    seq: int
    partition: str
    column: str
    headroom: Fraction | None


def sum_overflow_error(
    error_label: str, column: str, type_: DataType, key: Mapping[str, object], value: Fraction
) -> SumOverflow:
    """The error for a sum that would leave its column's type."""
    key_text = ", ".join(f"{c} = {v!r}" for c, v in key.items())
    return SumOverflow(
        f"{error_label}: the sum of column {column!r} would be {_format_number(value)} "
        f"for key {key_text}, which is no {type_}",
        found=_format_number(value),
        expected=f"no more than {_format_number(greatest_number(type_) or Fraction(0))}, in all "
        "and in what came after any version",
        next=WIDEN_TYPE_ADVICE,
        column=column,
        key=dict(key),
        value=_format_number(value),
    )


def _format_number(value: Fraction) -> str:
    """A number as people write it."""
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
"""How Spark, and our own functions in its workers, say that a sum is no value of its type."""


@contextmanager
def translate_overflow_errors(read: Read) -> Iterator[None]:
    """A block in which the rows of a read are computed: a sum that overflows is told as that of a channel.

    Raises:
        SumOverflow: the channel was written to before such sums were refused.
    """
    try:
        yield
    except NovaError:
        raise
    except Exception as error:
        blocks = [s for s in source_blocks(read) if isinstance(s, Block)]
        if not blocks or not any(mark in str(error) for mark in _OVERFLOW_MARKERS):
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
