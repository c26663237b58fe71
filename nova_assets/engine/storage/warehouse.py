"""The warehouse: a folder of blocks. Every path that is read, written or deleted goes through here.

A block's files lie in ``blocks/<block id>/`` under the root and nowhere else. Folders are made, filled once, and
deleted whole; a read is told every file by the catalog and lists nothing (R16). Beside them, ``catalogs/`` has a file
for each catalog that writes here, with the identity that it knows the warehouse by, so that none takes another's blocks
for orphans, and ``orphans/`` what was taken for such.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterable
from datetime import UTC
from pathlib import Path

from pyarrow import fs

from nova_assets.engine.storage import file_io
from nova_assets.engine.storage.integrity import check_files_unaltered, find_defect
from nova_assets.errors import FileMissing, WarehouseUnavailable
from nova_assets.model.address import parse_address
from nova_assets.model.block import DataFile
from nova_assets.model.warehouse_contents import UnfinishedUpload, WarehouseEntry

BLOCKS = "blocks"
CATALOGS = "catalogs"
ORPHANS = "orphans"
_BLOCK_FOLDER = re.compile(r"blocks/[A-Za-z0-9_-]+")
_BLOCK_ENTRY = re.compile(r"blocks/[A-Za-z0-9_-]+/[^/]+")
_CATALOG_ID = re.compile(r"[A-Za-z0-9-]+")


class Warehouse:
    """A local folder that holds the files of all blocks.

    Args:
        root: its path, or a ``file:`` URL. It is made when the first block is.

    Raises:
        SettingsError, NotSupported: as ``parse_address`` does.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(parse_address(str(root)).path)
        self.files = fs.LocalFileSystem()

    @property
    def address(self) -> str:
        """Of the root."""
        return str(self.root)

    @property
    def exists(self) -> bool:
        """Whether something was ever put there."""
        return self.root.exists()

    def block_folder_address(self, name: str) -> str:
        """Where the folder of a block is. Raises WarehouseUnavailable for a name that is not ``blocks/<block id>``."""
        if not is_block_folder_name(name):
            raise WarehouseUnavailable(
                f"{name!r} is no folder of a block", expected=f"{BLOCKS}/<block id> under {self.address}", folder=name
            )
        return file_io.join(self.address, name)

    def create_block_folder(self, name: str) -> str:
        """Make a block's folder, empty. Gives its address.

        Raises:
            WarehouseUnavailable: the warehouse cannot be written.
        """
        folder = Path(self.block_folder_address(name))
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for left in folder.iterdir():  # of an attempt that died here; the folder is this block's alone
                left.unlink() if not left.is_dir() else shutil.rmtree(left)
        except OSError as error:
            raise self.unavailable_error("be written", error) from error
        return str(folder)

    def delete_block_folder(self, name: str) -> None:
        """Remove a block's folder with all that is in it; no matter if it is gone already.

        Raises:
            WarehouseUnavailable: the name is no block's folder and something is there, or it cannot be removed.
        """
        if not is_block_folder_name(name) and stays_inside_root(name) and not os.path.lexists(self.root / name):
            return
        folder = Path(self.block_folder_address(name))
        try:
            if folder.parent.is_symlink() or folder.is_symlink():
                raise OSError(f"{folder} leads elsewhere")
            shutil.rmtree(folder)
        except FileNotFoundError:
            return
        except OSError as error:
            raise self.unavailable_error("be cleaned up", error) from error

    def delete_files(self, paths: Iterable[str]) -> None:
        """Remove files, and the folders that they leave empty; no matter if they are gone already.

        Raises:
            FileMissing: a path leads out of the warehouse.
            WarehouseUnavailable: one cannot be removed.
        """
        for name in paths:
            path = Path(self.file_address(DataFile(name, 0, 0)))
            try:
                if path.parent.is_symlink():
                    raise OSError(f"{path.parent} leads elsewhere")
                path.unlink(missing_ok=True)
                if path.parent.is_dir() and not any(path.parent.iterdir()):
                    path.parent.rmdir()
            except OSError as error:
                raise self.unavailable_error("be cleaned up", error) from error

    def move_to_orphans(self, name: str) -> None:
        """Move what nobody lists, a block's folder or something in it, out of the blocks' way, to ``orphans/``.

        Raises:
            WarehouseUnavailable: the name is none of these, or it cannot be moved.
        """
        self.check_block_name(name)
        source, target = self.root / name, self.root / ORPHANS / name.removeprefix(f"{BLOCKS}/")
        try:
            if source.parent.is_symlink():
                raise OSError(f"{source.parent} leads elsewhere")
            target.parent.mkdir(parents=True, exist_ok=True)
            source.rename(
                target if not os.path.lexists(target) else target.with_name(f"{target.name}.{time.time_ns()}")
            )
        except FileNotFoundError:
            return
        except OSError as error:
            raise self.unavailable_error("be cleaned up", error) from error

    def check_block_name(self, name: str) -> None:
        """Raises WarehouseUnavailable for what is neither a block's folder nor something in it."""
        if not (_BLOCK_FOLDER.fullmatch(name) or _BLOCK_ENTRY.fullmatch(name)) or not stays_inside_root(name):
            raise WarehouseUnavailable(f"{name!r} is nothing of a block", expected=f"{BLOCKS}/<block id>", folder=name)

    def file_address(self, file: DataFile) -> str:
        """Where a listed file is. Raises FileMissing for a path that leads out of the warehouse."""
        folder, _, name = file.path.rpartition("/")
        if not _BLOCK_FOLDER.fullmatch(folder) or name in ("", ".", ".."):
            raise FileMissing(
                f"the path {file.path!r} is not one of this warehouse",
                expected=f"{BLOCKS}/<block id>/<file> under {self.address}",
                path=file.path,
            )
        return file_io.join(self.address, file.path)

    def verified_addresses(self, files: Iterable[DataFile], *, prefetch: bool = False) -> list[str]:
        """Where listed files are, each seen to be there as it was written, by its size and its footer.

        Args:
            prefetch: they are read in this process next.

        Raises:
            FileMissing: one is gone, or has another size.
            FileAltered: one is another file.
        """
        listed = [(file, self.file_address(file)) for file in files]
        check_files_unaltered(listed, prefetch=prefetch)
        return [path for _, path in listed]

    def defect_of(self, file: DataFile, *, thorough: bool = False) -> str | None:
        """What is wrong with a listed file; None where it is as it was written.

        Args:
            thorough: all its bytes are read, and compared with its digest.

        Raises:
            WarehouseUnavailable: it cannot be told.
        """
        size = self.file_size(file.path)
        if size is None:
            return "is missing"
        if size != file.bytes:
            return f"has {size} byte{'' if size == 1 else 's'} in place of {file.bytes}"
        return find_defect(file, self.file_address(file), thorough=thorough)

    def file_size(self, name: str) -> int | None:
        """The bytes of a listed file; None where it is not there.

        Raises:
            WarehouseUnavailable: it cannot be told.
        """
        try:
            path = self.file_address(DataFile(name, 0, 0))
            [found] = self.files.get_file_info([path])
        except FileMissing:
            return None
        except OSError as error:
            raise self.unavailable_error("be read", error) from error
        return found.size if found.is_file else None

    def list_block_entries(self) -> list[WarehouseEntry]:
        """What lies in ``blocks/``, and in each folder there. For repair: a read never lists anything (R16).

        Raises:
            WarehouseUnavailable: it cannot be listed.
        """
        folders = self._list_folder(BLOCKS)
        return [*folders, *(e for folder in folders if folder.is_folder for e in self._list_folder(folder.path))]

    def unfinished_uploads(self) -> list[UnfinishedUpload]:
        """Uploads in parts that are not finished; a folder knows none.

        Raises:
            NotSupported: what it takes to list them is not installed.
            WarehouseUnavailable: they cannot be listed.
        """
        return []

    def abort_unfinished_upload(self, upload: UnfinishedUpload) -> None:
        """Give the room of an unfinished upload back. Raises as ``uploads`` does."""

    def write_catalog_mark(self, catalog_id: str, warehouse_id: str) -> None:
        """Leave the mark of a catalog, with the identity that it knows the warehouse by.

        Raises:
            WarehouseUnavailable: the warehouse cannot be written.
        """
        self.check_catalog_id(catalog_id)
        mark = self.root / CATALOGS / catalog_id
        try:
            mark.parent.mkdir(parents=True, exist_ok=True)
            fresh = mark.with_name(f".{catalog_id}.{uuid.uuid4().hex}")
            fresh.write_text(warehouse_id)
            file_io.fsync_paths([str(fresh)])
            fresh.replace(mark)
            file_io.fsync_paths([str(mark.parent)])
        except OSError as error:
            raise self.unavailable_error("be written", error) from error

    def read_catalog_mark(self, catalog_id: str) -> str | None:
        """The identity in a catalog's mark: empty in one of an older version, None where there is none.

        Raises:
            WarehouseUnavailable: it cannot be read.
        """
        self.check_catalog_id(catalog_id)
        try:
            return (self.root / CATALOGS / catalog_id).read_text()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self.unavailable_error("be read", error) from error

    def check_catalog_id(self, catalog_id: str) -> None:
        """Raises WarehouseUnavailable for what is no identity of a catalog."""
        if not _CATALOG_ID.fullmatch(catalog_id):
            raise WarehouseUnavailable(f"{catalog_id!r} is no identity of a catalog", expected="letters and digits")

    def marked_catalogs(self) -> frozenset[str]:
        """The catalogs that have left their mark.

        Raises:
            WarehouseUnavailable: it cannot be listed.
        """
        names = (e.path.rpartition("/")[2] for e in self._list_folder(CATALOGS))
        return frozenset(name for name in names if _CATALOG_ID.fullmatch(name))

    def check_writable(self) -> str:
        """One line about the warehouse.

        Raises:
            WarehouseUnavailable: it cannot be written.
        """
        made = (self.root / BLOCKS).is_dir()
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            self._probe_write_and_read()
            free = shutil.disk_usage(self.root).free
        except OSError as error:
            raise self.unavailable_error("be written", error) from error
        return f"{self.root} ({'in use' if made else 'new'}, {_format_gigabytes(free)} free)"

    def _probe_write_and_read(self) -> None:
        """Write a file, read it back, and delete it. Raises OSError, also where something else is read back."""
        files, path = file_io.filesystem_and_path(file_io.join(self.address, f".nova-probe-{uuid.uuid4().hex}"))
        content = os.urandom(64)
        with files.open_output_stream(path) as writing:
            writing.write(content)
        try:
            with files.open_input_stream(path) as reading:
                found = reading.read()
        finally:
            files.delete_file(path)
        if found != content:
            raise OSError(f"of {len(content)} bytes that were written, {len(found)} others were read back")
        if files.get_file_info(path).type is not fs.FileType.NotFound:
            raise OSError(f"{path} was deleted, and is there still")

    def _list_folder(self, folder: str) -> list[WarehouseEntry]:
        """What is right in a folder; no deeper, since folders may lead elsewhere, or round in circles."""
        try:
            found = self.files.get_file_info(fs.FileSelector(str(self.root / folder), allow_not_found=True))
        except OSError as error:
            raise self.unavailable_error("be listed", error) from error
        # What was deleted while it was listed has no time any more.
        return [
            WarehouseEntry(f"{folder}/{f.base_name}", f.size or 0, f.mtime.astimezone(UTC), not f.is_file)
            for f in found
            if f.mtime is not None
        ]

    def unavailable_error(self, failed_action: str, error: OSError) -> WarehouseUnavailable:
        """The error for what the file system says.

        Args:
            failed_action: it cannot.
        """
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        return WarehouseUnavailable(
            f"the warehouse {self.address} cannot {failed_action}",
            found=f"{error.strerror or error}" + (f" ({error.filename})" if error.filename else ""),
            expected="a folder that this user can write" + (", with room" if full else ""),
            next="make room; then do it again: nothing of it was kept"
            if full
            else "mend its permissions, or set NOVA_WAREHOUSE to another folder",
            warehouse=self.address,
        )


def is_block_folder_name(name: str) -> bool:
    """Whether it is the name of a block's folder."""
    return _BLOCK_FOLDER.fullmatch(name) is not None


def stays_inside_root(name: str) -> bool:
    """Whether a name stays where it is put."""
    return not os.path.isabs(name) and ".." not in name.split("/")


def _format_gigabytes(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
