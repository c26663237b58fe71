"""The smallest input that still shows a fault."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Lists = list[list[Any]]

MAX_TRIES = 60


def shrink(lists: Sequence[Sequence[Any]], fails: Callable[[Lists], bool], max_tries: int = MAX_TRIES) -> Lists:
    """Lists of rows of which none can be left out without ``fails`` becoming false.

    First whole lists are emptied, then rows are left out one by one, until none can be, or after ``max_tries`` tries.

    Args:
        lists: an input that fails.
        fails: whether an input fails. What raises does not.
    """
    smallest = [list(rows) for rows in lists]
    left = max_tries

    def still_fails(candidate: Lists) -> bool:
        nonlocal left
        left -= 1
        try:
            return fails(candidate)
        except Exception:  # another fault, or no fault: the smaller input shows something else
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
