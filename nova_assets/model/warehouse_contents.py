"""Warehouses, as they are looked over: what lies there, and what a catalog knows of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class WarehouseEntry:
    """A file or folder below ``blocks/``.

    Args:
        path: relative to the warehouse's root, with forward slashes.
        bytes: 0 for a folder.
        modified_at: when it was last changed.
    """

    path: str
    bytes: int
    modified_at: datetime
    is_folder: bool = False


@dataclass(frozen=True, slots=True)
class UnfinishedUpload:
    """An upload in parts that is not finished.

    Args:
        path: relative to the warehouse's root.
        id: by which the store knows it.
        started_at: when it began.
    """

    path: str
    id: str
    started_at: datetime


@dataclass(frozen=True, slots=True)
class CatalogPaths:
    """What a catalog knows of its warehouse.

    Args:
        files: paths that a block lists, or that wait to be deleted with one, or that something staged lists.
        folders: of blocks that are there; an empty base has no file in its own.
        staged: folders in which an execution may be writing.
    """

    files: frozenset[str]
    folders: frozenset[str]
    staged: frozenset[str]
