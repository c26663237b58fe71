"""The rows of ``docs/coverage.md``: behaviours of the four systems, each with a test."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TESTS = ROOT / "nova_assets_tests"
PAGE = (ROOT / "docs" / "coverage.md").read_text()


@dataclass(frozen=True)
class Row:
    """A row of the page: number, behaviour, public names and test."""

    chapter: str
    section: str
    number: str
    behaviour: str
    names: tuple[str, ...]
    test: str


def rows() -> Iterator[Row]:
    chapter = section = ""
    for line in PAGE.splitlines():
        if line.startswith("## "):
            chapter, section = line[3:], ""
        elif line.startswith("### "):
            section = line[4:]
        elif line.startswith("| ") and not line.startswith("| no. "):
            number, behaviour, names, test = (cell.strip() for cell in line.strip("|").split(" | "))
            yield Row(chapter, section, number, behaviour, tuple(re.findall(r"`([^`]+)`", names)), test.strip("`"))


ROWS = list(rows())


def name_of_test(node_id: str) -> str:
    """Test of a case, ``file::test``. The test of a state machine of hypothesis is its class."""
    file, test, *_ = node_id.removeprefix(f"{TESTS.name}/").split("::")
    return f"{file}::{test.partition('[')[0]}"


def mark_named_tests(items: Iterable[pytest.Item]) -> None:
    """Mark one case of each test that the page names with ``core``: the first one that is not long, if there is one."""
    named = {row.test for row in ROWS}
    chosen: dict[str, pytest.Item] = {}
    for item in items:
        test = name_of_test(item.nodeid)
        if test in named and _rank(item) < (_rank(chosen[test]) if test in chosen else len(_RANKS)):
            chosen[test] = item
    for item in chosen.values():
        item.add_marker("core")


_RANKS = ("", "long", "exhaustive")


def _rank(item: pytest.Item) -> int:
    return max(_RANKS.index(name) for name in ["", *(m.name for m in item.iter_markers())] if name in _RANKS)
