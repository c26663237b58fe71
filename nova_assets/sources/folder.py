"""Files that arrive in a folder: announced by the operating system for as long as somebody watches, else looked for."""

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
from nova_assets.formats.input_file import File
from nova_assets.model.arrival import Arrival
from nova_assets.model.file_source import Files
from nova_assets.model.period import seconds_of
from nova_assets.sources.hour_folders import folders
from nova_assets.sources.inbox import Changed, Gone, Notice, Outside

_CLOCKS = 60.0
"""Seconds by which the clock of who writes may be ahead."""

_STRAY = re.compile("[\udc80-\udcff]")
_ESCAPED = re.compile(r"\\(\\|x[0-9a-f]{2})")


class Folder:
    """A local or mounted folder.

    Args:
        root: the source's location.
        watch: have the operating system tell of changes from now on. Over a network it tells of those alone that are
            made on this machine.
    """

    is_local = True

    def __init__(self, source: Files, root: Path, *, watch: bool = False) -> None:
        self.source = source
        self.root = root
        self.settled = float(seconds_of(source.settled) or 0)
        self._changed: set[str] = set()
        self._lock = threading.Lock()
        self._observer: Any = None
        _check(root)
        if watch:
            self._watch()

    def has_news(self) -> bool:
        """Whether a file was told of that is not being written any more."""
        return bool(self.poll(1))

    def poll(self, limit: int) -> list[Notice]:
        """Files of which the operating system has told, and that are not being written any more."""
        with self._lock:
            paths = sorted(self._changed)
        found: list[Notice] = []
        for path in paths:
            arrival = self._arrival(path) if len(found) < limit else None
            if arrival is not None:
                found.append(Notice((arrival,), path))
            elif not os.path.lexists(self._path(path)):
                self._forget(path)
        return found

    def acknowledge(self, notices: Sequence[Notice]) -> None:
        """Nothing is kept for them; a file that has changed since is told of again."""
        for notice in notices:
            if not os.path.lexists(self._path(notice.receipt)) or self._arrival(notice.receipt) in notice.arrivals:
                self._forget(notice.receipt)

    def look(self, now: datetime, since: datetime | None) -> Iterator[Arrival]:
        """Every file in the folders of the last hours."""
        _check(self.root)
        for folder in folders(self.source, now, since):
            for path in self._walk(folder):
                arrival = self._arrival(path)
                if arrival is not None:
                    yield arrival

    @contextmanager
    def fetch(self, arrival: Arrival) -> Iterator[File]:
        """The file where it is. It may be replaced meanwhile, so it is looked at once more when it has been read."""
        path = self._inside(arrival.path)
        self._is_still(arrival, path)
        yield File(path, arrival.path, self.source.largest)
        self._is_still(arrival, path)

    def close(self) -> None:
        """Stop watching."""
        if self._observer is not None:
            self._observer.stop()
            self._observer.join()

    def _forget(self, path: str) -> None:
        with self._lock:
            self._changed.discard(path)

    def _watch(self) -> None:
        from watchdog.events import FileSystemEvent, FileSystemEventHandler
        from watchdog.observers import Observer

        seen = self

        class Handler(FileSystemEventHandler):
            def on_any_event(self, event: FileSystemEvent) -> None:
                for raw in (event.src_path, event.dest_path):
                    if raw and not event.is_directory:
                        seen._note(Path(os.fsdecode(raw)))
                    elif raw and event.event_type in ("created", "moved"):
                        seen._note_all(Path(os.fsdecode(raw)))

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

    def _note(self, path: Path) -> None:
        with suppress(ValueError):
            self._add(_as_shown(path.relative_to(self.root).as_posix()))

    def _add(self, path: str) -> None:
        if self.source.takes(path):
            with self._lock:
                self._changed.add(path)

    def _note_all(self, folder: Path) -> None:
        """A folder that was moved here has files of which nobody tells. One that cannot be read is for the next look to
        complain of: here it would end the watching."""
        with suppress(ValueError, SourceUnavailable):
            for path in self._walk(folder.relative_to(self.root).as_posix().removeprefix(".")):
                self._add(path)

    def _walk(self, folder: str) -> Iterator[str]:
        """Paths of the files in a folder and those below, in order; nothing where there is none."""
        top = self.root / folder
        for where, names, files in os.walk(top, onerror=self._unreadable, followlinks=False):
            names.sort()
            for file in sorted(files):
                path = _as_shown(Path(where, file).relative_to(self.root).as_posix())
                if self.source.takes(path):
                    yield path

    def _unreadable(self, error: OSError) -> None:
        """A folder that is gone holds nothing; of one that cannot be read nobody knows."""
        if not isinstance(error, FileNotFoundError):
            raise SourceUnavailable(
                f"folder {error.filename} cannot be read",
                found=str(error),
                next="check who may read it",
                location=str(self.root),
            ) from error

    def _arrival(self, path: str) -> Arrival | None:
        """The file as it is now; None where it is no file, or still being written."""
        try:
            found = os.stat(self._path(path))
        except OSError as error:
            if not self._path(path).is_symlink():  # a link to nowhere, or in a circle, is no file
                self._unreadable(error)
            return None
        ago = time.time() - found.st_mtime
        if not stat.S_ISREG(found.st_mode) or -_CLOCKS < ago < self.settled:
            return None
        return _arrival(path, found)

    def _is_still(self, arrival: Arrival, path: Path) -> None:
        try:
            now = _arrival(arrival.path, os.stat(path))
        except FileNotFoundError as error:
            raise Gone(f"{arrival.path}: the file was deleted before it was read", path=arrival.path) from error
        except OSError as error:
            raise SourceUnavailable(
                f"{arrival.path} cannot be read",
                found=str(error),
                next="check who may read it",
                location=str(self.root),
            ) from error
        if now.version != arrival.version:
            raise Changed(
                f"{arrival.path}: the file was changed after it was announced",
                found=now.version,
                expected=arrival.version,
                path=arrival.path,
            )

    def _inside(self, path: str) -> Path:
        """Where a file is, if that is below the root, whatever links there are on the way."""
        real = self._path(path).resolve()
        if not real.is_relative_to(self.root.resolve()):
            raise Outside(f"{path}: the path leads out of {self.root}", found=str(real), path=path)
        return self._path(path)

    def _path(self, shown: str) -> Path:
        return self.root / _as_named(shown)


def _as_shown(name: str) -> str:
    """A name as it can be stored: of one that is no UTF-8, the bytes in question as ``\\xNN``."""
    if "\\x" not in name and not _STRAY.search(name):
        return name
    return _STRAY.sub(lambda m: f"\\x{ord(m[0]) - 0xDC00:02x}", name.replace("\\", "\\\\"))


def _as_named(shown: str) -> str:
    """The name that was shown so."""
    if "\\x" not in shown:
        return shown
    return _ESCAPED.sub(lambda m: "\\" if m[1] == "\\" else chr(0xDC00 + int(m[1][1:], 16)), shown)


def _arrival(path: str, found: os.stat_result) -> Arrival:
    changed = datetime.fromtimestamp(found.st_mtime, UTC)
    return Arrival(path, f"{found.st_size}-{found.st_mtime_ns}", found.st_size, changed)


def _check(root: Path) -> None:
    try:
        os.scandir(root).close()
    except OSError as error:
        raise SourceUnavailable(
            f"folder {root}, from which files arrive, cannot be read",
            found=str(error),
            expected="a folder that may be read",
            next=f"mkdir -p {root}, or name another location",
            location=str(root),
        ) from error
