"""What an expression comes to for all that some columns are together, looked up by that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from nova_assets.model.schema import DataType
from nova_assets.sql.evaluation.casting import Cast
from nova_assets.sql.evaluation.operand import Evaluable, Undecided
from nova_assets.sql.evaluation.values import UNKNOWN, Key, Value


class Told:
    """What an expression comes to.

    Args:
        of: the expression.
        keys: its columns.
        rows: what they are together.
    """

    def __init__(self, of: Evaluable, keys: Sequence[Key], rows: Iterable[tuple[Value, ...]]) -> None:
        self.of = of  # which is known by who it is: no other takes its place
        self.values: dict[Value, list[tuple[Value, ...]]] = {}
        for row in rows:
            self.values.setdefault(of.value(dict(zip(keys, row, strict=True))), []).append(row)
        self._compared: dict[DataType, Mapping[Value, Sequence[tuple[Value, ...]]] | None] = {}

    def compared_with(self, other: DataType, to_both: Cast) -> Mapping[Value, Sequence[tuple[Value, ...]]] | None:
        """What it comes to, as it is compared with values of a type -> what the columns are then. None where one of
        its values is unknown.

        Args:
            to_both: makes its values comparable with those.
        """
        if other not in self._compared:
            self._compared[other] = self._looked_up_by(to_both)
        return self._compared[other]

    def _looked_up_by(self, to_both: Cast) -> Mapping[Value, Sequence[tuple[Value, ...]]] | None:
        found: dict[Value, list[tuple[Value, ...]]] = {}
        for value, rows in self.values.items():
            if value is None:  # equal to nothing
                continue
            comparable = made_comparable(value, to_both)
            if comparable is None:
                return None
            found.setdefault(comparable, []).extend(rows)
        return found


def made_comparable(value: Value, to_both: Cast) -> Value | None:
    """A value that is not null as it is compared; None where it is unknown or undecided."""
    if value is UNKNOWN:
        return None
    try:
        return to_both(value)
    except Undecided:
        return None
