"""Suggestions for misspelt names, used by every error about an unknown name."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_MAX_LISTED = 8
"""Maximum number of valid names that an error lists."""


def similar_names(name: str, valid_names: Iterable[str], limit: int = 3) -> list[str]:
    """Valid names with a similar spelling, nearest first, ignoring case."""
    by_lower: dict[str, str] = {}
    for one in valid_names:
        by_lower.setdefault(one.lower(), one)
    return [by_lower[near] for near in get_close_matches(name.lower(), list(by_lower), limit)]


def did_you_mean(name: object, valid_names: Iterable[str]) -> str:
    """End of a sentence about an unknown name: ``; did you mean 'orders'?``, or an empty text."""
    near = similar_names(str(name), valid_names, 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def format_valid_names(valid_names: Iterable[str], text_if_empty: str) -> str:
    """Valid names for an error: the first ones, and the number of the rest.

    Args:
        text_if_empty: text for an empty list.
    """
    names = list(valid_names)
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return ", ".join(names[:_MAX_LISTED]) + more if names else text_if_empty
