"""What has become of a table that another system keeps: its files, folder by folder, beside what was known of them.
Pure: files in, decisions out."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import unquote

from nova_assets.errors import PartitionError
from nova_assets.model.channel import Channel
from nova_assets.model.external_files import Seen
from nova_assets.model.partitions import Dimension, partition_name

_NULL = "__HIVE_DEFAULT_PARTITION__"

_RANGES = {"tinyint": 2**7, "smallint": 2**15, "int": 2**31, "bigint": 2**63}

_COPYING = "._COPYING_"
"""What a file is called that HDFS's own tools are still copying."""

FEW = 10
SHARE = 0.25
"""So many partitions, or such a share of all, may be gone; where more are, somebody has to say so."""


@dataclass(frozen=True, slots=True)
class Content:
    """The files of a partition, as they are.

    Args:
        version: another one as soon as one was changed, came or went.
    """

    files: tuple[Seen, ...]
    version: str


@dataclass(frozen=True)
class Found:
    """What a location holds.

    Args:
        partitions: name -> what is in it.
        unfinished: partitions that are not complete.
        beyond: partitions that are none of those that the channel should have.
        ignored: folders that are no partition at all, and why.
    """

    partitions: Mapping[str, Content] = field(default_factory=dict)
    unfinished: tuple[str, ...] = ()
    beyond: frozenset[str] = frozenset()
    ignored: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class News:
    """What is to be committed of it.

    Args:
        changed: partition -> what is in it now.
        gone: partitions of which nothing is there any more.
        held: such partitions that are so many that somebody has to say so.
        same: so many are as they were.
    """

    changed: Mapping[str, Content] = field(default_factory=dict)
    gone: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    same: int = 0


def found(channel: Channel, location: str, seen: Sequence[Seen], among: Collection[str] | None = None) -> Found:
    """What a location holds, partition by partition.

    Files whose names, or one of whose folders, begin with a dot or an underscore are no data, as everywhere in the
    field; nor are empty ones.

    Args:
        seen: all files below it.
        among: the partitions that the channel should have, where its definition says more than its dimensions do.
    """
    assert channel.external is not None
    folders: dict[str, list[Seen]] = {}
    done: set[str] = set()
    for file in seen:
        folder, _, name = file.path.removeprefix(f"{location}/").rpartition("/")
        if name == channel.external.done:
            done.add(folder)
            folders.setdefault(folder, [])  # complete, if there is nothing else
        elif file.bytes and not _is_hidden(folder, name):
            folders.setdefault(folder, []).append(file)
    files: dict[str, list[Seen]] = {}
    unfinished: set[str] = set()
    ignored: dict[str, str] = {}
    for folder, some in sorted(folders.items()):
        try:
            partition = partition_of(channel, folder)
        except PartitionError as error:
            ignored[folder] = error.what
            continue
        files.setdefault(partition, []).extend(some)
        if channel.external.done is not None and folder not in done:
            unfinished.add(partition)
    beyond = frozenset(() if among is None else files.keys() - set(among))
    there = {p: _content(channel, some) for p, some in files.items() if p not in unfinished and p not in beyond}
    return Found(there, tuple(sorted(unfinished - beyond)), beyond, ignored)


def news(there: Found, known: Mapping[str, str], *, gone: bool = False) -> News:
    """What has changed.

    Args:
        known: partition -> the version that the catalog has of it.
        gone: whatever is gone may be gone.
    """
    changed = {p: c for p, c in there.partitions.items() if known.get(p) != c.version}
    missing = tuple(p for p in known if p not in {*there.partitions, *there.unfinished, *there.beyond})
    many = not gone and len(missing) > max(FEW, SHARE * len(known))
    return News(changed, () if many else missing, missing if many else (), len(there.partitions) - len(changed))


def partition_of(channel: Channel, folder: str) -> str:
    """The partition that a folder is, by its path below the location.

    Raises:
        PartitionError: it is none of the channel's.
    """
    given: dict[str, str | None] = {}
    for part in filter(None, folder.split("/")):
        column, equals, value = part.partition("=")
        if not equals:
            raise PartitionError(f"{part!r} says no value of a partition column", found=folder)
        given[unquote(column).lower()] = None if value == _NULL else _unescaped(value)
    columns = [c.lower() for c in channel.partition_columns]
    if set(given) != set(columns) or len(given) != len([p for p in folder.split("/") if p]):
        shape = "/".join(f"{c}=..." for c in channel.partition_columns) or "files right in the location"
        raise PartitionError(f"it is not called {shape}", found=folder)
    values = {d.column: _value(channel, d, given[d.column.lower()]) for d in channel.partitions}
    return partition_name(channel.partition_columns, values)


def _value(channel: Channel, dimension: Dimension, text: str | None) -> str | None:
    """The value of a dimension as its name has it. Spark reads the one that the folder says: both have to be one."""
    assert channel.schema is not None
    kind = channel.schema.field(dimension.column).type.name
    if text is not None and not _is(text, kind):
        raise PartitionError(f"{text!r} is no {kind}", found=text)
    value = dimension.parse(text)
    if value is not None and kind in _RANGES:
        value = str(int(value))
    if kind in ("string", "boolean", "date") and value != text:
        raise PartitionError(f"{dimension.column}={text} is written {dimension.column}={value} here", found=text)
    return value


def _is(text: str, kind: str) -> bool:
    """Whether Spark takes a text for a value of a type, as it is."""
    if kind in _RANGES:
        return re.fullmatch(r"[+-]?[0-9]{1,19}", text) is not None and -_RANGES[kind] <= int(text) < _RANGES[kind]
    if kind == "boolean":
        return text in ("true", "false")
    if kind in ("date", "timestamp", "timestamp_ntz"):
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            return False
        return kind != "date" or moment.date().isoformat() == text
    return text != ""


def _unescaped(value: str) -> str:
    """A value as the name of a folder has it, in which some characters are escaped. Spark makes one character of each
    escape, and others make one of several: where that is not the same, nobody knows which it is."""
    found = unquote(value)
    if found != unquote(value, encoding="latin-1"):
        raise PartitionError(f"{value!r} is escaped in a way that Spark reads as another value", found=value)
    return found


def _is_hidden(folder: str, name: str) -> bool:
    parts = [p for p in folder.split("/") if p]
    hidden = any(p.startswith((".", "_")) and "=" not in p for p in parts) or name.startswith((".", "_"))
    return hidden or name.endswith(_COPYING)


def _content(channel: Channel, files: Sequence[Seen]) -> Content:
    assert channel.external is not None and channel.schema is not None
    ordered = tuple(sorted(files, key=lambda f: f.path))
    said = [channel.external.format, channel.schema.as_json(), [[f.path, f.bytes, f.changed] for f in ordered]]
    mark = hashlib.sha256(json.dumps(said, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:32]
    return Content(ordered, mark)
