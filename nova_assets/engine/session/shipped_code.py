"""Code of the user for Spark's workers: functions, and packages as zip files (``SparkContext.addPyFile``)."""

from __future__ import annotations

import atexit
import hashlib
import shutil
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from nova_assets.engine.session.spark_config import is_connect_session, own_import_paths
from nova_assets.masking import get_logger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = get_logger("nova_assets.engine")

MAX_PACKAGE_BYTES = 64 * 2**20
"""Size up to which a package is shipped with its data files. Of a larger one, only the Python files are shipped."""

_COMPILED = (".so", ".pyd", ".dylib")
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)

_shipped: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()
_lock = threading.Lock()


def ship_modules(spark: SparkSession, names: Iterable[str]) -> None:
    """Make packages importable for the workers of a classic session. Each package is shipped once.

    Functions that are created afterwards find the packages. A package with compiled modules cannot be imported from a
    zip file. It is left out with a warning, so the workers need their own installation.

    Packages are not pickled by value: that includes neither the modules that functions import when they are called, nor
    the identity of classes, which ``isinstance`` needs.

    Args:
        names: top-level modules and packages that this process has imported, or can import.
    """
    context = _context_of(spark)
    with _lock:
        shipped = _shipped.setdefault(context, set())
        for name in names:
            if name in shipped:
                continue
            shipped.add(name)
            archive = zip_of_module(name)
            if archive is not None:
                import_path = list(sys.path)
                context.addPyFile(str(archive))
                sys.path[:] = import_path  # this process goes on with the package itself


def are_workers_prepared(spark: Any) -> bool:
    """Whether modules were shipped to the workers of a session: this package has created it, on a cluster."""
    return _context_of(spark) in _shipped


def _context_of(spark: Any) -> Any:
    """The Spark context of a classic session; None for Spark Connect."""
    return None if is_connect_session(spark) else spark.sparkContext


def own_loaded_modules() -> list[str]:
    """Top-level modules that this process has imported from outside of its Python installation: the user's code."""
    roots = [Path(p) for p in own_import_paths() if not {"site-packages", "dist-packages"} & set(Path(p).parts)]
    names = {name.partition(".")[0] for name, module in list(sys.modules.items()) if module is not None}
    return sorted(
        name
        for name in names - {"__main__", "__mp_main__"} - sys.stdlib_module_names
        if any(path.parent in roots for path in _locations(name))
    )


def _locations(name: str) -> list[Path]:
    """Folders of a package, or the file of a module, that this process has imported."""
    module = sys.modules.get(name)
    folders = [Path(p).resolve() for p in getattr(module, "__path__", None) or ()]
    file = getattr(module, "__file__", None)
    return folders or ([Path(file).resolve()] if file else [])


@lru_cache
def zip_of_module(name: str) -> Path | None:
    """Zip file with a package or a module; None if it has compiled modules, or no files.

    The name of the file has a digest of its content, since workers keep files by name.
    """
    __import__(name)
    files = dict(_files_of(name))
    compiled = [path for path in files.values() if path.suffix in _COMPILED]
    if compiled:
        log.warning(
            "the package %s has compiled modules (%s) and is not shipped to Spark's workers; install it there, or add "
            "it to spark.archives",
            name,
            compiled[0].name,
        )
        return None
    if sum(path.stat().st_size for path in files.values()) > MAX_PACKAGE_BYTES:
        files = {member: path for member, path in files.items() if path.suffix == ".py"}
        log.warning("of the package %s, only the Python files are shipped to Spark's workers: it is large", name)
    if not files:
        return None
    digest = hashlib.sha256()
    target = Path(_archive_folder(), "new.zip")
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, path in sorted(files.items()):
            content = path.read_bytes()
            digest.update(f"{member}\0{len(content)}\0".encode() + content)
            archive.writestr(zipfile.ZipInfo(member, _ZIP_TIME), content, zipfile.ZIP_DEFLATED)
    return target.rename(target.with_name(f"{name}-{digest.hexdigest()[:16]}.zip"))


def _files_of(name: str) -> Iterator[tuple[str, Path]]:
    """Name in the zip file, and path, of each file of a package."""
    for location in _locations(name):
        if location.is_file():
            yield location.name, location
        for path in sorted(location.rglob("*")) if location.is_dir() else ():
            parts = path.relative_to(location).parts
            if path.is_file() and not any(p == "__pycache__" or p.startswith(".") for p in parts):
                yield "/".join((name, *parts)), path


@lru_cache
def _archive_folder() -> str:
    folder = tempfile.mkdtemp(prefix="nova-shipped-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


# functions


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
