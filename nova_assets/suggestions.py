"""The name that a misspelt one probably means. Every error about an unknown name asks here."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_SHOWN = 8
"""Known names that an error lists."""


def similar(name: str, known: Iterable[str], most: int = 3) -> list[str]:
    """The known names that are spelt much like a name, nearest first; case does not count."""
    by_lower: dict[str, str] = {}
    for one in known:
        by_lower.setdefault(one.lower(), one)
    return [by_lower[near] for near in get_close_matches(name.lower(), list(by_lower), most)]


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: ``; did you mean 'orders'?``, or nothing."""
    near = similar(str(name), known, 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def known_names(known: Iterable[str], none: str) -> str:
    """The known names, for an error: the first of many, and how many there are.

    Args:
        none: what is said where there are none.
    """
    names = list(known)
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more if names else none
