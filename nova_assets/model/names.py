"""Names of channels, tasks, workflowettes and bindings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from nova_assets.errors import DefinitionError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}\Z")


def check_name(name: object, described_as: str) -> str:
    """The name, if Python, Dagster, SQL and file systems all accept it.

    Raises:
        DefinitionError: the name is invalid.
    """
    if not isinstance(name, str) or not _NAME.match(name):
        raise DefinitionError(
            f"{described_as} has an unusable name",
            found=repr(name),
            expected="letters, digits and _, not starting with a digit, at most 128",
            next="rename it",
        )
    return name


def find_duplicates(names: Iterable[str]) -> list[str]:
    """Names that occur more than once, sorted."""
    return sorted(name for name, n in Counter(names).items() if n > 1)
