"""Shipping of user functions to Spark's Python workers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


def pickle_module_by_value(function: Callable[..., Any]) -> None:
    """Pickle the module of a function by value, if workers could not import the module.

    A worker is a separate Python process: it receives functions by name and imports their module. Dagster loads a file
    of definitions (``dagster dev -f pipeline.py``) as a module that is not on the import path. Workers therefore would
    not find functions of that file (user-defined functions, ``mapInArrow``).

    Args:
        function: function, or a callable with an attribute ``parts`` that lists the functions it consists of.
    """
    from pyspark import cloudpickle

    for part in getattr(function, "parts", ()):
        pickle_module_by_value(part)
    module = sys.modules.get(getattr(function, "__module__", ""))
    if module is not None and module.__name__ != "__main__" and not _is_importable_by_workers(module.__name__):
        register: Callable[[ModuleType], None] = cloudpickle.register_pickle_by_value
        register(module)  # idempotent


def _is_importable_by_workers(module_name: str) -> bool:
    """Whether a fresh Python process would find the module. Whether this process has imported it does not matter."""
    top = module_name.partition(".")[0]
    finders = (f for f in sys.meta_path if hasattr(f, "find_spec"))
    return any(f.find_spec(top, None) is not None for f in finders)
