"""Publishing a channel as a folder in Hive layout, of hard links to the channel's own files.

exports/actions -> .actions.editions/00000012          the newest version: a link, replaced atomically
exports/.actions.editions/00000011/...                 the previous version, for its current readers
exports/.actions.editions/00000012/dt=2024-01-01/action=login/1f0c...-part-00000.parquet
                                             .../_SUCCESS      the day is sealed
                                  /_SUCCESS                    the version is complete

The exchange of two paths calls the kernel, because Python has no function for it (decision 0044).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow.parquet as pq

from nova_assets.crash_points import crash_point
from nova_assets.errors import CommitConflict, NotSupported, TableTaken, TableUnavailable
from nova_assets.model.arrow_types import to_arrow_schema
from nova_assets.model.partitions import partition_values
from nova_assets.model.published_version import PublishedContent

SUCCESS_FILE = "_SUCCESS"
_OWNER_FILE = ".nova.json"
_LOCK_FILE = ".lock"
_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_EMPTY_PARQUET_FILE = "no-rows.parquet"
_ESCAPED_CHARACTERS = frozenset("\"#%'*/:=?\\{}[]^") | {chr(n) for n in (*range(32), 127)}
_MAX_NAME_BYTES = 255  # limit of most file systems


class HivePublishTarget:
    """The published folder of one channel.

    Args:
        path: path at which readers find the channel.
        forbidden_folders: folders that the published folder must not overlap: the warehouse, and the deployment's own
            folder.
        owner: identifies the catalog and the channel.
        before_shown: called with a complete version, its content and its folder, right before readers of the path
            find it. If the call fails, they keep the previous version.
    """

    def __init__(
        self,
        path: Path,
        forbidden_folders: Sequence[Path],
        owner: str,
        before_shown: Callable[[int, PublishedContent, Path], None] | None = None,
    ) -> None:
        self.path = Path(os.path.abspath(path))
        self.versions_folder = self.path.with_name(f".{self.path.name}.editions")
        self.forbidden_folders = forbidden_folders
        self.owner = owner
        self.before_shown = before_shown

    def check_can_publish(self, *, take_over: bool = False) -> None:
        with self._translate_os_errors():
            for own_path in (self.path.parent.resolve() / self.path.name, self.versions_folder):
                for forbidden in (f.resolve() for f in self.forbidden_folders):
                    if own_path.is_relative_to(forbidden) or forbidden.is_relative_to(own_path):
                        raise TableTaken(
                            f"{self.path} cannot be published in",
                            found=f"{forbidden}, which belongs to the deployment itself",
                            expected="a folder outside of the deployment",
                            path=str(self.path),
                        )
            self._check_ownership()
            self._check_path_is_free(take_over)

    def published_version(self) -> int | None:
        try:
            target = Path(os.readlink(self.path))
        except OSError:
            return None
        is_own_link = target.parent == Path(self.versions_folder.name) and target.name.isdigit()
        return int(target.name) if is_own_link else None

    def is_complete(self, number: int) -> bool:
        return (self._version_folder(number) / SUCCESS_FILE).exists()

    def publish(
        self, number: int, content: PublishedContent, file_paths: Sequence[str], *, take_over: bool = False
    ) -> None:
        self.check_can_publish(take_over=take_over)
        with self._translate_os_errors():
            self._check_no_later_version(number)
            self._write_owner_file()
            version_folder = self._version_folder(number)
            if version_folder.exists():  # left by a failed attempt
                shutil.rmtree(version_folder)
            version_folder.mkdir()
            _write_version(version_folder, content, file_paths)
            crash_point("edition.made")
            with self._publish_lock():
                self._check_no_later_version(number)
                self._check_path_is_free(take_over)
                if not (version_folder / SUCCESS_FILE).exists():
                    raise CommitConflict(f"{version_folder} was cleaned up meanwhile", reason="edition")
                if self.before_shown is not None:
                    self.before_shown(number, content, version_folder)
                self._link_to_version(version_folder)

    def delete_versions(self, numbers: Collection[int]) -> None:
        with self._translate_os_errors(), self._publish_lock():
            published = self.published_version()
            for number in numbers:
                if number != published and (version_folder := self._version_folder(number)).exists():
                    shutil.rmtree(version_folder)

    def withdraw(self) -> None:
        with self._translate_os_errors():
            self._check_ownership()
            if self.published_version() is not None:
                self.path.unlink()
            if not self.versions_folder.exists():
                return
            for entry in self.versions_folder.iterdir():  # delete only files that nova wrote
                if entry.name.isdigit():
                    shutil.rmtree(entry)
                elif entry.name in (_OWNER_FILE, _LOCK_FILE) or entry.is_symlink():
                    entry.unlink()
            self.versions_folder.rmdir()

    def _version_folder(self, number: int) -> Path:
        return self.versions_folder / f"{number:08d}"

    def _write_owner_file(self) -> None:
        self.versions_folder.mkdir(parents=True, exist_ok=True)
        owner_file = self.versions_folder / _OWNER_FILE
        if not owner_file.exists():
            unfinished = owner_file.with_name(f"{_OWNER_FILE}.{os.getpid()}")
            unfinished.write_text(json.dumps({"of": self.owner}), encoding="utf-8")
            unfinished.rename(owner_file)

    def _check_ownership(self) -> None:
        """Check that the folder holds no versions of another channel or deployment.

        Raises:
            TableTaken.
        """
        if not os.path.lexists(self.versions_folder):
            return
        existing_names = (
            [p.name for p in self.versions_folder.iterdir()] if self.versions_folder.is_dir() else ["no folder"]
        )
        if not [name for name in existing_names if not name.startswith(f"{_OWNER_FILE}.")]:
            return  # its creator died before it wrote the owner file
        try:
            owner = json.loads((self.versions_folder / _OWNER_FILE).read_text(encoding="utf-8"))["of"]
        except (OSError, ValueError, KeyError, TypeError):
            owner = "an unknown owner"
        if owner != self.owner:
            raise TableTaken(
                f"{self.versions_folder} exists already, and does not belong to this channel",
                found=f"a folder of {owner}",
                expected=f"no folder, or a folder of {self.owner}",
                next="publish elsewhere, or move it away",
                path=str(self.versions_folder),
            )

    def _check_path_is_free(self, take_over: bool) -> None:
        if not os.path.lexists(self.path) or self.published_version() is not None:
            return
        is_link = self.path.is_symlink()
        if take_over and not is_link and self.path.is_dir():
            return
        raise TableTaken(
            f"{self.path} exists already, and does not belong to this channel",
            found=f"a link to {os.readlink(self.path)}" if is_link else "a folder" if self.path.is_dir() else "a file",
            expected="no file or folder, or a published version of this channel",
            next="publish elsewhere, or move it away"
            if is_link or not self.path.is_dir()
            else "publish elsewhere, or replace the folder: nova publish CHANNEL --take-over",
            path=str(self.path),
        )

    def _check_no_later_version(self, number: int) -> None:
        published = self.published_version()
        if published is not None and published >= number:
            raise CommitConflict(
                f"{self.path} already shows a later version",
                found=published,
                expected=f"a version before {number}",
                next="publish again",
                reason="edition",
            )

    @contextmanager
    def _publish_lock(self) -> Iterator[None]:
        """Lock out other processes that publish here. A process that outlived its lease may still try to."""
        if not self.versions_folder.exists():
            yield
            return
        with (self.versions_folder / _LOCK_FILE).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _link_to_version(self, version_folder: Path) -> None:
        """Show a version to readers in one atomic step.

        A folder that was there before gets a backup name in the same step.
        """
        target = Path(self.versions_folder.name) / version_folder.name
        if self.path.is_dir() and not self.path.is_symlink():
            backup = self.path.with_name(f"{self.path.name}.before-{time.strftime('%Y%m%dT%H%M%S')}")
            backup.unlink(missing_ok=True)
            backup.symlink_to(target)
            crash_point("edition.exchanging")
            _swap_paths(backup, self.path)
        else:
            link = self.versions_folder / f"{_OWNER_FILE}.{version_folder.name}-{os.getpid()}"
            link.unlink(missing_ok=True)
            link.symlink_to(target)
            os.replace(link, self.path)
        _fsync_paths(self.path.parent)

    @contextmanager
    def _translate_os_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise TableUnavailable(
                f"{self.path} cannot be published in",
                found=f"{error.strerror or error}" + (f" ({error.filename})" if error.filename else ""),
                expected="a folder that this user can write",
                next="correct the cause; readers still see the previous version",
                path=str(self.path),
            ) from error


def hive_partition_path(partition: str, content: PublishedContent) -> str:
    """Folder of a partition in Hive layout: ``dt=2024-01-01/action=a%2Fb``. Timestamps are in UTC, as in the files.

    Raises:
        NotSupported: a value is a text that readers of such folders take for null, or too long for a folder's name.
    """
    parts = [
        f"{_escape_hive_name(c)}={_hive_partition_value(c, v, content)}" for c, v in partition_values(partition).items()
    ]
    for part in parts:
        if len(part.encode()) > _MAX_NAME_BYTES:
            raise NotSupported(
                f"a partition is too long for the name of a folder: {len(part.encode())} bytes",
                found=f"{part[:60]}...",
                expected=f"at most {_MAX_NAME_BYTES} bytes for one column and its value",
                next="publish an Iceberg table instead, or partition by a shorter column",
            )
    return "/".join(parts)


def _hive_partition_value(column: str, value: str | None, content: PublishedContent) -> str:
    if value is None:
        return _NULL_PARTITION
    if value in ("", _NULL_PARTITION):
        raise NotSupported(
            f"a partition cannot be the name of a folder: {column} is {repr(value) if value else 'empty'}",
            found=f"{'this' if value else 'an empty'} text, which readers of Hive folders take for null",
            expected="another text, or null",
            next="publish an Iceberg table instead",
        )
    zone_by_hourly_column = {d.column: d.tz for d in content.dimensions if d.kind == "hourly"}
    type_name = (
        content.schema.field(column).type.name
        if column in zone_by_hourly_column and column in content.schema
        else "string"
    )
    if type_name == "string":
        return _escape_hive_name(value)
    moment = datetime.fromisoformat(value)
    if type_name == "timestamp":
        zone = ZoneInfo(zone_by_hourly_column[column] or "UTC")
        moment = (moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)).astimezone(UTC)
    return _escape_hive_name(moment.strftime("%Y-%m-%d %H:%M:%S"))


def _escape_hive_name(text: str) -> str:
    """Escape a name as Hive and Spark do."""
    return "".join(f"%{ord(c):02X}" if c in _ESCAPED_CHARACTERS else c for c in text)


def _write_version(version_folder: Path, content: PublishedContent, file_paths: Sequence[str]) -> None:
    """Link all files, then mark complete parts: each sealed day or hour, and finally the version."""
    folders: dict[str, Path] = {}
    for file, path in zip(content.files, file_paths, strict=True):
        folder = folders.get(file.partition)
        if folder is None:
            folder = folders[file.partition] = version_folder / hive_partition_path(file.partition, content)
            folder.mkdir(parents=True, exist_ok=True)
        _, block, name = file.path.rsplit("/", 2)
        _hard_link_or_symlink(path, folder / f"{block}-{name}")
    empty_folders = []
    for scope in content.sealed:
        for folder in _folders_of_scope(version_folder, scope, content):
            folder.mkdir(parents=True, exist_ok=True)
            empty_folders += (
                [] if any(folder.rglob("*.parquet")) else [folder / _null_partition_subpath(scope, content)]
            )
            (folder / SUCCESS_FILE).touch()
    _write_empty_files(empty_folders if content.files or empty_folders else [version_folder], content)
    (version_folder / SUCCESS_FILE).touch()
    _fsync_paths(*folders.values(), *empty_folders, version_folder, version_folder.parent)


def _write_empty_files(folders: Sequence[Path], content: PublishedContent) -> None:
    """Write a Parquet file with the schema and no rows to each folder.

    Readers need a file for the columns, and reject a folder without one.
    """
    first: Path | None = None
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        if first is None:
            first = folder / _EMPTY_PARQUET_FILE
            pq.write_table(to_arrow_schema(content.schema).empty_table(), first)
            _fsync_paths(first)
        else:
            _hard_link_or_symlink(str(first), folder / _EMPTY_PARQUET_FILE)


def _null_partition_subpath(sealed_scope: str, content: PublishedContent) -> str:
    """Folders below a sealed day or hour that has no files. Spark requires all files of a table to have equal depth."""
    [column] = partition_values(sealed_scope)
    columns = [d.column for d in content.dimensions]
    return "/".join(f"{_escape_hive_name(c)}={_NULL_PARTITION}" for c in columns[columns.index(column) + 1 :])


def _folders_of_scope(version_folder: Path, sealed_scope: str, content: PublishedContent) -> Iterable[Path]:
    """Folders of a sealed day or hour, also if empty. There is exactly one if its column is the outermost."""
    [column] = partition_values(sealed_scope)
    dimension_columns = [d.column for d in content.dimensions]
    depth = dimension_columns.index(column)
    return (
        [version_folder / hive_partition_path(sealed_scope, content)]
        if depth == 0
        else version_folder.glob("*/" * depth + hive_partition_path(sealed_scope, content))
    )


def _hard_link_or_symlink(source: str, target: Path) -> None:
    """Hard link to a file, or a symbolic link if hard links are not possible, for example across file systems."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP):
            raise
        os.symlink(source, target)


def _swap_paths(first: Path, second: Path) -> None:
    """Exchange two paths: atomically if the kernel can; otherwise one path is missing for a moment."""
    with suppress(AttributeError, OSError):
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
        current_directory, exchange_flag = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
        if renameat2(current_directory, os.fsencode(first), current_directory, os.fsencode(second), exchange_flag) == 0:
            return
    temporary = first.with_name(f"{first.name}-aside")
    second.rename(temporary)
    first.rename(second)
    temporary.rename(first)


def _fsync_paths(*paths: Path) -> None:
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
