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
from nova_assets.model.external_files import ExternalFileInfo
from nova_assets.model.partitions import Dimension, partition_name

_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"

_INTEGER_LIMITS = {"tinyint": 2**7, "smallint": 2**15, "int": 2**31, "bigint": 2**63}

_COPYING_SUFFIX = "._COPYING_"
"""What a file is called that HDFS's own tools are still copying."""

MAX_GONE_PARTITIONS = 10
MAX_GONE_SHARE = 0.25
"""So many partitions, or such a share of all, may be gone; where more are, somebody has to say so."""


@dataclass(frozen=True, slots=True)
class PartitionFiles:
    """The files of a partition, as they are.

    Args:
        version: another one as soon as one was changed, came or went.
    """

    files: tuple[ExternalFileInfo, ...]
    version: str


@dataclass(frozen=True)
class LocationContents:
    """What a location holds.

    Args:
        partitions: name -> what is in it.
        unfinished: partitions that are not complete.
        unexpected: partitions that are none of those that the channel should have.
        ignored: folders that are no partition at all, and why.
    """

    partitions: Mapping[str, PartitionFiles] = field(default_factory=dict)
    unfinished: tuple[str, ...] = ()
    unexpected: frozenset[str] = frozenset()
    ignored: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ExternalChanges:
    """What is to be committed of it.

    Args:
        changed: partition -> what is in it now.
        gone: partitions of which nothing is there any more.
        unconfirmed_gone: such partitions that are so many that somebody has to say so.
        unchanged_count: so many are as they were.
    """

    changed: Mapping[str, PartitionFiles] = field(default_factory=dict)
    gone: tuple[str, ...] = ()
    unconfirmed_gone: tuple[str, ...] = ()
    unchanged_count: int = 0


def group_files_by_partition(
    channel: Channel,
    location: str,
    listed_files: Sequence[ExternalFileInfo],
    expected_partitions: Collection[str] | None = None,
) -> LocationContents:
    """What a location holds, partition by partition.

    Files whose names, or one of whose folders, begin with a dot or an underscore are no data, as everywhere in the
    field; nor are empty ones.

    Args:
        listed_files: all files below it.
        expected_partitions: the partitions that the channel should have, where its definition says more than its
            dimensions do.
    """
    assert channel.external is not None
    folders: dict[str, list[ExternalFileInfo]] = {}
    complete_folders: set[str] = set()
    for file in listed_files:
        folder, _, name = file.path.removeprefix(f"{location}/").rpartition("/")
        if name == channel.external.success_file:
            complete_folders.add(folder)
            folders.setdefault(folder, [])  # complete, if there is nothing else
        elif file.bytes and not _is_hidden_file(folder, name):
            folders.setdefault(folder, []).append(file)
    files: dict[str, list[ExternalFileInfo]] = {}
    unfinished: set[str] = set()
    ignored: dict[str, str] = {}
    for folder, folder_files in sorted(folders.items()):
        try:
            partition = partition_of_folder(channel, folder)
        except PartitionError as error:
            ignored[folder] = error.what
            continue
        files.setdefault(partition, []).extend(folder_files)
        if channel.external.success_file is not None and folder not in complete_folders:
            unfinished.add(partition)
    beyond = frozenset(() if expected_partitions is None else files.keys() - set(expected_partitions))
    complete_partitions = {
        p: _partition_files(channel, some) for p, some in files.items() if p not in unfinished and p not in beyond
    }
    return LocationContents(complete_partitions, tuple(sorted(unfinished - beyond)), beyond, ignored)


def detect_changes(
    contents: LocationContents, version_by_partition: Mapping[str, str], *, allow_gone: bool = False
) -> ExternalChanges:
    """What has changed.

    Args:
        version_by_partition: partition -> the version that the catalog has of it.
        allow_gone: whatever is gone may be gone.
    """
    changed = {p: c for p, c in contents.partitions.items() if version_by_partition.get(p) != c.version}
    missing = tuple(
        p for p in version_by_partition if p not in {*contents.partitions, *contents.unfinished, *contents.unexpected}
    )
    is_too_many = not allow_gone and len(missing) > max(MAX_GONE_PARTITIONS, MAX_GONE_SHARE * len(version_by_partition))
    return ExternalChanges(
        changed, () if is_too_many else missing, missing if is_too_many else (), len(contents.partitions) - len(changed)
    )


def partition_of_folder(channel: Channel, folder: str) -> str:
    """The partition that a folder is, by its path below the location.

    Raises:
        PartitionError: it is none of the channel's.
    """
    text_by_column: dict[str, str | None] = {}
    for part in filter(None, folder.split("/")):
        column, equals, value = part.partition("=")
        if not equals:
            raise PartitionError(f"{part!r} says no value of a partition column", found=folder)
        text_by_column[unquote(column).lower()] = None if value == _HIVE_NULL else _unescape_folder_value(value)
    columns = [c.lower() for c in channel.partition_columns]
    if set(text_by_column) != set(columns) or len(text_by_column) != len([p for p in folder.split("/") if p]):
        expected_form = "/".join(f"{c}=..." for c in channel.partition_columns) or "files right in the location"
        raise PartitionError(f"it is not called {expected_form}", found=folder)
    values = {
        d.column: _parse_dimension_value(channel, d, text_by_column[d.column.lower()]) for d in channel.partitions
    }
    return partition_name(channel.partition_columns, values)


def _parse_dimension_value(channel: Channel, dimension: Dimension, text: str | None) -> str | None:
    """The value of a dimension as its name has it. Spark reads the one that the folder says: both have to be one."""
    assert channel.schema is not None
    type_name = channel.schema.field(dimension.column).type.name
    if text is not None and not _is_text_of_type(text, type_name):
        raise PartitionError(f"{text!r} is no {type_name}", found=text)
    value = dimension.parse(text)
    if value is not None and type_name in _INTEGER_LIMITS:
        value = str(int(value))
    if type_name in ("string", "boolean", "date") and value != text:
        raise PartitionError(f"{dimension.column}={text} is written {dimension.column}={value} here", found=text)
    return value


def _is_text_of_type(text: str, type_name: str) -> bool:
    """Whether Spark takes a text for a value of a type, as it is."""
    if type_name in _INTEGER_LIMITS:
        return (
            re.fullmatch(r"[+-]?[0-9]{1,19}", text) is not None
            and -_INTEGER_LIMITS[type_name] <= int(text) < _INTEGER_LIMITS[type_name]
        )
    if type_name == "boolean":
        return text in ("true", "false")
    if type_name in ("date", "timestamp", "timestamp_ntz"):
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            return False
        return type_name != "date" or moment.date().isoformat() == text
    return text != ""


def _unescape_folder_value(value: str) -> str:
    """A value as the name of a folder has it, in which some characters are escaped. Spark makes one character of each
    escape, and others make one of several: where that is not the same, nobody knows which it is."""
    decoded = unquote(value)
    if decoded != unquote(value, encoding="latin-1"):
        raise PartitionError(f"{value!r} is escaped in a way that Spark reads as another value", found=value)
    return decoded


def _is_hidden_file(folder: str, name: str) -> bool:
    parts = [p for p in folder.split("/") if p]
    hidden = any(p.startswith((".", "_")) and "=" not in p for p in parts) or name.startswith((".", "_"))
    return hidden or name.endswith(_COPYING_SUFFIX)


def _partition_files(channel: Channel, files: Sequence[ExternalFileInfo]) -> PartitionFiles:
    assert channel.external is not None and channel.schema is not None
    ordered = tuple(sorted(files, key=lambda f: f.path))
    described = [channel.external.format, channel.schema.as_json(), [[f.path, f.bytes, f.modified_ns] for f in ordered]]
    version = hashlib.sha256(json.dumps(described, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:32]
    return PartitionFiles(ordered, version)
