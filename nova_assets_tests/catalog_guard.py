"""A guard for the files of open SQLite catalogs: only SQLite may open, rename, link, shorten or remove them.

POSIX drops every lock of a process on a file when the process closes any descriptor of that file, so one ``open()`` of
an open catalog can destroy it ("How To Corrupt An SQLite Database File", section 2.2).

An audit hook sees each call of Python on a file. It reports a call on the file, ``-wal`` or ``-shm`` of a catalog that
this process has open, if code of the package is on the stack. Native code escapes the hook. Therefore the guard also
reports open descriptors of a catalog's file that was deleted.

Processes that a guarded process starts are guarded, too: they import a copy of this file as ``sitecustomize``. So this
module uses the standard library alone. The guard needs Linux: elsewhere it reports nothing.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

REPORT_VARIABLE = "CATALOG_GUARD_REPORT"
"""Report of a process and of those that it starts. The name does not begin with ``NOVA_``: settings do."""

DELETED_VARIABLE = "CATALOG_GUARD_EXPECTS_DELETED"
"""Set for processes that are expected to have deleted files open at their end."""

_SUFFIXES = ("", "-wal", "-shm")
_DELETED = " (deleted)"
_DESCRIPTORS = "/proc/self/fd"
_OWNERS = ("nova_assets", "nova_assets_tests", "dagster")
"""Packages that open SQLite files. The innermost of them on the stack owns a connection."""

_CLOSING = 2.0
"""Seconds that another thread has to end what deletes a file before its descriptor is closed.

SQLite does so with the ``-wal`` and ``-shm`` of its last connection. The garbage collector, which may run in any
thread, does so with the folder of a test.
"""

_OWN_FILE = sys._getframe().f_code.co_filename

_RUNNING = "_nova_catalog_guard"
"""Attribute of ``sys`` that holds the guard of this process. ``sitecustomize`` and the tests load this file twice."""


class CatalogGuard:
    """The guard of one process.

    Args:
        report: file to which findings are appended, one JSON object per line.
        expects_deleted: whether deleted files may be open when the process ends.
    """

    def __init__(self, report: Path, expects_deleted: bool = False) -> None:
        self.report = report
        self._expects_deleted = expects_deleted
        self._names: set[str] = set()
        """Names, without folders, of the files of each catalog that this process has opened."""
        self._reported_or_expected: set[tuple[int, int]] = set()
        """Device and inode of deleted files."""
        self._reported_calls: set[tuple[str, str, tuple[str, ...]]] = set()
        self._handlers: dict[str, Callable[[tuple[Any, ...]], None]] = {
            "open": self._on_open,
            "os.rename": self._on_rename,
            "os.remove": lambda args: self._check("os.remove", args[0], args[1]),
            "os.link": lambda args: self._check("os.link", args[0], args[2]),
            "os.truncate": lambda args: self._check("os.truncate", args[0]),
            "sqlite3.connect": self._on_connect,
            "subprocess.Popen": self._on_start_of_process,
        }

    def audit(self, event: str, args: tuple[Any, ...]) -> None:
        """Handle an audit event of Python."""
        handler = self._handlers.get(event)
        if handler is not None:
            handler(args)

    def report_deleted_files(self) -> None:
        """Report each open descriptor of a catalog's file that was deleted, once."""
        found = self._deleted_files()
        if not self._expects_deleted:
            closed_until = time.monotonic() + _CLOSING
            while found.keys() - self._reported_or_expected and time.monotonic() < closed_until:
                time.sleep(0.05)
                found = {identity: link for identity, link in self._deleted_files().items() if identity in found}
            for identity in found.keys() - self._reported_or_expected:
                self._report("open at the end", found[identity], ())
        self._reported_or_expected |= found.keys()

    def _deleted_files(self) -> dict[tuple[int, int], str]:
        """Link of each open descriptor of a catalog's file that was deleted, by device and inode.

        A test that removes its whole folder need not close its store first.
        """
        deleted = {}
        for link, identity in _open_files():
            path = link.removesuffix(_DELETED)
            if path != link and os.path.basename(path) in self._names and os.path.isdir(os.path.dirname(path)):
                deleted[identity] = link
        return deleted

    @contextmanager
    def expected_deleted_files(self) -> Iterator[None]:
        """Catalog files that are deleted while they are open in this block are not reported.

        Processes that are started in the block may end with deleted files, too.
        """
        before, self._expects_deleted = self._expects_deleted, True
        self.set_environment(os.environ)
        try:
            yield
        finally:
            self.report_deleted_files()  # reports none of them, now or later
            self._expects_deleted = before
            self.set_environment(os.environ)

    @contextmanager
    def reporting_to(self, report: Path) -> Iterator[None]:
        """Within this block, findings of this process and of those that it starts go to another file."""
        before, self.report = self.report, report
        calls, self._reported_calls = self._reported_calls, set()
        self.set_environment(os.environ)
        try:
            yield
        finally:
            self.report, self._reported_calls = before, calls
            self.set_environment(os.environ)

    def set_environment(self, environment: MutableMapping[str, str]) -> None:
        """Add to the environment of a process all that makes its Python start a guard."""
        folder = str(_folder_of_site(self.report))
        paths = [p for p in environment.get("PYTHONPATH", "").split(os.pathsep) if p and not _is_folder_of_site(p)]
        environment["PYTHONPATH"] = os.pathsep.join([*paths, folder])
        environment[REPORT_VARIABLE] = str(self.report)
        environment.pop(DELETED_VARIABLE, None)
        if self._expects_deleted:
            environment[DELETED_VARIABLE] = "expected"

    def _on_open(self, args: tuple[Any, ...]) -> None:
        if self._names and isinstance(args[0], str | bytes | os.PathLike):  # not the number of a descriptor
            self._check("open", args[0])

    def _on_rename(self, args: tuple[Any, ...]) -> None:
        self._check("os.rename", args[0], args[2])
        self._check("os.rename", args[1], args[3])
        renamed = _absolute_path(args[0], args[2])
        if not self._names or not os.path.isdir(renamed):
            return
        inside = os.path.realpath(renamed) + "/"
        for link, _ in _open_files():
            if link.startswith(inside) and os.path.basename(link) in self._names and _is_package_on_stack():
                self._report("os.rename of its folder", link, _describe_stack())
                return

    def _on_connect(self, args: tuple[Any, ...]) -> None:
        database = os.fsdecode(args[0])
        if database in ("", ":memory:") or not _is_opened_by_catalog():
            return
        if database.startswith("file:"):
            database = database[len("file:") :].partition("?")[0]
        file = os.path.realpath(database)
        self._names.update(os.path.basename(name) + s for name in (file, database) for s in _SUFFIXES)

    def _on_start_of_process(self, args: tuple[Any, ...]) -> None:
        environment = args[3]
        if isinstance(environment, dict):
            self.set_environment(environment)

    def _check(self, event: str, path: Any, folder: int = -1) -> None:
        """Report a call of the package on a file of an open catalog."""
        name = path if isinstance(path, str) else os.fsdecode(path)
        if name.rpartition("/")[2] not in self._names:
            return
        file = _absolute_path(name, folder)
        try:
            status = os.stat(file)
        except OSError:
            return
        is_open = any(identity == (status.st_dev, status.st_ino) for _, identity in _open_files())
        if is_open and _is_package_on_stack() and not _is_temporary_folder_removed():
            self._report(event, file, _describe_stack())

    def _report(self, event: str, path: str, stack: tuple[str, ...]) -> None:
        """Append a finding to the report. A call that is repeated is reported once."""
        if (event, path, stack) in self._reported_calls:
            return
        self._reported_calls.add((event, path, stack))
        finding = {"pid": os.getpid(), "command": sys.argv[:], "event": event, "path": path, "stack": stack}
        try:  # several processes append to the file: each finding is one write
            descriptor = os.open(self.report, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        except FileNotFoundError:  # the session of tests is over, and its folder is removed
            return
        try:
            os.write(descriptor, json.dumps(finding).encode() + b"\n")
        finally:
            os.close(descriptor)


def start_guard(report: Path, expects_deleted: bool = False) -> CatalogGuard:
    """The guard of this process, and of all that it starts. Where one runs already, that one."""
    running: CatalogGuard | None = vars(sys).get(_RUNNING)
    if running is not None:
        return running
    guard = CatalogGuard(report, expects_deleted)
    vars(sys)[_RUNNING] = guard
    if os.path.isdir(_DESCRIPTORS):
        sys.addaudithook(guard.audit)
        atexit.register(guard.report_deleted_files)
    return guard


def running_guard() -> CatalogGuard:
    """The guard of this process, which the session of tests has started."""
    guard: CatalogGuard = vars(sys)[_RUNNING]
    return guard


def prepare_report(folder: Path) -> Path:
    """Report file in an empty folder, beside the ``sitecustomize`` that starts guards that write to the file."""
    site = _folder_of_site(folder / "catalog-guard.jsonl")
    site.mkdir(parents=True)
    (site / "sitecustomize.py").write_bytes(Path(__file__).read_bytes())
    return folder / "catalog-guard.jsonl"


def read_findings(report: Path, offset: int = 0) -> tuple[list[str], int]:
    """Findings of a report from an offset on, each as text, and the offset at which the next begin."""
    try:
        with report.open("rb") as file:
            file.seek(offset)
            lines = file.read()
    except FileNotFoundError:
        return [], offset
    whole = lines[: lines.rfind(b"\n") + 1]
    return [_describe_finding(json.loads(line)) for line in whole.splitlines()], offset + len(whole)


def _describe_finding(finding: dict[str, Any]) -> str:
    head = f"{finding['event']}: {finding['path']}, by process {finding['pid']} ({' '.join(finding['command'])})"
    return "\n".join([head, *(f"    {line}" for line in finding["stack"])])


def _folder_of_site(report: Path) -> Path:
    return report.with_name("catalog-guard-site")


def _is_folder_of_site(path: str) -> bool:
    return os.path.basename(path) == "catalog-guard-site"


def _absolute_path(path: Any, folder: int) -> str:
    name = os.fsdecode(path)
    if folder is not None and folder >= 0 and not os.path.isabs(name):
        return os.path.join(os.readlink(f"{_DESCRIPTORS}/{folder}"), name)
    return os.path.abspath(name)


def _open_files() -> Iterator[tuple[str, tuple[int, int]]]:
    """Path, device and inode of each open file of this process."""
    for descriptor in os.listdir(_DESCRIPTORS):
        try:
            link = os.readlink(f"{_DESCRIPTORS}/{descriptor}")
            status = os.fstat(int(descriptor))
        except OSError:  # closed meanwhile
            continue
        yield link, (status.st_dev, status.st_ino)


def _frames() -> Iterator[FrameType]:
    """Frames of the caller of the guard, innermost first."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename != _OWN_FILE:
            yield frame
        frame = frame.f_back


def _module_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _is_package_on_stack() -> bool:
    return any(_module_of(frame).partition(".")[0] == "nova_assets" for frame in _frames())


def _is_temporary_folder_removed() -> bool:
    """Whether Python's garbage collection removes the temporary folder of a test, which it may do at any moment."""
    return any(_module_of(frame) == "tempfile" for frame in _frames())


def _is_opened_by_catalog() -> bool:
    """Whether a connection belongs to a catalog, and not to Dagster, a file view or a test."""
    for frame in _frames():
        if _module_of(frame).partition(".")[0] in _OWNERS:
            return _module_of(frame).startswith("nova_assets.catalog")
    return False


def _describe_stack() -> tuple[str, ...]:
    return tuple(f"{f.f_code.co_filename}:{f.f_lineno} {f.f_code.co_name}" for f in _frames())[:40]


if __name__ == "sitecustomize" and REPORT_VARIABLE in os.environ:
    start_guard(Path(os.environ[REPORT_VARIABLE]), DELETED_VARIABLE in os.environ)
