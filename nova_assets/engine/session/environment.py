"""Variables of the environment, for as long as a block lasts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def temporary_environment(**values: str | None) -> Iterator[None]:
    """A block in which variables have these values, or, where it is None, are not there."""
    before = {name: os.environ.get(name) for name in values}
    _set_variables(values)
    try:
        yield
    finally:
        _set_variables(before)


def _set_variables(value_by_variable: dict[str, str | None]) -> None:
    for name, value in value_by_variable.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
