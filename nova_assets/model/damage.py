"""Damage: inconsistencies between the catalog, the warehouse and Dagster, with their consequences and repairs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol

from nova_assets.model.block import DataFile

DamageKind = Literal["staged", "lapsed", "unpublished", "event", "file", "orphan", "upload", "firing"]
"""Kinds of damage.

Leftover staged blocks; executions with an expired lease; commits that Dagster does not know; Dagster events without
commits; missing or changed files; unreferenced files; unfinished uploads; firings without a run.
"""

Cure = Literal["sweep", "publish", "rebuild", "give up", "set aside", "abort"]
"""Kinds of repair.

Sweep staged blocks; publish commits to Dagster; wipe the events of a channel in Dagster and publish them again; mark
blocks as collected; move files away; abort uploads.
"""


@dataclass(frozen=True, slots=True)
class Damage:
    """One inconsistency.

    Args:
        kind: kind of damage.
        subject: the affected execution, commit, channel, firing or path.
        what: description of the damage.
        means: consequence for results, and for whom.
        cure: the repair; None if Nova cannot repair it.
        mending: description of the repair.
        next: command or action for a person if there is no repair.
        wrong: whether the damage must be repaired. Temporary or foreign states are only reported.
        concerns: objects of the repair: block ids, commit ids, or paths.
    """

    kind: DamageKind
    subject: str
    what: str
    means: str
    cure: Cure | None = None
    mending: str = ""
    next: str | None = None
    wrong: bool = True
    concerns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RepairOutcome:
    """Result of one repair.

    Args:
        mended: whether the damage was repaired.
        detail: why the repair failed, or what was done beyond the announced repair.
    """

    damage: Damage
    mended: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class DamageReport:
    """Result of a search for damage.

    Args:
        damages: sorted by kind.
        counts: kind of inspected object -> number inspected.
        notes: what was not inspected, and why.
    """

    damages: tuple[Damage, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict, hash=False)
    notes: tuple[str, ...] = ()

    def merged_with(self, other: DamageReport) -> DamageReport:
        """Combination of two reports."""
        return DamageReport(
            (*self.damages, *other.damages), {**self.counts, **other.counts}, (*self.notes, *other.notes)
        )


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
        """Move an unreferenced block folder, or an entry of one, to ``orphans/``. A missing entry is ignored."""

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
