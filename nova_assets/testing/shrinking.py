"""Search for the smallest input that still fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Lists = list[list[Any]]

MAX_TRIES = 60


def shrink(lists: Sequence[Sequence[Any]], fails: Callable[[Lists], bool], max_tries: int = MAX_TRIES) -> Lists:
    """Smallest lists of rows for which ``fails`` is still true: no single row can be removed.

    First whole lists are emptied. Then single rows are removed, until none can be, or after ``max_tries`` tries.

    Args:
        lists: an input that fails.
        fails: whether an input fails. An input for which it raises counts as not failing.
        max_tries: limit of calls of ``fails``.
    """
    smallest = [list(rows) for rows in lists]
    left = max_tries

    def still_fails(candidate: Lists) -> bool:
        nonlocal left
        left -= 1
        try:
            return fails(candidate)
        except Exception:  # the smaller input fails in another way, so it does not reproduce the failure
            return False

    for n in [n for n, rows in enumerate(smallest) if len(rows) > 1]:
        candidate = [*smallest[:n], [], *smallest[n + 1 :]]
        if left > 0 and still_fails(candidate):
            smallest = candidate
    is_smaller = True
    while is_smaller and left > 0:
        is_smaller = False
        for n, rows in enumerate(smallest):
            for row in range(len(rows) - 1, -1, -1):
                candidate = [list(r) for r in smallest]
                del candidate[n][row]
                if left > 0 and still_fails(candidate):
                    smallest, is_smaller = candidate, True
    return smallest
