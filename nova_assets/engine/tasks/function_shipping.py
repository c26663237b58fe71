"""Shipping of user functions to Spark's Python workers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from nova_assets.engine.session.shipped_code import are_workers_prepared, own_loaded_modules, ship_modules

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def ship_function(function: Callable[..., Any], spark: SparkSession) -> None:
    """Make a user's function, and the functions that it passes to Spark, work in Spark's Python workers.

    A worker is a separate Python process: it receives functions by name and imports their module. Two kinds of workers
    could not do that, and get the module of the function by value:

    - Dagster loads a file of definitions (``dagster dev -f pipeline.py``) as a module that is not on the import path.
    - Workers of a cluster do not have the user's code. The module of a task also imports packages that they lack, such
      as Dagster. Other modules of the user are shipped, and imported there.

    Args:
        function: function, or a callable with an attribute ``parts`` that lists the functions it consists of.
    """
    has_prepared_workers = are_workers_prepared(spark)
    if has_prepared_workers:
        ship_modules(spark, own_loaded_modules())
    _pickle_modules_by_value(function, always=has_prepared_workers)


def _pickle_modules_by_value(function: Callable[..., Any], *, always: bool) -> None:
    """Pickle the module of a function by value, always or if workers could not import the module."""
    from pyspark import cloudpickle

    for part in getattr(function, "parts", ()):
        _pickle_modules_by_value(part, always=always)
    module = sys.modules.get(getattr(function, "__module__", ""))
    if module is None or module.__name__ == "__main__":
        return
    if always or not _is_importable_by_workers(module.__name__):
        register: Callable[[ModuleType], None] = cloudpickle.register_pickle_by_value
        register(module)  # idempotent


def _is_importable_by_workers(module_name: str) -> bool:
    """Whether a fresh Python process would find the module. Whether this process has imported it does not matter."""
    top = module_name.partition(".")[0]
    finders = (f for f in sys.meta_path if hasattr(f, "find_spec"))
    return any(f.find_spec(top, None) is not None for f in finders)
