"""Parameters of a user's function: one per edge, and optionally ``ctx``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any


def wants_context(function: Callable[..., Any]) -> bool:
    """Whether the function has a ``ctx`` parameter for a ``nova.Context``."""
    return "ctx" in inspect.signature(function).parameters


def input_parameter_problems(function: Callable[..., Any], input_names: Iterable[str]) -> list[str]:
    """Mismatches between the function's parameters and the names of its edges."""
    parameters = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return []
    accepted = {n for n, p in parameters.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    required = {n for n in accepted if parameters[n].default is inspect.Parameter.empty} - {"ctx"}
    inputs = set(input_names)
    found = [
        f"the function has no parameter {n!r} for the input of that name; name it so, or use as_="
        for n in sorted(inputs - accepted)
    ]
    return found + [
        f"the function's parameter {n!r} has no input; consume a port of that name, or use as_="
        for n in sorted(required - inputs)
    ]
