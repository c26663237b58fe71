"""How a user's function reaches Spark's Python workers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


def pickle_module_by_value(function: Callable[..., Any]) -> None:
    """Send what a function's module defines along with it, where a worker could not import that module.

    A worker is a Python of its own: it gets functions by their names and imports their module. Dagster loads a file of
    definitions (``dagster dev -f pipeline.py``) as a module that is on nobody's path, so functions of that file that
    run in workers (user-defined functions, ``mapInArrow``) would be found by no worker.

    Args:
        function: or something that is called as one, and says of which others it is made: ``parts``.
    """
    from pyspark import cloudpickle

    for part in getattr(function, "parts", ()):
        pickle_module_by_value(part)
    module = sys.modules.get(getattr(function, "__module__", ""))
    if module is not None and module.__name__ != "__main__" and not _is_importable_by_workers(module.__name__):
        register: Callable[[ModuleType], None] = cloudpickle.register_pickle_by_value
        register(module)  # again is no matter


def _is_importable_by_workers(module_name: str) -> bool:
    """Whether a Python that has not imported it yet would find it; what this one has imported says nothing."""
    top = module_name.partition(".")[0]
    finders = (f for f in sys.meta_path if hasattr(f, "find_spec"))
    return any(f.find_spec(top, None) is not None for f in finders)
