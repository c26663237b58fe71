"""Files of a warehouse, as listed on storage and as recorded in a catalog."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from nova_assets.model.block import DataFile


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


class WarehouseFiles(Protocol):
    """Files of the warehouse. Each method raises WarehouseUnavailable."""

    @property
    def address(self) -> str: ...

    def verified_addresses(self, files: Iterable[DataFile]) -> list[str]:
        """Full addresses of listed files, whose existence is checked. Raises FileMissing."""

    def file_size(self, name: str) -> int | None:
        """Bytes of a listed file; None if the file is missing."""

    def find_file_defect(self, file: DataFile, *, thorough: bool = False) -> str | None:
        """Defect of a listed file, as a text that follows its path in a message; None for an intact file. If
        ``thorough``, all bytes are read, and their hash is compared.
        """

    def delete_staged_folder(self, name: str) -> list[str]:
        """Remove a staged folder, only under the warehouse root. Returns the removed files, relative to the root."""

    def delete_files(self, paths: Iterable[str]) -> None:
        """Remove files of collected blocks and the folders that become empty. Missing files are ignored."""

    def move_to_orphans(self, name: str) -> None:
        """Move an unreferenced file to ``orphans/`` in the warehouse."""

    def list_block_entries(self) -> list[WarehouseEntry]:
        """All files under ``blocks/``. Only repair uses this listing; repair is not a read (R16)."""

    def unfinished_uploads(self) -> list[UnfinishedUpload]:
        """Unfinished multipart uploads under ``blocks/``. Raises NotSupported if the storage cannot list them."""

    def abort_unfinished_upload(self, upload: UnfinishedUpload) -> None:
        """Abort an unfinished multipart upload, which frees its storage."""

    def write_catalog_marker(self, catalog_id: str, warehouse_id: str) -> None:
        """Write the marker of a catalog: the catalog writes here, and the warehouse has this identity."""

    def read_catalog_marker(self, catalog_id: str) -> str | None:
        """Identity in the marker of a catalog; None without a marker, empty for a marker of an older version."""

    def catalogs_with_marker(self) -> frozenset[str]:
        """Identities in the markers of all catalogs of the warehouse."""

    def check_writable(self) -> str:
        """One-line description of the warehouse."""


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
