"""Parameters of a user's function: one for each edge, and ``ctx`` where it asks for it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any


def wants_context(function: Callable[..., Any]) -> bool:
    """Whether the function asks for a ``nova.Context``."""
    return "ctx" in inspect.signature(function).parameters


def parameter_problems(function: Callable[..., Any], names: Iterable[str]) -> list[str]:
    """Where the function's parameters and the names of its edges differ."""
    parameters = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return []
    takes = {n for n, p in parameters.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    needs = {n for n in takes if parameters[n].default is inspect.Parameter.empty} - {"ctx"}
    given = set(names)
    found = [
        f"the function has no parameter {n!r} for the input of that name; name it so, or use as_="
        for n in sorted(given - takes)
    ]
    return found + [
        f"the function's parameter {n!r} has no input; consume a port of that name, or use as_="
        for n in sorted(needs - given)
    ]


def twice(names: Iterable[str]) -> list[str]:
    """The names that occur more than once, sorted."""
    seen = list(names)
    return sorted({n for n in seen if seen.count(n) > 1})
