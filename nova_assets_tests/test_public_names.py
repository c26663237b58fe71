"""Public names: type checkers see the same names, from the same modules, as Python resolves on first use."""

from __future__ import annotations

import ast
from pathlib import Path

import nova_assets


def test_type_checkers_see_every_public_name() -> None:
    module = ast.parse(Path(nova_assets.__file__).read_text(encoding="utf-8"))
    assert _names_for_type_checkers(module) == _names_resolved_on_first_use(module)


def _names_for_type_checkers(module: ast.Module) -> set[tuple[str, str]]:
    """(module, name) of each import under ``if TYPE_CHECKING``, except the errors, which are imported by a star."""
    [block] = [s for s in module.body if isinstance(s, ast.If) and ast.unparse(s.test) == "TYPE_CHECKING"]
    imports = [s for s in block.body if isinstance(s, ast.ImportFrom) and s.module != "nova_assets.errors"]
    assert len(imports) == len(block.body) - 1
    for imported in imports:
        assert all(a.asname == a.name for a in imported.names), "only `import name as name` re-exports the name"
    return {(str(s.module), a.name) for s in imports for a in s.names}


def _names_resolved_on_first_use(module: ast.Module) -> set[tuple[str, str]]:
    """(module, name) of each entry of ``_HOMES``, and of each module in ``_MODULES``."""
    assigned = {ast.unparse(s.targets[0]): s.value for s in module.body if isinstance(s, ast.Assign)}
    homes, modules = (ast.literal_eval(assigned[name]) for name in ("_HOMES", "_MODULES"))
    names = {(f"nova_assets.{home}", name) for home, names in homes.items() for name in names}
    return names | {(f"nova_assets.{home}".removesuffix(f".{name}"), name) for name, home in modules.items()}
