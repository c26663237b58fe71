"""Publishing a channel as a folder in Hive layout, of links to the channel's own files, or of converted files.

exports/actions -> .actions.editions/00000012          the newest version: a link, replaced atomically
exports/.actions.editions/00000011/...                 the previous version, for its current readers
exports/.actions.editions/00000012/dt=2024-01-01/action=login/1f0c...-part-00000.parquet
                                             .../_SUCCESS      the day is sealed
                                  /_SUCCESS                    the version is complete
exports/.actions.editions/.nova.layout.json            layout of converted files, from a take-over
exports/.actions.editions/.nova.parts-00000012.json    the partitions of a converted version

The exchange of two paths calls the kernel, because Python has no function for it (decision 0044).
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import shutil
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from nova_assets.crash_points import crash_point
from nova_assets.errors import CommitConflict, TableTaken, TableUnavailable
from nova_assets.model.published_version import FILE_SUFFIXES, PublishedContent, TableFileLayout, TableFormat
from nova_assets.publish.edition_folder import (
    SUCCESS_FILE,
    EditionPart,
    fsync_paths,
    parts_from_json,
    parts_to_json,
    write_converted_edition,
    write_linked_edition,
)
from nova_assets.publish.existing_folder import (
    check_partition_columns,
    inspect_folder,
    is_table,
    layout_of_folder,
    local_files,
)
from nova_assets.publish.target import Edition, PartitionConverter, check_no_later_version, check_owner

_OWNER_FILE = ".nova.json"
_LAYOUT_FILE = ".nova.layout.json"
_PARTS_PREFIX = ".nova.parts-"
_LOCK_FILE = ".lock"


class HivePublishTarget:
    """The published folder of one channel.

    Args:
        path: path at which readers find the channel.
        forbidden_folders: folders that the published folder must not overlap: the warehouse, and the deployment's own
            folder.
        owner: identifies the catalog and the channel.
        format: format of converted files; None for links to the channel's own files.
    """

    def __init__(
        self, path: Path, forbidden_folders: Sequence[Path], owner: str, format: TableFormat | None = None
    ) -> None:
        self.format = format
        self.path = Path(os.path.abspath(path))
        self.versions_folder = self.path.with_name(f".{self.path.name}.editions")
        self.forbidden_folders = forbidden_folders
        self.owner = owner

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

    def has_own_layout(self, *, take_over: bool) -> bool:
        """Whether files have, or get by a take-over, the layout of a folder that others have filled."""
        has_folder = self.path.is_dir() and not self.path.is_symlink()
        return (take_over and has_folder and is_table(self.path, self.format or "parquet")) or (
            not has_folder and (self.versions_folder / _LAYOUT_FILE).exists()
        )

    def published_version(self) -> int | None:
        try:
            target = Path(os.readlink(self.path))
        except OSError:
            return None
        is_own_link = target.parent == Path(self.versions_folder.name) and target.name.isdigit()
        return int(target.name) if is_own_link else None

    def is_complete(self, number: int) -> bool:
        return (self._version_folder(number) / SUCCESS_FILE).exists()

    def publish(self, edition: Edition) -> None:
        number, content = edition.number, edition.content
        self.check_can_publish(take_over=edition.take_over)
        with self._translate_os_errors():
            check_no_later_version(self.path, self.published_version(), number)
            self._write_owner_file()
            layout = self._layout_for(content)
            version_folder = self._version_folder(number)
            if version_folder.exists():  # left by a failed attempt
                shutil.rmtree(version_folder)
            version_folder.mkdir()
            if layout is None:
                write_linked_edition(version_folder, content, edition.file_paths)
            else:
                self._write_converted(number, content, layout, edition.convert)
            crash_point("edition.made")
            with self._publish_lock():
                check_no_later_version(self.path, self.published_version(), number)
                self._check_path_is_free(edition.take_over)
                if not (version_folder / SUCCESS_FILE).exists():
                    raise CommitConflict(f"{version_folder} was cleaned up meanwhile", reason="edition")
                self._before_shown(number, content, version_folder)
                self._link_to_version(version_folder)

    def _before_shown(self, number: int, content: PublishedContent, version_folder: Path) -> None:
        """Called with a complete version, right before readers of the path find it. If the call fails, they keep the
        previous version."""

    def delete_versions(self, numbers: Collection[int]) -> None:
        with self._translate_os_errors(), self._publish_lock():
            published = self.published_version()
            for number in numbers:
                if number != published:
                    if (version_folder := self._version_folder(number)).exists():
                        shutil.rmtree(version_folder)
                    self._parts_file(number).unlink(missing_ok=True)

    def withdraw(self) -> None:
        with self._translate_os_errors():
            self._check_ownership()
            if self.published_version() is not None:
                self.path.unlink()
            if not self.versions_folder.exists():
                return
            own_files = (_OWNER_FILE, _LAYOUT_FILE, _LOCK_FILE)
            for entry in self.versions_folder.iterdir():  # delete only files that nova wrote
                if entry.name.isdigit():
                    shutil.rmtree(entry)
                elif entry.name in own_files or entry.name.startswith(_PARTS_PREFIX) or entry.is_symlink():
                    entry.unlink()
            self.versions_folder.rmdir()

    def _version_folder(self, number: int) -> Path:
        return self.versions_folder / f"{number:08d}"

    def _parts_file(self, number: int) -> Path:
        return self.versions_folder / f"{_PARTS_PREFIX}{number:08d}.json"

    def _layout_for(self, content: PublishedContent) -> TableFileLayout | None:
        """Layout of the files of a new version; None for links to the channel's own files.

        A folder that is taken over gives the layout, and all later versions keep it.
        """
        layout_file = self.versions_folder / _LAYOUT_FILE
        if self.path.is_dir() and not self.path.is_symlink():
            if is_table(self.path, self.format or "parquet"):
                existing = inspect_folder(local_files(self.path), self.format or "parquet")
                check_partition_columns(existing, [d.column for d in content.dimensions], content.channel)
                layout = layout_of_folder(existing, self.format or "parquet", content.schema)
                self._write_file(layout_file, json.dumps(layout.as_json()))
                return layout
        elif layout_file.exists():
            layout = TableFileLayout.from_json(json.loads(layout_file.read_text(encoding="utf-8")))
            if self.format in (None, layout.format):
                return layout
        if self.format is None:
            return None
        path_columns = tuple(d.column for d in content.dimensions)
        return TableFileLayout(self.format, path_columns, suffix=FILE_SUFFIXES[self.format])

    def _write_converted(
        self, number: int, content: PublishedContent, layout: TableFileLayout, convert: PartitionConverter | None
    ) -> None:
        assert convert is not None, "a table with converted files needs a converter"
        published = self.published_version()
        previous_parts: dict[str, EditionPart] = {}
        if published is not None and self._parts_file(published).exists():
            previous_parts = parts_from_json(self._parts_file(published).read_text(encoding="utf-8"))
        previous_folder = None if published is None else self._version_folder(published)
        parts = write_converted_edition(
            self._version_folder(number), content, layout, convert, previous_folder, previous_parts
        )
        self._write_file(self._parts_file(number), parts_to_json(parts))

    def _write_file(self, path: Path, text: str) -> None:
        """Write a small file at once: readers see the old text or the new text."""
        unfinished = path.with_name(f"{_OWNER_FILE}.{path.name}-{os.getpid()}")
        unfinished.write_text(text, encoding="utf-8")
        os.replace(unfinished, path)

    def _write_owner_file(self) -> None:
        self.versions_folder.mkdir(parents=True, exist_ok=True)
        owner_file = self.versions_folder / _OWNER_FILE
        if not owner_file.exists():
            self._write_file(owner_file, json.dumps({"of": self.owner}))

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
        check_owner(self.versions_folder, owner, self.owner)

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
        fsync_paths(self.path.parent)

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
