"""The name that a misspelt one probably means. Every error about an unknown name asks here."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_MAX_LISTED = 8
"""Known names that an error lists."""


def similar_names(name: str, valid_names: Iterable[str], limit: int = 3) -> list[str]:
    """The known names that are spelt much like a name, nearest first; case does not count."""
    by_lower: dict[str, str] = {}
    for one in valid_names:
        by_lower.setdefault(one.lower(), one)
    return [by_lower[near] for near in get_close_matches(name.lower(), list(by_lower), limit)]


def did_you_mean(name: object, valid_names: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: ``; did you mean 'orders'?``, or nothing."""
    near = similar_names(str(name), valid_names, 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def list_valid_names(valid_names: Iterable[str], text_if_empty: str) -> str:
    """The known names, for an error: the first of many, and how many there are.

    Args:
        text_if_empty: what is said where there are none.
    """
    names = list(valid_names)
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return ", ".join(names[:_MAX_LISTED]) + more if names else text_if_empty
