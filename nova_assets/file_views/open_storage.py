"""Where views are kept, as it is asked for."""

from __future__ import annotations

from pathlib import Path

from nova_assets.errors import StorageFailed
from nova_assets.file_views.sqlite_storage import SqliteStorage
from nova_assets.file_views.storage import MemoryStorage, Storage
from nova_assets.masking import get_logger

log = get_logger("nova_assets.views")


def open_storage(kind: str, folder: Path, cache_bytes: int, catalog_id: str) -> Storage:
    """A storage that outlasts its process, if the folder can be used; otherwise one in memory, so that a service starts
    whatever is wrong with its disk.

    Args:
        kind: ``disk`` or ``cache_bytes``; what is kept in memory is saved to the folder when the process ends.
        folder: of the storage alone.
        cache_bytes: bytes of what is on disk that are kept in memory.
        catalog_id: the identity of the catalog that the views are of.
    """
    try:
        return (
            SqliteStorage(folder, catalog_id, cache_bytes)
            if kind == "disk"
            else MemoryStorage(SqliteStorage(folder, catalog_id))
        )
    except StorageFailed as error:
        log.warning("views are kept in memory, and forgotten with this process: %s", error)
        return MemoryStorage()
