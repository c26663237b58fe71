"""Where views are kept, as it is asked for."""

from __future__ import annotations

from pathlib import Path

from nova_assets.errors import StorageFailed
from nova_assets.file_views.sqlite_storage import OnDisk
from nova_assets.file_views.storage import InMemory, Storage
from nova_assets.masking import get_logger

log = get_logger("nova_assets.views")


def open_storage(kind: str, folder: Path, memory: int, catalog: str) -> Storage:
    """A storage that outlasts its process, if the folder can be used; otherwise one in memory, so that a service starts
    whatever is wrong with its disk.

    Args:
        kind: ``disk`` or ``memory``; what is kept in memory is saved to the folder when the process ends.
        folder: of the storage alone.
        memory: bytes of what is on disk that are kept in memory.
        catalog: the identity of the catalog that the views are of.
    """
    try:
        return OnDisk(folder, catalog, memory) if kind == "disk" else InMemory(OnDisk(folder, catalog))
    except StorageFailed as error:
        log.warning("views are kept in memory, and forgotten with this process: %s", error)
        return InMemory()
