"""Index of rows by the value of an expression of their columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from nova_assets.model.schema import DataType
from nova_assets.sql.evaluation.casting import Cast
from nova_assets.sql.evaluation.operand import Evaluable, Undecided
from nova_assets.sql.evaluation.values import UNKNOWN, Key, Value


class ExpressionIndex:
    """Rows of column values, indexed by the value of an expression.

    Args:
        expression: the expression.
        keys: the columns of the rows, in order.
        rows: the rows of values.
    """

    def __init__(self, expression: Evaluable, keys: Sequence[Key], rows: Iterable[tuple[Value, ...]]) -> None:
        self.expression = expression  # keeps the object alive, because callers use its id as a key
        self.rows_by_value: dict[Value, list[tuple[Value, ...]]] = {}
        for row in rows:
            self.rows_by_value.setdefault(expression.value(dict(zip(keys, row, strict=True))), []).append(row)
        self._rows_by_type: dict[DataType, Mapping[Value, Sequence[tuple[Value, ...]]] | None] = {}

    def rows_by_comparable(
        self, other_type: DataType, to_comparable: Cast
    ) -> Mapping[Value, Sequence[tuple[Value, ...]]] | None:
        """Value of the expression, cast for a comparison -> the rows with this value. None if one of the values is
        unknown.

        Args:
            other_type: Spark type of the other side of the comparison.
            to_comparable: casts the expression's values for the comparison.
        """
        if other_type not in self._rows_by_type:
            self._rows_by_type[other_type] = self._group_by_comparable(to_comparable)
        return self._rows_by_type[other_type]

    def _group_by_comparable(self, to_comparable: Cast) -> Mapping[Value, Sequence[tuple[Value, ...]]] | None:
        found: dict[Value, list[tuple[Value, ...]]] = {}
        for value, rows in self.rows_by_value.items():
            if value is None:  # null equals nothing
                continue
            comparable = comparable_or_none(value, to_comparable)
            if comparable is None:
                return None
            found.setdefault(comparable, []).extend(rows)
        return found


def comparable_or_none(value: Value, to_comparable: Cast) -> Value | None:
    """A non-null value, cast for a comparison. None if the value is unknown or the cast is undecided."""
    if value is UNKNOWN:
        return None
    try:
        return to_comparable(value)
    except Undecided:
        return None
