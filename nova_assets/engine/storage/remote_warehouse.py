"""The warehouse in S3 or HDFS. The same names as in a folder: ``s3://BUCKET/PREFIX/blocks/<block id>/<file>``.

What such a store has acknowledged is there for everybody and lasts, so nothing has to be synced; and there are no links
that could lead elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from pyarrow import fs

from nova_assets.engine.storage import file_io
from nova_assets.engine.storage.integrity import AT_ONCE
from nova_assets.engine.storage.warehouse import BLOCKS, CATALOGS, ORPHANS, Warehouse, is_folder, is_plain
from nova_assets.errors import FileMissing, WarehouseUnavailable
from nova_assets.model.address import parse_address
from nova_assets.model.block import DataFile
from nova_assets.model.warehouse_contents import Entry, Upload


def open_warehouse(root: str | Path) -> Warehouse:
    """The warehouse at a path or an address.

    Raises:
        SettingsError, NotSupported: as ``parse_address`` does.
    """
    address = parse_address(str(root))
    return RemoteWarehouse(str(address)) if address.scheme else Warehouse(root)


class RemoteWarehouse(Warehouse):
    """A part of S3 or HDFS that holds the files of all blocks.

    Args:
        root: ``s3://BUCKET/PREFIX`` or ``hdfs://NAMENODE:PORT/PATH``.
    """

    def __init__(self, root: str) -> None:
        self._address = str(parse_address(root))
        self.files, self.base = file_io.filesystem(self._address)

    @property
    def address(self) -> str:
        return self._address

    @property
    def exists(self) -> bool:
        return bool(self._listed(BLOCKS))

    def make(self, name: str) -> str:
        return self.folder(name)  # the beginning of names; a block's id is new, so nothing can be there

    def delete(self, name: str) -> None:
        if not is_folder(name) and is_plain(name) and not self._below(name):
            return
        self.folder(name)
        try:
            with suppress(FileNotFoundError):
                self.files.delete_dir(self._key(name))
        except OSError as error:
            raise self.unavailable("be cleaned up", error) from error

    def delete_files(self, paths: Iterable[str]) -> None:
        """S3 keeps an empty object of a folder whose files are deleted. It is left: to remove it takes a listing, and
        one that leaves out a retained file would delete that file."""
        names = list(paths)
        for name in names:
            self.path(DataFile(name, 0, 0))
        with ThreadPoolExecutor(AT_ONCE, "nova-delete") as pool:
            list(pool.map(self._delete_file, names))
        if not self.address.startswith("s3:"):
            for folder in {name.rpartition("/")[0] for name in names}:
                if not self._listed(folder):
                    self.delete(folder)

    def _delete_file(self, name: str) -> None:
        try:
            with suppress(FileNotFoundError):
                self.files.delete_file(self._key(name))
        except OSError as error:
            raise self.unavailable("be cleaned up", error) from error

    def listing(self) -> list[Entry]:
        found = super().listing()
        filled = {e.path.rpartition("/")[0] for e in found}
        return [e for e in found if not e.is_folder or e.path in filled or not self.address.startswith("s3:")]

    def set_aside(self, name: str) -> None:
        self.check_name(name)
        try:
            for found in self._below(name):
                self._move(found.path, self._key(f"{ORPHANS}/{found.path.removeprefix(self._key(BLOCKS)).strip('/')}"))
            if self.files.get_file_info(self._key(name)).type is fs.FileType.Directory and not self._below(name):
                self.files.delete_dir(self._key(name))
        except FileNotFoundError:
            return
        except OSError as error:
            raise self.unavailable("be cleaned up", error) from error

    def size(self, name: str) -> int | None:
        try:
            self.path(DataFile(name, 0, 0))
            found = self.files.get_file_info(self._key(name))
        except FileMissing:
            return None
        except OSError as error:
            raise self.unavailable("be read", error) from error
        return int(found.size) if found.is_file else None

    def uploads(self) -> list[Upload]:
        from nova_assets.engine.storage.unfinished_uploads import pending_uploads

        return pending_uploads(self.address) if self.address.startswith("s3:") else []

    def abort(self, upload: Upload) -> None:
        from nova_assets.engine.storage.unfinished_uploads import abort_upload

        abort_upload(self.address, upload)

    def mark(self, catalog: str, identity: str) -> None:
        self.check_mark(catalog)
        try:
            with self.files.open_output_stream(self._key(f"{CATALOGS}/{catalog}")) as stream:
                stream.write(identity.encode())
        except OSError as error:
            raise self.unavailable("be written", error) from error

    def mark_of(self, catalog: str) -> str | None:
        self.check_mark(catalog)
        try:
            with self.files.open_input_file(self._key(f"{CATALOGS}/{catalog}")) as stream:
                return stream.read().decode() if stream.size() else ""
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self.unavailable("be read", error) from error

    def check(self) -> str:
        made = self.exists
        try:
            self._probe()
        except OSError as error:
            raise self.unavailable("be written", error) from error
        return f"{self.address} ({'in use' if made else 'new'})"

    def _listed(self, folder: str) -> list[Entry]:
        try:
            found = self.files.get_file_info(fs.FileSelector(self._key(folder), allow_not_found=True))
        except OSError as error:
            raise self.unavailable("be listed", error) from error
        now = datetime.now(UTC)  # what S3 calls a folder is the beginning of names, and has no time
        return [
            Entry(f"{folder}/{f.base_name}", f.size or 0, f.mtime.astimezone(UTC) if f.mtime else now, not f.is_file)
            for f in found
        ]

    def _below(self, name: str) -> list[fs.FileInfo]:
        there = self.files.get_file_info(self._key(name))
        if there.is_file:
            return [there]
        selector = fs.FileSelector(self._key(name), recursive=True, allow_not_found=True)
        return [f for f in self.files.get_file_info(selector) if f.is_file]

    def _move(self, source: str, target: str) -> None:
        """Raises OSError: HDFS moves nothing into a folder that is not there, and says so to nobody."""
        if not self.address.startswith("s3:"):
            self.files.create_dir(target.rpartition("/")[0], recursive=True)
        self.files.move(source, target)
        if not self.files.get_file_info(target).is_file:
            raise OSError(f"{source} was not moved to {target}")

    def _key(self, name: str) -> str:
        return file_io.join(self.base, name)

    def unavailable(self, what: str, error: OSError) -> WarehouseUnavailable:
        of_s3 = self.address.startswith("s3:")
        variables = "AWS_ACCESS_KEY_ID, AWS_REGION, AWS_ENDPOINT_URL" if of_s3 else "HADOOP_USER_NAME, WEBHDFS_URL"
        return WarehouseUnavailable(
            f"the warehouse {self.address} cannot {what}",
            found=f"{error.strerror or error}".split("\n")[0],
            expected="a place that these credentials can read and write",
            next=f"check {variables}, and that it is there; then: nova doctor",
            warehouse=self.address,
        )
