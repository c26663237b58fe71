"""What an expression comes to for all that some columns are together, looked up by that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from nova_assets.model.schema import DataType
from nova_assets.sql.evaluation.casting import Cast
from nova_assets.sql.evaluation.operand import Evaluable, Undecided
from nova_assets.sql.evaluation.values import UNKNOWN, Key, Value


class ExpressionIndex:
    """What an expression comes to.

    Args:
        expression: the expression.
        keys: its columns.
        rows: what they are together.
    """

    def __init__(self, expression: Evaluable, keys: Sequence[Key], rows: Iterable[tuple[Value, ...]]) -> None:
        self.expression = expression  # which is known by who it is: no other takes its place
        self.rows_by_value: dict[Value, list[tuple[Value, ...]]] = {}
        for row in rows:
            self.rows_by_value.setdefault(expression.value(dict(zip(keys, row, strict=True))), []).append(row)
        self._rows_by_type: dict[DataType, Mapping[Value, Sequence[tuple[Value, ...]]] | None] = {}

    def rows_by_comparable(
        self, other_type: DataType, to_comparable: Cast
    ) -> Mapping[Value, Sequence[tuple[Value, ...]]] | None:
        """What it comes to, as it is compared with values of a type -> what the columns are then. None where one of
        its values is unknown.

        Args:
            to_comparable: makes its values comparable with those.
        """
        if other_type not in self._rows_by_type:
            self._rows_by_type[other_type] = self._group_by_comparable(to_comparable)
        return self._rows_by_type[other_type]

    def _group_by_comparable(self, to_comparable: Cast) -> Mapping[Value, Sequence[tuple[Value, ...]]] | None:
        found: dict[Value, list[tuple[Value, ...]]] = {}
        for value, rows in self.rows_by_value.items():
            if value is None:  # equal to nothing
                continue
            comparable = comparable_or_none(value, to_comparable)
            if comparable is None:
                return None
            found.setdefault(comparable, []).extend(rows)
        return found


def comparable_or_none(value: Value, to_comparable: Cast) -> Value | None:
    """A value that is not null as it is compared; None where it is unknown or undecided."""
    if value is UNKNOWN:
        return None
    try:
        return to_comparable(value)
    except Undecided:
        return None
