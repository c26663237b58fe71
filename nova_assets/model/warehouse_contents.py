"""Contents of a warehouse, as listed on storage and as recorded in a catalog."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class WarehouseEntry:
    """A file or folder under ``blocks/``.

    Args:
        path: relative to the warehouse root, with forward slashes.
        bytes: 0 for a folder.
        modified_at: time of the last change.
    """

    path: str
    bytes: int
    modified_at: datetime
    is_folder: bool = False


@dataclass(frozen=True, slots=True)
class UnfinishedUpload:
    """An unfinished multipart upload.

    Args:
        path: relative to the warehouse root.
        id: upload id of the object store.
        started_at: start of the upload.
    """

    path: str
    id: str
    started_at: datetime


@dataclass(frozen=True, slots=True)
class CatalogPaths:
    """Paths in the warehouse that a catalog refers to.

    Args:
        files: paths listed by a block, by a staged block, or waiting for deletion.
        folders: folders of existing blocks. The folder of an empty base has no files.
        staged: folders to which an execution may be writing.
    """

    files: frozenset[str]
    folders: frozenset[str]
    staged: frozenset[str]
