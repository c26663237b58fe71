"""Inbox of a local folder. The operating system announces files while a process watches; a listing finds the rest."""

from __future__ import annotations

import os
import re
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nova_assets.errors import SourceUnavailable
from nova_assets.formats.input_file import InputFile
from nova_assets.model.arrival import Arrival
from nova_assets.model.file_source import Files
from nova_assets.model.period import period_seconds
from nova_assets.sources.inbox import Notice, PathEscapesSource, SourceFileChanged, SourceFileMissing, folders_to_list

_MAX_CLOCK_SKEW_SECONDS = 60.0
"""Seconds by which the writer's clock may be ahead."""

_SURROGATE_PATTERN = re.compile("[\udc80-\udcff]")
_ESCAPE_PATTERN = re.compile(r"\\(\\|x[0-9a-f]{2})")


class FolderInbox:
    """Inbox of a local or mounted folder.

    Args:
        source: declaration of the files.
        root: absolute path of the source's location.
        watch: watch the folder for changes from now on. On a network mount, the operating system announces only changes
            made on this machine.

    Raises:
        SourceUnavailable: the folder cannot be read or watched.
    """

    is_local = True

    def __init__(self, source: Files, root: Path, *, watch: bool = False) -> None:
        self.source = source
        self.root = root
        self.settle_seconds = float(period_seconds(source.min_age) or 0)
        self._changed_paths: set[str] = set()
        self._lock = threading.Lock()
        self._observer: Any = None
        _check_folder_readable(root)
        if watch:
            self._start_watching()

    def has_notices(self) -> bool:
        """Whether a changed file has settled."""
        return bool(self.poll(1))

    def poll(self, limit: int) -> list[Notice]:
        """Notices of at most ``limit`` changed files that have settled. Does not wait."""
        with self._lock:
            paths = sorted(self._changed_paths)
        notices: list[Notice] = []
        for path in paths:
            arrival = self._settled_arrival(path) if len(notices) < limit else None
            if arrival is not None:
                notices.append(Notice((arrival,), path))
            elif not os.path.lexists(self._local_path(path)):
                self._forget_changed_path(path)
        return notices

    def acknowledge(self, notices: Sequence[Notice]) -> None:
        """Forget the files of the notices. A file that has changed since its notice is announced again."""
        for notice in notices:
            if (
                not os.path.lexists(self._local_path(notice.receipt))
                or self._settled_arrival(notice.receipt) in notice.arrivals
            ):
                self._forget_changed_path(notice.receipt)

    def list_arrivals(self, now: datetime, last_listing_at: datetime | None) -> Iterator[Arrival]:
        """List every settled file in the folders of the last hours (see ``Inbox.list_arrivals``)."""
        _check_folder_readable(self.root)
        for folder in folders_to_list(self.source, now, last_listing_at):
            for path in self._walk_paths_of_source(folder):
                arrival = self._settled_arrival(path)
                if arrival is not None:
                    yield arrival
                elif self._observer is not None:
                    self._add_changed_path(path)  # it may have changed before the folder was watched

    @contextmanager
    def fetch(self, arrival: Arrival) -> Iterator[InputFile]:
        """Open the file in place. Its version is checked again after the read, because the file may be replaced."""
        path = self._path_inside_root(arrival.path)
        self._check_unchanged(arrival, path)
        yield InputFile(path, arrival.path, self.source.max_bytes)
        self._check_unchanged(arrival, path)

    def close(self) -> None:
        """Stop watching the folder."""
        if self._observer is not None:
            self._observer.stop()
            self._observer.join()

    def _forget_changed_path(self, path: str) -> None:
        with self._lock:
            self._changed_paths.discard(path)

    def _start_watching(self) -> None:
        from watchdog.events import FileSystemEvent, FileSystemEventHandler
        from watchdog.observers import Observer

        inbox = self

        class Handler(FileSystemEventHandler):
            def on_any_event(self, event: FileSystemEvent) -> None:
                for raw in (event.src_path, event.dest_path):
                    if raw and not event.is_directory:
                        inbox._add_changed_file(Path(os.fsdecode(raw)))
                    elif raw and event.event_type in ("created", "moved"):
                        inbox._add_changed_folder(Path(os.fsdecode(raw)))

        self._observer = Observer()
        try:
            self._observer.schedule(Handler(), str(self.root), recursive=True)
            self._observer.start()
        except OSError as error:
            raise SourceUnavailable(
                f"folder {self.root} cannot be watched",
                found=str(error),
                next="raise fs.inotify.max_user_watches, or receive without --follow",
                location=str(self.root),
            ) from error

    def _add_changed_file(self, path: Path) -> None:
        with suppress(ValueError):
            self._add_changed_path(_encode_file_name(path.relative_to(self.root).as_posix()))

    def _add_changed_path(self, path: str) -> None:
        if self.source.takes(path):
            with self._lock:
                self._changed_paths.add(path)

    def _add_changed_folder(self, folder: Path) -> None:
        """Record all files of a new folder, because the operating system does not announce the files of a moved folder.

        An unreadable folder is ignored here, because an error would end the watching. The next listing reports it.
        """
        with suppress(ValueError, SourceUnavailable):
            for path in self._walk_paths_of_source(folder.relative_to(self.root).as_posix().removeprefix(".")):
                self._add_changed_path(path)

    def _walk_paths_of_source(self, folder: str) -> Iterator[str]:
        """Paths of the source's files in a folder and its subfolders, sorted; empty for a missing folder."""
        top = self.root / folder
        for parent, folder_names, files in os.walk(top, onerror=self._raise_unless_missing, followlinks=False):
            folder_names.sort()
            for file in sorted(files):
                path = _encode_file_name(Path(parent, file).relative_to(self.root).as_posix())
                if self.source.takes(path):
                    yield path

    def _raise_unless_missing(self, error: OSError) -> None:
        """Ignore a missing file or folder, and raise SourceUnavailable for any other error."""
        if not isinstance(error, FileNotFoundError):
            raise SourceUnavailable(
                f"folder {error.filename} cannot be read",
                found=str(error),
                next="check the permissions of the folder",
                location=str(self.root),
            ) from error

    def _settled_arrival(self, path: str) -> Arrival | None:
        """Arrival for the current version of a file; None for a path that is no file or is still being written."""
        try:
            stat_result = os.stat(self._local_path(path))
        except OSError as error:
            if not self._local_path(path).is_symlink():  # a dangling or circular link is no file
                self._raise_unless_missing(error)
            return None
        age = time.time() - stat_result.st_mtime
        if not stat.S_ISREG(stat_result.st_mode) or -_MAX_CLOCK_SKEW_SECONDS < age < self.settle_seconds:
            return None
        return _arrival_from_stat(path, stat_result)

    def _check_unchanged(self, arrival: Arrival, path: Path) -> None:
        try:
            current = _arrival_from_stat(arrival.path, os.stat(path))
        except FileNotFoundError as error:
            raise SourceFileMissing(
                f"{arrival.path}: the file was deleted before it was read", path=arrival.path
            ) from error
        except OSError as error:
            raise SourceUnavailable(
                f"{arrival.path} cannot be read",
                found=str(error),
                next="check the permissions of the file",
                location=str(self.root),
            ) from error
        if current.version != arrival.version:
            raise SourceFileChanged(
                f"{arrival.path}: the file was changed after it was announced",
                found=current.version,
                expected=arrival.version,
                path=arrival.path,
            )

    def _path_inside_root(self, path: str) -> Path:
        """Local path of a file. Raises PathEscapesSource if a symbolic link leads out of the root."""
        resolved = self._local_path(path).resolve()
        if not resolved.is_relative_to(self.root.resolve()):
            raise PathEscapesSource(f"{path}: the path leads out of {self.root}", found=str(resolved), path=path)
        return self._local_path(path)

    def _local_path(self, encoded_name: str) -> Path:
        return self.root / _decode_file_name(encoded_name)


def _encode_file_name(name: str) -> str:
    """File name as storable text. Bytes that are not UTF-8 become ``\\xNN``."""
    if "\\x" not in name and not _SURROGATE_PATTERN.search(name):
        return name
    return _SURROGATE_PATTERN.sub(lambda m: f"\\x{ord(m[0]) - 0xDC00:02x}", name.replace("\\", "\\\\"))


def _decode_file_name(encoded_name: str) -> str:
    """Original file name of an encoded name."""
    if "\\x" not in encoded_name:
        return encoded_name
    return _ESCAPE_PATTERN.sub(lambda m: "\\" if m[1] == "\\" else chr(0xDC00 + int(m[1][1:], 16)), encoded_name)


def _arrival_from_stat(path: str, stat_result: os.stat_result) -> Arrival:
    modified_at = datetime.fromtimestamp(stat_result.st_mtime, UTC)
    return Arrival(path, f"{stat_result.st_size}-{stat_result.st_mtime_ns}", stat_result.st_size, modified_at)


def _check_folder_readable(root: Path) -> None:
    try:
        os.scandir(root).close()
    except OSError as error:
        raise SourceUnavailable(
            f"folder {root}, from which files arrive, cannot be read",
            found=str(error),
            expected="a readable folder",
            next=f"mkdir -p {root}, or declare another location",
            location=str(root),
        ) from error
