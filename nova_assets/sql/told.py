"""What an expression comes to for all that some columns are together, looked up by that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import tzinfo

from nova_assets.sql.calculator import Computed
from nova_assets.sql.values import UNKNOWN, Key, Value, alike

Nothing = type(None) | type(UNKNOWN)


class Told:
    """What an expression comes to.

    Args:
        of: the expression.
        keys: its columns.
        rows: what they are together.
    """

    def __init__(self, of: Computed, keys: Sequence[Key], rows: Iterable[tuple[Value, ...]]) -> None:
        self.of = of  # which is known by who it is: no other takes its place
        self.values: dict[Value, list[tuple[Value, ...]]] = {}
        for row in rows:
            self.values.setdefault(of.of(dict(zip(keys, row, strict=True))), []).append(row)
        self._beside: dict[type, Mapping[Value, Sequence[tuple[Value, ...]]] | None] = {}

    def beside(self, other: Value, zone: tzinfo) -> Mapping[Value, Sequence[tuple[Value, ...]]] | None:
        """What it comes to, made like something that it is compared with -> what the columns are then. None where it is
        the other that is to be made like it."""
        kind = type(other)
        if kind not in self._beside:
            self._beside[kind] = self._like(other, zone)
        return self._beside[kind]

    def _like(self, other: Value, zone: tzinfo) -> Mapping[Value, Sequence[tuple[Value, ...]]] | None:
        found: dict[Value, list[tuple[Value, ...]]] = {}
        for value, rows in self.values.items():
            if value is None:  # equal to nothing
                continue
            made = like(value, other, zone)
            if made is None:
                return None
            found.setdefault(made, []).extend(rows)
        return found


def like(value: Value, other: Value, zone: tzinfo) -> Value | None:
    """A value made like another, as it is to be compared with that; None where it is the other that is to be made like
    it, or where they cannot be compared."""
    try:
        made, still = alike(value, other, zone)
    except (ValueError, TypeError):
        return None
    return made if type(made) is type(other) and still is other else None
