"""The warehouse: a folder of blocks. Every path that is read, written or deleted goes through here.

A block's files lie in ``blocks/<block id>/`` under the root and nowhere else. Folders are made, filled once, and
deleted whole; a read is told every file by the catalog and lists nothing (R16). Beside them, ``catalogs/`` has an empty
file for each catalog that writes here, so that none takes another's blocks for orphans, and ``orphans/`` what was
taken for such.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import time
from collections.abc import Iterable
from datetime import UTC
from pathlib import Path
from urllib.parse import unquote, urlparse

from pyarrow import fs

from nova_assets.errors import FileMissing, NotSupported, WarehouseUnavailable
from nova_assets.model.block import DataFile
from nova_assets.model.warehouse import Entry

BLOCKS = "blocks"
CATALOGS = "catalogs"
ORPHANS = "orphans"
_FOLDER = re.compile(r"blocks/[A-Za-z0-9_-]+")
_IN_FOLDER = re.compile(r"blocks/[A-Za-z0-9_-]+/[^/]+")
_MARK = re.compile(r"[A-Za-z0-9-]+")


class Warehouse:
    """A local folder that holds the files of all blocks.

    Args:
        root: its path, or a ``file:`` URL. It is made when the first block is.

    Raises:
        NotSupported: the URL is of another kind.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = _local(str(root))
        self.files = fs.LocalFileSystem()

    def folder(self, name: str) -> Path:
        """The folder of a block. Raises WarehouseUnavailable for a name that is not ``blocks/<block id>``."""
        if not _FOLDER.fullmatch(name):
            raise WarehouseUnavailable(
                f"{name!r} is no folder of a block", expected=f"{BLOCKS}/<block id> under {self.root}", folder=name
            )
        return self.root / name

    def make(self, name: str) -> Path:
        """Make a block's folder, empty.

        Raises:
            WarehouseUnavailable: the warehouse cannot be written.
        """
        folder = self.folder(name)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for left in folder.iterdir():  # of an attempt that died here; the folder is this block's alone
                left.unlink() if not left.is_dir() else shutil.rmtree(left)
        except OSError as error:
            raise self.unavailable("be written", error) from error
        return folder

    def delete(self, name: str) -> None:
        """Remove a block's folder with all that is in it; no matter if it is gone already.

        Raises:
            WarehouseUnavailable: the name is no block's folder and something is there, or it cannot be removed.
        """
        if not _FOLDER.fullmatch(name) and _is_plain(name) and not os.path.lexists(self.root / name):
            return
        folder = self.folder(name)
        try:
            if folder.parent.is_symlink() or folder.is_symlink():
                raise OSError(f"{folder} leads elsewhere")
            shutil.rmtree(folder)
        except FileNotFoundError:
            return
        except OSError as error:
            raise self.unavailable("be cleaned up", error) from error

    def delete_files(self, paths: Iterable[str]) -> None:
        """Remove files, and the folders that they leave empty; no matter if they are gone already.

        Raises:
            FileMissing: a path leads out of the warehouse.
            WarehouseUnavailable: one cannot be removed.
        """
        for name in paths:
            path = self.path(DataFile(name, 0, 0))
            try:
                if path.parent.is_symlink():
                    raise OSError(f"{path.parent} leads elsewhere")
                path.unlink(missing_ok=True)
                if path.parent.is_dir() and not any(path.parent.iterdir()):
                    path.parent.rmdir()
            except OSError as error:
                raise self.unavailable("be cleaned up", error) from error

    def set_aside(self, name: str) -> None:
        """Move what nobody lists, a block's folder or something in it, out of the blocks' way, to ``orphans/``.

        Raises:
            WarehouseUnavailable: the name is none of these, or it cannot be moved.
        """
        if not (_FOLDER.fullmatch(name) or _IN_FOLDER.fullmatch(name)) or not _is_plain(name):
            raise WarehouseUnavailable(f"{name!r} is nothing of a block", expected=f"{BLOCKS}/<block id>", folder=name)
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
            raise self.unavailable("be cleaned up", error) from error

    def path(self, file: DataFile) -> Path:
        """Where a listed file is. Raises FileMissing for a path that leads out of the warehouse."""
        folder, _, name = file.path.rpartition("/")
        if not _FOLDER.fullmatch(folder) or name in ("", ".", ".."):
            raise FileMissing(
                f"the path {file.path!r} is not one of this warehouse",
                expected=f"{BLOCKS}/<block id>/<file> under {self.root}",
                path=file.path,
            )
        return self.root / file.path

    def paths(self, files: Iterable[DataFile]) -> list[str]:
        """Where listed files are, each seen to be there with the size that the catalog has of it.

        Raises:
            FileMissing: one is gone, or has another size.
        """
        return [str(self._seen(file)) for file in files]

    def size(self, name: str) -> int | None:
        """The bytes of a listed file; None where it is not there.

        Raises:
            WarehouseUnavailable: it cannot be told.
        """
        try:
            path = self.path(DataFile(name, 0, 0))
            [found] = self.files.get_file_info([str(path)])
        except FileMissing:
            return None
        except OSError as error:
            raise self.unavailable("be read", error) from error
        return found.size if found.is_file else None

    def listing(self) -> list[Entry]:
        """What lies in ``blocks/``, and in each folder there. For repair: a read never lists anything (R16).

        Raises:
            WarehouseUnavailable: it cannot be listed.
        """
        folders = self._listed(BLOCKS)
        return [*folders, *(e for folder in folders if folder.is_folder for e in self._listed(folder.path))]

    def mark(self, catalog: str) -> None:
        """Leave the mark of a catalog, unless it is there.

        Raises:
            WarehouseUnavailable: the warehouse cannot be written.
        """
        if not _MARK.fullmatch(catalog):
            raise WarehouseUnavailable(f"{catalog!r} is no identity of a catalog", expected="letters and digits")
        mark = self.root / CATALOGS / catalog
        try:
            if not mark.exists():
                mark.parent.mkdir(parents=True, exist_ok=True)
                mark.touch()
                sync([mark.parent])
        except OSError as error:
            raise self.unavailable("be written", error) from error

    def marks(self) -> frozenset[str]:
        """The catalogs that have left their mark.

        Raises:
            WarehouseUnavailable: it cannot be listed.
        """
        return frozenset(e.path.rpartition("/")[2] for e in self._listed(CATALOGS))

    def check(self) -> str:
        """One line about the warehouse.

        Raises:
            WarehouseUnavailable: it cannot be written.
        """
        blocks = self.root / BLOCKS
        made = blocks.is_dir()
        probe = blocks / f".probe-{os.getpid()}"
        try:
            blocks.mkdir(parents=True, exist_ok=True)
            probe.write_bytes(b"")
            probe.unlink()
            free = shutil.disk_usage(blocks).free
        except OSError as error:
            raise self.unavailable("be written", error) from error
        return f"{self.root} ({'in use' if made else 'new'}, {_gigabytes(free)} free)"

    def _listed(self, folder: str) -> list[Entry]:
        """What is right in a folder; no deeper, since folders may lead elsewhere, or round in circles."""
        try:
            found = self.files.get_file_info(fs.FileSelector(str(self.root / folder), allow_not_found=True))
        except OSError as error:
            raise self.unavailable("be listed", error) from error
        # What was deleted while it was listed has no time any more.
        return [
            Entry(f"{folder}/{f.base_name}", f.size or 0, f.mtime.astimezone(UTC), not f.is_file)
            for f in found
            if f.mtime is not None
        ]

    def _seen(self, file: DataFile) -> Path:
        path = self.path(file)
        try:
            size = path.stat().st_size
        except OSError as error:
            raise FileMissing(
                f"the file {file.path} is listed in the catalog and not in the warehouse",
                found=error.strerror,
                expected=f"{file.bytes} bytes at {path}",
                next="nova doctor --repair --dry-run, which says what it means and what can be done",
                path=file.path,
            ) from error
        if size != file.bytes:
            raise FileMissing(
                f"the file {file.path} was changed after it was committed",
                found=f"{size} bytes",
                expected=f"{file.bytes} bytes at {path}",
                next="nova doctor --repair --dry-run, which says what it means and what can be done",
                path=file.path,
            )
        return path

    def unavailable(self, what: str, error: OSError) -> WarehouseUnavailable:
        """The error for what the file system says.

        Args:
            what: it cannot.
        """
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        return WarehouseUnavailable(
            f"the warehouse {self.root} cannot {what}",
            found=f"{error.strerror or error}" + (f" ({error.filename})" if error.filename else ""),
            expected="a folder that this user can write" + (", with room" if full else ""),
            next="make room; then do it again: nothing of it was kept"
            if full
            else "mend its permissions, or set NOVA_WAREHOUSE to another folder",
            warehouse=str(self.root),
        )


def flatten(folder: Path, column: str) -> None:
    """Move the files that Spark put into folders by the values of a column up to where all the others are."""
    for n, sub in enumerate(sorted(folder.glob(f"{column}=*"))):
        for path in sub.glob("*.parquet"):
            path.rename(folder / f"p{n:05d}-{path.name}")
        shutil.rmtree(sub)


def parquet_files(folder: Path) -> list[Path]:
    """The Parquet files of a folder that was just written, in order of their names; everything else in it is removed.

    Spark leaves checksums and markers beside what it writes; nothing may lie in a block's folder that no manifest
    lists.
    """
    for other in folder.iterdir():
        if other.is_dir():
            shutil.rmtree(other)
        elif other.suffix != ".parquet" or other.name.startswith((".", "_")):
            other.unlink()
    return sorted(folder.iterdir())


def sync(paths: Iterable[Path]) -> None:
    """Put files and folders on disk for good: what a commit lists has to outlast a power cut, as the commit does."""
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _local(root: str) -> Path:
    url = urlparse(root)
    if url.scheme == "file":
        return Path(unquote(url.path)).absolute()
    if "://" in root:
        raise NotSupported(
            f"the warehouse {root!r} is not a local folder",
            expected="a path or a file:// URL",
            next="set NOVA_WAREHOUSE to a folder; one that is mounted on every machine of a cluster will do",
        )
    return Path(root).expanduser().absolute()


def _is_plain(name: str) -> bool:
    """Whether a name stays where it is put."""
    return not os.path.isabs(name) and ".." not in name.split("/")


def _gigabytes(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
