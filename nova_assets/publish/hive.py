"""A channel as a folder that every tool of the field can read: Hive's layout, of hard links to the channel's own files.

exports/actions -> .actions/00000012          the newest edition: a link, changed in one step
exports/.actions/00000011/...                 the one before, for who reads it still
exports/.actions/00000012/dt=2024-01-01/action=login/1f0c...-part-00000.parquet
                                    .../_SUCCESS      the day is sealed
                         /_SUCCESS                    the edition is whole
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import shutil
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow.parquet as pq

from nova_assets.crash_points import crash_point
from nova_assets.errors import CommitConflict, NotSupported, TableTaken, TableUnavailable
from nova_assets.model.arrow_types import to_arrow
from nova_assets.model.partitions import partition_values
from nova_assets.model.published_version import Content

DONE = "_SUCCESS"
_MINE = ".nova.json"
_LOCK = ".lock"
_NULL = "__HIVE_DEFAULT_PARTITION__"
_NO_ROWS = "no-rows.parquet"
_ESCAPED = frozenset("\"#%'*/:=?\\{}[]^") | {chr(n) for n in (*range(32), 127)}
_LONGEST = 255  # bytes, of one name in most file systems


class HiveFolder:
    """The folder of one channel.

    Args:
        path: where readers find it.
        off: folders that it may have nothing in common with: of all blocks, and of the deployment itself.
        owner: tells whose it is: the catalog and the channel.
    """

    def __init__(self, path: Path, off: Sequence[Path], owner: str) -> None:
        self.path = Path(os.path.abspath(path))
        self.editions = self.path.with_name(f".{self.path.name}.editions")
        self.off = off
        self.owner = owner

    def check(self, *, take_over: bool = False) -> None:
        with self._reaching():
            for mine in (self.path.parent.resolve() / self.path.name, self.editions):
                for theirs in (f.resolve() for f in self.off):
                    if mine.is_relative_to(theirs) or theirs.is_relative_to(mine):
                        raise TableTaken(
                            f"{self.path} cannot be published in",
                            found=f"{theirs}, which is of the deployment itself",
                            expected="a folder outside of it",
                            path=str(self.path),
                        )
            self._refuse_strangers()
            self._refuse_what_is_there(take_over)

    def shown(self) -> int | None:
        try:
            leads_to = Path(os.readlink(self.path))
        except OSError:
            return None
        mine = leads_to.parent == Path(self.editions.name) and leads_to.name.isdigit()
        return int(leads_to.name) if mine else None

    def is_whole(self, number: int) -> bool:
        return (self._tree(number) / DONE).exists()

    def show(self, number: int, content: Content, where: Sequence[str], *, take_over: bool = False) -> None:
        self.check(take_over=take_over)
        with self._reaching():
            self._refuse_if_later(number)
            self._sign()
            tree = self._tree(number)
            if tree.exists():  # of an attempt that died
                shutil.rmtree(tree)
            tree.mkdir()
            _fill(tree, content, where)
            crash_point("edition.made")
            with self._alone():
                self._refuse_if_later(number)
                self._refuse_what_is_there(take_over)
                if not (tree / DONE).exists():
                    raise CommitConflict(f"{tree} was cleaned up meanwhile", reason="edition")
                self._turn_to(tree)

    def forget(self, numbers: Collection[int]) -> None:
        with self._reaching(), self._alone():
            shown = self.shown()
            for number in numbers:
                if number != shown and (tree := self._tree(number)).exists():
                    shutil.rmtree(tree)

    def withdraw(self) -> None:
        with self._reaching():
            self._refuse_strangers()
            if self.shown() is not None:
                self.path.unlink()
            if not self.editions.exists():
                return
            for found in self.editions.iterdir():  # nothing but what was put there
                if found.name.isdigit():
                    shutil.rmtree(found)
                elif found.name in (_MINE, _LOCK) or found.is_symlink():
                    found.unlink()
            self.editions.rmdir()

    def _tree(self, number: int) -> Path:
        return self.editions / f"{number:08d}"

    def _sign(self) -> None:
        self.editions.mkdir(parents=True, exist_ok=True)
        signed = self.editions / _MINE
        if not signed.exists():
            unfinished = signed.with_name(f"{_MINE}.{os.getpid()}")
            unfinished.write_text(json.dumps({"of": self.owner}), encoding="utf-8")
            unfinished.rename(signed)

    def _refuse_strangers(self) -> None:
        """Editions of another channel, or of another deployment, are left alone."""
        if not os.path.lexists(self.editions):
            return
        there = [p.name for p in self.editions.iterdir()] if self.editions.is_dir() else ["no folder"]
        if not [name for name in there if not name.startswith(f"{_MINE}.")]:
            return  # of one who died before he signed
        try:
            owner = json.loads((self.editions / _MINE).read_text(encoding="utf-8"))["of"]
        except (OSError, ValueError, KeyError, TypeError):
            owner = "nobody who says so"
        if owner != self.owner:
            raise TableTaken(
                f"{self.editions} is there already, and is not of this channel",
                found=f"a folder of {owner}",
                expected=f"nothing, or one of {self.owner}",
                next="publish elsewhere, or move it away",
                path=str(self.editions),
            )

    def _refuse_what_is_there(self, take_over: bool) -> None:
        if not os.path.lexists(self.path) or self.shown() is not None:
            return
        link = self.path.is_symlink()
        if take_over and not link and self.path.is_dir():
            return
        raise TableTaken(
            f"{self.path} is there already, and is not of this channel",
            found=f"a link to {os.readlink(self.path)}" if link else "a folder" if self.path.is_dir() else "a file",
            expected="nothing, or what was published there before",
            next="publish elsewhere, or move it away"
            if link or not self.path.is_dir()
            else "publish elsewhere; or, where its readers are to see the channel instead of what is there now: "
            "nova publish CHANNEL --take-over",
            path=str(self.path),
        )

    def _refuse_if_later(self, number: int) -> None:
        shown = self.shown()
        if shown is not None and shown >= number:
            raise CommitConflict(
                f"{self.path} shows a later edition",
                found=shown,
                expected=f"one before {number}",
                next="publish again",
                reason="edition",
            )

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """A block in which no other process turns readers: one that has slept through its lease may still be about
        to."""
        if not self.editions.exists():
            yield
            return
        with (self.editions / _LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _turn_to(self, tree: Path) -> None:
        """Have readers find this edition from now on, in one step. A folder that gives way is under its own new name
        by the same step."""
        leads_to = Path(self.editions.name) / tree.name
        if self.path.is_dir() and not self.path.is_symlink():
            before = self.path.with_name(f"{self.path.name}.before-{time.strftime('%Y%m%dT%H%M%S')}")
            before.unlink(missing_ok=True)
            before.symlink_to(leads_to)
            crash_point("edition.exchanging")
            _exchange(before, self.path)
        else:
            link = self.editions / f"{_MINE}.{tree.name}-{os.getpid()}"
            link.unlink(missing_ok=True)
            link.symlink_to(leads_to)
            os.replace(link, self.path)
        _sync(self.path.parent)

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise TableUnavailable(
                f"{self.path} cannot be published in",
                found=f"{error.strerror or error}" + (f" ({error.filename})" if error.filename else ""),
                expected="a folder that this user can write",
                next="mend that; readers see what they saw before",
                path=str(self.path),
            ) from error


def hive_folder(partition: str, content: Content) -> str:
    """The folder of a partition in Hive's layout: ``dt=2024-01-01/action=a%2Fb``. Moments are in UTC, as their files
    have them.

    Raises:
        NotSupported: a value is a text that readers of such folders take for null, or too long for a folder's name.
    """
    parts = [f"{_escape(c)}={_value(c, v, content)}" for c, v in partition_values(partition).items()]
    for part in parts:
        if len(part.encode()) > _LONGEST:
            raise NotSupported(
                f"a partition cannot be the name of a folder: it has {len(part.encode())} bytes",
                found=f"{part[:60]}...",
                expected=f"at most {_LONGEST} bytes for one column and its value",
                next="publish as an Iceberg table instead, or partition by a shorter column",
            )
    return "/".join(parts)


def _value(column: str, value: str | None, content: Content) -> str:
    if value is None:
        return _NULL
    if value in ("", _NULL):
        raise NotSupported(
            f"a partition cannot be the name of a folder: {column} is {repr(value) if value else 'empty'}",
            found=f"{'the' if value else 'an empty'} text, which readers of such folders take for null",
            expected="another text, or null",
            next="publish as an Iceberg table instead",
        )
    hours = {d.column: d.tz for d in content.dimensions if d.kind == "hourly"}
    kind = content.schema.field(column).type.name if column in hours and column in content.schema else "string"
    if kind == "string":
        return _escape(value)
    moment = datetime.fromisoformat(value)
    if kind == "timestamp":
        zone = ZoneInfo(hours[column] or "UTC")
        moment = (moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)).astimezone(UTC)
    return _escape(moment.strftime("%Y-%m-%d %H:%M:%S"))


def _escape(text: str) -> str:
    """As Hive and Spark write it, and everybody reads it."""
    return "".join(f"%{ord(c):02X}" if c in _ESCAPED else c for c in text)


def _fill(tree: Path, content: Content, where: Sequence[str]) -> None:
    """Link all files, and then mark what is whole: each sealed day or hour, and last the edition."""
    folders: dict[str, Path] = {}
    for file, path in zip(content.files, where, strict=True):
        folder = folders.get(file.partition)
        if folder is None:
            folder = folders[file.partition] = tree / hive_folder(file.partition, content)
            folder.mkdir(parents=True, exist_ok=True)
        _, block, name = file.path.rsplit("/", 2)
        _link(path, folder / f"{block}-{name}")
    empty = []
    for scope in content.sealed:
        for folder in _groups(tree, scope, content):
            folder.mkdir(parents=True, exist_ok=True)
            empty += [] if any(folder.rglob("*.parquet")) else [folder / _inner_nulls(scope, content)]
            (folder / DONE).touch()
    _write_no_rows(empty if content.files or empty else [tree], content)
    (tree / DONE).touch()
    _sync(*folders.values(), *empty, tree, tree.parent)


def _write_no_rows(folders: Sequence[Path], content: Content) -> None:
    """One file with the schema and no rows, in each folder: readers take the columns from a file, and refuse a folder
    that has none."""
    first: Path | None = None
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        if first is None:
            first = folder / _NO_ROWS
            pq.write_table(to_arrow(content.schema).empty_table(), first)
            _sync(first)
        else:
            _link(str(first), folder / _NO_ROWS)


def _inner_nulls(scope: str, content: Content) -> str:
    """The folders below that of a day or an hour: all files of a table lie equally deep, or Spark refuses it."""
    [column] = partition_values(scope)
    columns = [d.column for d in content.dimensions]
    return "/".join(f"{_escape(c)}={_NULL}" for c in columns[columns.index(column) + 1 :])


def _groups(tree: Path, scope: str, content: Content) -> Iterable[Path]:
    """The folders of a day or an hour: one, where its column is the outermost; an empty one, too."""
    [column] = partition_values(scope)
    outer = [d.column for d in content.dimensions]
    depth = outer.index(column)
    return [tree / hive_folder(scope, content)] if depth == 0 else tree.glob("*/" * depth + hive_folder(scope, content))


def _link(source: str, target: Path) -> None:
    """The same file under another name; across file systems, a link that leads to it."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP):
            raise
        os.symlink(source, target)


def _exchange(one: Path, other: Path) -> None:
    """Let two paths change places: at once where the kernel can, else with a moment between in which one is missing."""
    with suppress(AttributeError, OSError):
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
        here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
        if renameat2(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0:
            return
    aside = one.with_name(f"{one.name}-aside")
    other.rename(aside)
    one.rename(other)
    aside.rename(one)


def _sync(*paths: Path) -> None:
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
