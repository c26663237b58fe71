"""The walks of ``docs/architecture.md`` name files and functions that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text()
STEPS = re.findall(r"`([\w/]+\.py)` · `([\w.]+)`", PAGE)


def test_the_page_has_walks() -> None:
    assert len(STEPS) > 25


@pytest.mark.parametrize(("file", "name"), sorted(set(STEPS)))
def test_each_step_names_a_function_that_exists(file: str, name: str) -> None:
    scope: ast.AST = ast.parse((ROOT / "nova_assets" / file).read_text())
    for part in name.split("."):
        defined = {
            n.name: n
            for n in ast.iter_child_nodes(scope)
            if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        }
        assert part in defined, f"{file} has no {name}"
        scope = defined[part]


def test_every_room_is_on_the_page() -> None:
    rooms = {f.parent.name for f in (ROOT / "nova_assets").glob("*/__init__.py")}
    table = PAGE.partition("## Five walks")[0]
    assert rooms - {room for room in rooms if f"`{room}`" in table} == set()
