"""Warehouse: a folder of blocks. Every path that is read, written or deleted passes through this module.

The files of a block are in ``blocks/<block id>/`` under the root, and nowhere else. A folder is created and filled
once, and deleted as a whole. A read gets every file from the catalog and lists nothing (R16). In addition,
``catalogs/`` has one marker file per catalog that writes here. The marker holds the identity by which the catalog knows
the warehouse, so that no catalog treats blocks of another catalog as orphans. ``orphans/`` holds files that were
identified as orphans.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC
from pathlib import Path

from pyarrow import fs

from nova_assets.engine.storage import file_io
from nova_assets.engine.storage.integrity import check_files_unaltered, find_defect
from nova_assets.errors import FileMissing, WarehouseUnavailable
from nova_assets.model.address import parse_address
from nova_assets.model.block import DataFile
from nova_assets.model.damage import UnfinishedUpload, WarehouseEntry

BLOCKS = "blocks"
CATALOGS = "catalogs"
ORPHANS = "orphans"
_BLOCK_FOLDER = re.compile(r"blocks/[A-Za-z0-9_-]+")
_BLOCK_ENTRY = re.compile(r"blocks/[A-Za-z0-9_-]+/[^/]+")
_CATALOG_ID = re.compile(r"[A-Za-z0-9-]+")
_DELETE_ATTEMPTS = 5


class Warehouse:
    """Local folder that holds the files of all blocks.

    Args:
        root: path, or ``file:`` URL. The folder is created together with the first block.

    Raises:
        SettingsError, NotSupported: as for ``parse_address``.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(parse_address(str(root)).path)
        self.files = fs.LocalFileSystem()

    @property
    def address(self) -> str:
        """Address of the root."""
        return str(self.root)

    @property
    def exists(self) -> bool:
        """Whether the warehouse has ever been written."""
        return self.root.exists()

    def block_folder_address(self, name: str) -> str:
        """Address of the folder of a block. Raises WarehouseUnavailable if the name is not ``blocks/<block id>``."""
        if not is_block_folder_name(name):
            raise WarehouseUnavailable(
                f"{name!r} is not a block folder", expected=f"{BLOCKS}/<block id> under {self.address}", folder=name
            )
        return file_io.join(self.address, name)

    def prepare_empty_block_folder(self, name: str) -> str:
        """Create the empty folder of a block, and return its address.

        Raises:
            WarehouseUnavailable: the warehouse cannot be written.
        """
        folder = Path(self.block_folder_address(name))
        with self.unavailable_unless("be written"):
            folder.mkdir(parents=True, exist_ok=True)
            for leftover in folder.iterdir():  # from a failed attempt; the folder belongs to this block alone
                leftover.unlink() if not leftover.is_dir() else shutil.rmtree(leftover)
        return str(folder)

    def delete_block_folder(self, name: str) -> None:
        """Delete the folder of a block with all its files. Idempotent.

        Raises:
            WarehouseUnavailable: the name is not that of a block folder although the path exists, or the folder cannot
                be deleted.
        """
        if not is_block_folder_name(name) and stays_inside_root(name) and not os.path.lexists(self.root / name):
            return
        folder = Path(self.block_folder_address(name))
        with self.unavailable_unless("be cleaned up"):
            if folder.parent.is_symlink() or folder.is_symlink():
                raise OSError(f"{folder} is a symbolic link")
            _delete_tree(folder)

    def delete_staged_folder(self, name: str) -> list[str]:
        """Delete the folder of a staged block. Returns its files, relative to the root. Raises as
        ``delete_block_folder``."""
        files = self.list_block_folder(name)
        self.delete_block_folder(name)
        return files

    def delete_empty_block_folder(self, name: str) -> None:
        """Delete the folder of a block that has no files of its own: it has no rows, or only files of other blocks."""
        with suppress(OSError):  # it has files
            Path(self.block_folder_address(name)).rmdir()

    def delete_files(self, paths: Iterable[str]) -> None:
        """Delete files, and the folders that become empty. Idempotent.

        Raises:
            FileMissing: a path leads out of the warehouse.
            WarehouseUnavailable: a file cannot be deleted.
        """
        for name in paths:
            path = Path(self.file_address(DataFile(name, 0, 0)))
            with self.unavailable_unless("be cleaned up"):
                if path.parent.is_symlink():
                    raise OSError(f"{path.parent} is a symbolic link")
                path.unlink(missing_ok=True)
                _delete_folder_if_empty(path.parent)

    def move_to_orphans(self, name: str) -> None:
        """Move an unlisted block folder, or an entry of one, from ``blocks/`` to ``orphans/``.

        Raises:
            WarehouseUnavailable: the name is neither a block folder nor an entry of one, or the move fails.
        """
        self.check_block_name(name)
        source, target = self.root / name, self.root / ORPHANS / name.removeprefix(f"{BLOCKS}/")
        with self.unavailable_unless("be cleaned up"), suppress(FileNotFoundError):
            if source.parent.is_symlink():
                raise OSError(f"{source.parent} is a symbolic link")
            target.parent.mkdir(parents=True, exist_ok=True)
            source.rename(
                target if not os.path.lexists(target) else target.with_name(f"{target.name}.{time.time_ns()}")
            )

    def check_block_name(self, name: str) -> None:
        """Raises WarehouseUnavailable unless the name is a block folder or an entry of one."""
        if not (_BLOCK_FOLDER.fullmatch(name) or _BLOCK_ENTRY.fullmatch(name)) or not stays_inside_root(name):
            raise WarehouseUnavailable(
                f"{name!r} is neither a block folder nor a file of one", expected=f"{BLOCKS}/<block id>", folder=name
            )

    def file_address(self, file: DataFile) -> str:
        """Address of a listed file. Raises FileMissing for a path that leads out of the warehouse."""
        folder, _, name = file.path.rpartition("/")
        if not _BLOCK_FOLDER.fullmatch(folder) or name in ("", ".", ".."):
            raise FileMissing(
                f"the path {file.path!r} is not in this warehouse",
                expected=f"{BLOCKS}/<block id>/<file> under {self.address}",
                path=file.path,
            )
        return file_io.join(self.address, file.path)

    def verified_addresses(self, files: Iterable[DataFile], *, prefetch: bool = False) -> list[str]:
        """Addresses of listed files, after a check of their existence, sizes and footers.

        Args:
            prefetch: whether this process reads the files next, so that small files can be fetched with the check.

        Raises:
            FileMissing: a file is missing or has another size.
            FileAltered: a file was replaced by another file.
        """
        listed = [(file, self.file_address(file)) for file in files]
        check_files_unaltered(listed, prefetch=prefetch)
        return [path for _, path in listed]

    def find_file_defect(self, file: DataFile, *, thorough: bool = False) -> str | None:
        """Defect of a listed file as a phrase; None if the file is unchanged.

        Args:
            thorough: whether to read all bytes and compare them with the file's digest.

        Raises:
            WarehouseUnavailable: the file cannot be checked.
        """
        size = self.file_size(file.path)
        if size is None:
            return "is missing"
        if size != file.bytes:
            return f"has {size} byte{'' if size == 1 else 's'} in place of {file.bytes}"
        return find_defect(file, self.file_address(file), thorough=thorough)

    def file_size(self, name: str) -> int | None:
        """Size of a listed file in bytes; None if the file does not exist.

        Raises:
            WarehouseUnavailable: the size cannot be determined.
        """
        try:
            self.file_address(DataFile(name, 0, 0))
        except FileMissing:
            return None
        with self.unavailable_unless("be read"):
            info = self.files.get_file_info(self.key_of(name))
        return int(info.size) if info.is_file else None

    def list_block_entries(self) -> list[WarehouseEntry]:
        """Entries of ``blocks/`` and of each folder in it. Only repair uses this list: a read never lists anything
        (R16).

        Raises:
            WarehouseUnavailable: the listing fails.
        """
        folders = self._list_folder(BLOCKS)
        return [*folders, *(e for folder in folders if folder.is_folder for e in self._list_folder(folder.path))]

    def list_block_folder(self, name: str) -> list[str]:
        """Files of a block folder, relative to the root; none if it does not exist. Hidden files are left out.

        Raises:
            WarehouseUnavailable: the listing fails.
        """
        entries = self._list_folder(name) if is_block_folder_name(name) else []
        return sorted(e.path for e in entries if not e.is_folder and Path(e.path).name[0] not in "._")

    def unfinished_uploads(self) -> list[UnfinishedUpload]:
        """Unfinished multipart uploads. A local folder has none.

        Raises:
            NotSupported: a package that the listing needs is not installed.
            WarehouseUnavailable: the listing fails.
        """
        return []

    def abort_unfinished_upload(self, upload: UnfinishedUpload) -> None:
        """Abort an unfinished upload and free its space. Raises as ``unfinished_uploads`` does."""

    def write_catalog_marker(self, catalog_id: str, warehouse_id: str) -> None:
        """Write the marker of a catalog, with the identity by which the catalog knows the warehouse.

        Raises:
            WarehouseUnavailable: the warehouse cannot be written.
        """
        self.check_catalog_id(catalog_id)
        marker = self.root / CATALOGS / catalog_id
        with self.unavailable_unless("be written"):
            marker.parent.mkdir(parents=True, exist_ok=True)
            temporary_file = marker.with_name(f".{catalog_id}.{uuid.uuid4().hex}")
            temporary_file.write_text(warehouse_id)
            file_io.fsync_paths([str(temporary_file)])
            temporary_file.replace(marker)
            file_io.fsync_paths([str(marker.parent)])

    def read_catalog_marker(self, catalog_id: str) -> str | None:
        """Identity in the marker of a catalog: empty in a marker of an older version, None without a marker.

        Raises:
            WarehouseUnavailable: the marker cannot be read.
        """
        self.check_catalog_id(catalog_id)
        with self.unavailable_unless("be read"), suppress(FileNotFoundError):
            return (self.root / CATALOGS / catalog_id).read_text()
        return None

    def check_catalog_id(self, catalog_id: str) -> None:
        """Raises WarehouseUnavailable unless the text is a valid catalog id."""
        if not _CATALOG_ID.fullmatch(catalog_id):
            raise WarehouseUnavailable(f"{catalog_id!r} is not a catalog id", expected="letters and digits")

    def catalogs_with_marker(self) -> frozenset[str]:
        """Ids of the catalogs that have written a marker.

        Raises:
            WarehouseUnavailable: the listing fails.
        """
        names = (e.path.rpartition("/")[2] for e in self._list_folder(CATALOGS))
        return frozenset(name for name in names if _CATALOG_ID.fullmatch(name))

    def check_writable(self) -> str:
        """Check write access. Returns one line that describes the warehouse.

        Raises:
            WarehouseUnavailable: the warehouse cannot be written.
        """
        is_in_use = (self.root / BLOCKS).is_dir()
        with self.unavailable_unless("be written"):
            self.root.mkdir(parents=True, exist_ok=True)
            self._probe_write_and_read()
            free = shutil.disk_usage(self.root).free
        return f"{self.root} ({'in use' if is_in_use else 'new'}, {_format_gigabytes(free)} free)"

    def _probe_write_and_read(self) -> None:
        """Write a file, read it back, and delete it. Raises OSError, also if other bytes are read back."""
        files, path = file_io.filesystem_and_path(file_io.join(self.address, f".nova-probe-{uuid.uuid4().hex}"))
        content = os.urandom(64)
        with files.open_output_stream(path) as writing:
            writing.write(content)
        try:
            with files.open_input_stream(path) as reading:
                content_read = reading.read()
        finally:
            files.delete_file(path)
        if content_read != content:
            raise OSError(f"{len(content)} bytes were written, but {len(content_read)} other bytes were read back")
        if files.get_file_info(path).type is not fs.FileType.NotFound:
            raise OSError(f"{path} still exists after its deletion")

    def _list_folder(self, folder: str) -> list[WarehouseEntry]:
        """Direct entries of a folder. Subfolders are not followed, since links may lead elsewhere or form a cycle."""
        with self.unavailable_unless("be listed"):
            entries = self.files.get_file_info(fs.FileSelector(self.key_of(folder), allow_not_found=True))
        # An entry that was deleted during the listing has no modification time.
        return [
            WarehouseEntry(f"{folder}/{f.base_name}", f.size or 0, f.mtime.astimezone(UTC), not f.is_file)
            for f in entries
            if f.mtime is not None
        ]

    def key_of(self, name: str) -> str:
        """Path of a name below the root, in the file system of the warehouse."""
        return str(self.root / name)

    @contextmanager
    def unavailable_unless(self, action: str) -> Iterator[None]:
        """Context of an action, named as for ``unavailable_error``. Raises WarehouseUnavailable for an OSError."""
        try:
            yield
        except OSError as error:
            raise self.unavailable_error(action, error) from error

    def unavailable_error(self, failed_action: str, error: OSError) -> WarehouseUnavailable:
        """Error for a failure of the file system.

        Args:
            failed_action: verb phrase after "cannot", such as "be written".
        """
        is_disk_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        return WarehouseUnavailable(
            f"the warehouse {self.address} cannot {failed_action}",
            found=f"{error.strerror or error}" + (f" ({error.filename})" if error.filename else ""),
            expected="a folder that this user can write" + (", with free disk space" if is_disk_full else ""),
            next="free disk space, then repeat the write: none of its files was kept"
            if is_disk_full
            else "correct its permissions, or set NOVA_WAREHOUSE to another folder",
            warehouse=self.address,
        )


def is_block_folder_name(name: str) -> bool:
    """Whether a name is that of a block folder, ``blocks/<block id>``."""
    return _BLOCK_FOLDER.fullmatch(name) is not None


def stays_inside_root(name: str) -> bool:
    """Whether a relative name cannot leave the folder that it is joined to."""
    return not os.path.isabs(name) and ".." not in name.split("/")


def _delete_folder_if_empty(folder: Path) -> None:
    """Delete a folder unless it has entries. Another process may delete the same folder meanwhile."""
    try:
        folder.rmdir()
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise


def _delete_tree(folder: Path) -> None:
    """Delete a folder, in which another process may create and delete entries meanwhile. ``rmtree`` ends with an error
    if an entry vanishes (before Python 3.13) or appears, although the folder is still there."""
    for attempt in range(_DELETE_ATTEMPTS):
        try:
            shutil.rmtree(folder)
        except OSError as error:
            if not isinstance(error, FileNotFoundError) and error.errno != errno.ENOTEMPTY:
                raise
        if not os.path.lexists(folder):
            return
        time.sleep(0.05 * attempt)
    raise OSError(f"entries of {folder} appear and vanish")


def _format_gigabytes(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
