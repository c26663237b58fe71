"""Temporary environment variables."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def temporary_environment(**values: str | None) -> Iterator[None]:
    """Context in which variables have the given values. None removes a variable."""
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
