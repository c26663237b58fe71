"""Size of a statement after each relation is written in place of its name, as Spark plans it."""

from __future__ import annotations

import re
from collections.abc import Mapping

RELATION_NAME = re.compile(r"\bnova_\w+\b(?!\.)")
"""Name of a relation, and not of the source of a column."""

MAX_EXPANDED_RELATIONS = 5_000
"""Relations of a statement. Spark plans a few thousand in seconds. The number can double with each outer join or
aggregate over another one, so that planning takes longer than computing everything.
"""


class StatementTooLarge(Exception):
    """A statement has more relations than Spark can plan in a short time."""


def expanded_size(select: str, relations: Mapping[str, str]) -> int:
    """Number of relations in a statement, counted as often as they are read.

    Args:
        relations: relation -> its SELECT.
    """
    sizes: dict[str, int] = {}

    def size_of(text: str) -> int:
        total = 0
        for name in RELATION_NAME.findall(text):
            if name in relations:
                if name not in sizes:
                    sizes[name] = 1 + size_of(relations[name])
                total += sizes[name]
        return total

    return size_of(select)
