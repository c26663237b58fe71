"""Forwarding of an object's methods to its parts."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

Part = TypeVar("Part")
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def forwarded(
    part_attribute: str, method: Callable[Concatenate[Part, Arguments], Result]
) -> Callable[Concatenate[Any, Arguments], Result]:
    """Method that calls the method of the same name of one of the object's parts.

    Args:
        part_attribute: attribute of the object that holds the part.
        method: the part's method, whose signature and docstring the forwarding method gets.
    """

    @functools.wraps(method)
    def call(self: Any, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        result: Result = getattr(getattr(self, part_attribute), method.__name__)(*args, **kwargs)
        return result

    return call
