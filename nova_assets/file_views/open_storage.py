"""Opens the configured storage of views."""

from __future__ import annotations

from pathlib import Path

from nova_assets.errors import StorageFailed
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
    """
    try:
        on_disk = SqliteStorage(folder, catalog_id, memory_bytes)
        return MemoryStorage(on_disk) if kind == "memory" else on_disk
    except StorageFailed as error:
        log.warning("views are kept in memory, and lost when this process ends: %s", error)
        return MemoryStorage()
