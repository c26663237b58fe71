"""Opens the configured storage of views."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from nova_assets.errors import SettingsError, StorageFailed
from nova_assets.file_views.spillable_storage import SpillableStorage
from nova_assets.file_views.sqlite_storage import SqliteStorage
from nova_assets.file_views.storage import MemoryStorage, Storage
from nova_assets.masking import get_logger

log = get_logger("nova_assets.views")


def open_storage(kind: str, folder: Path, memory_bytes: int, catalog_id: str) -> Storage:
    """Open a storage that outlives its process.

    If the folder cannot be used, views are kept in memory only, so that a service starts even with a broken disk.

    Args:
        kind: value of the setting ``views``. Views in memory are saved to the folder from time to time, and when the
            process ends.
        folder: folder for the storage alone.
        memory_bytes: limit of the memory for views; no limit if they are kept in memory.
        catalog_id: identity of the catalog of the views.

    Raises:
        SettingsError: a package that the storage needs is not installed.
    """
    try:
        return _OPENERS[kind](folder, catalog_id, memory_bytes)
    except StorageFailed as error:
        log.warning("views are kept in memory, and lost when this process ends: %s", error)
        return MemoryStorage()


def _open_memory(folder: Path, catalog_id: str, memory_bytes: int) -> Storage:
    return MemoryStorage(SqliteStorage(folder, catalog_id))


def _open_rocksdb(folder: Path, catalog_id: str, memory_bytes: int) -> Storage:
    try:
        from nova_assets.file_views.rocksdb_storage import RocksDbStorage
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"a package that views in RocksDB need is not installed: {error.name}",
            found='views = "rocksdb"',
            expected="the extra 'views' of nova-assets, or another storage: disk, spillable or memory",
            next="pip install 'nova-assets[views]'",
        ) from error
    return RocksDbStorage(folder, catalog_id, memory_bytes)


_OPENERS: Mapping[str, Callable[[Path, str, int], Storage]] = {
    "disk": SqliteStorage,
    "memory": _open_memory,
    "spillable": SpillableStorage,
    "rocksdb": _open_rocksdb,
}
