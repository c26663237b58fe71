"""Checks the structure of the code: no cycle of imports, no file over 400 lines, no function over 60.

Migrations are left out: each describes its tables at once.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import grimp

ROOT = Path(__file__).parent.parent
PACKAGES = ("nova_assets", "examples", "nova_assets_tests", "benchmarks", "tools")
MAX_FILE_LINES, MAX_FUNCTION_LINES = 400, 60

MAX_LINES_OF_LONG_FILES: dict[str, int] = {}
"""Files that are too long today, and may not grow. Split one by its concepts and take it off this list."""

MAX_LINES_OF_LONG_FUNCTIONS = {}
"""Likewise functions."""


def main() -> int:
    """Print each fault, and return 1 if there is any."""
    faults = [*long_files(), *long_functions(), *import_cycles()]
    for fault in faults:
        print(fault)
    return 1 if faults else 0


def long_files() -> Iterator[str]:
    for file in source_files():
        name, lines = str(file.relative_to(ROOT)), len(file.read_text().splitlines())
        if lines > MAX_LINES_OF_LONG_FILES.get(name, MAX_FILE_LINES):
            yield f"{name} has {lines} lines: at most {MAX_FILE_LINES}; it probably holds two things"


def long_functions() -> Iterator[str]:
    """Functions whose code is too long. Docstrings do not count."""
    for file in source_files():
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                name, lines = f"{file.relative_to(ROOT)}:{node.name}", _code_lines(node)
                if lines > MAX_LINES_OF_LONG_FUNCTIONS.get(name, MAX_FUNCTION_LINES):
                    yield f"{name} has {lines} lines: at most {MAX_FUNCTION_LINES}"


def _code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    first = function.body[0]
    is_documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    docstring_lines = (first.end_lineno or 0) - first.lineno + 1 if is_documented else 0
    return (function.end_lineno or 0) - function.lineno + 1 - docstring_lines


def import_cycles() -> Iterator[str]:
    """Imports that lead back to the module that has them, also if they are only for types."""
    graph = grimp.build_graph("nova_assets", exclude_type_checking_imports=False, cache_dir=None)
    for module in sorted(graph.modules):
        for imported in sorted(graph.find_modules_directly_imported_by(module)):
            if graph.chain_exists(imported, module):
                yield f"{module} imports {imported}, which leads back to it"


def source_files() -> Iterator[Path]:
    for package in PACKAGES:
        yield from (f for f in sorted((ROOT / package).rglob("*.py")) if "migrations" not in f.parts)


if __name__ == "__main__":
    sys.exit(main())
