"""Import paths in YAML: ``package.module:attribute``, or ``package.module``."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

from dagster.components.core.context import ComponentDeclLoadContext
from dagster.components.resolved.context import ResolutionContext

from nova_assets.errors import DefinitionError


def absolute_import_path(context: ResolutionContext, path: str) -> str:
    """Complete an import path that begins with a dot: it starts in the folder of the YAML file."""
    if not path.startswith("."):
        return path
    location = ComponentDeclLoadContext.from_resolution_context(context)
    return f"{location.defs_relative_module_name(location.path)}{path}"


def import_module(name: str) -> ModuleType:
    """Import a module. Errors that the module itself raises pass through.

    Raises:
        DefinitionError: there is no such module.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and not f"{name}.".startswith(f"{error.name}."):
            raise  # the module exists, but one of its own imports does not
        raise DefinitionError(
            f"there is no module {name}",
            found=str(error),
            expected="a module of the installed project, or .module for a file beside the YAML",
        ) from error


def import_attribute(path: str) -> Any:
    """The object at ``package.module:attribute``.

    Raises:
        DefinitionError: there is no such module or attribute.
    """
    module_name, _, attribute = path.partition(":")
    if not module_name or not attribute:
        raise DefinitionError("this is no import path", found=path, expected="package.module:attribute")
    module = import_module(module_name)
    if not hasattr(module, attribute):
        raise DefinitionError(f"the module {module_name} has no {attribute}", found=path)
    return getattr(module, attribute)
