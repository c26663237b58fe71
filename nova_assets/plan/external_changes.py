"""Changes of an external table: its listed files or rows, grouped by partition and compared with the catalog. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import unquote

from nova_assets.errors import PartitionError
from nova_assets.model.channel import Channel
from nova_assets.model.file_source import ExternalFileInfo
from nova_assets.model.partitions import WHOLE, Dimension, partition_name

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"

_INTEGER_LIMITS = {"tinyint": 2**7, "smallint": 2**15, "int": 2**31, "bigint": 2**63}

_COPYING_SUFFIX = "._COPYING_"
"""Suffix of files that HDFS tools are still copying."""

MAX_GONE_PARTITIONS = 10
MAX_GONE_SHARE = 0.25
"""Limits for vanished partitions, as a number and as a share of all. Beyond both, a person must confirm the loss."""


@dataclass(frozen=True, slots=True)
class PartitionFiles:
    """Current files of a partition.

    Args:
        version: changes whenever a file is added, removed or changed.
    """

    files: tuple[ExternalFileInfo, ...]
    version: str


@dataclass(frozen=True)
class LocationContents:
    """Listed content of an external location.

    Args:
        partitions: partition name -> its files.
        unfinished: incomplete partitions.
        unexpected: partitions that the channel should not have.
        ignored: folders that are not partitions of the channel -> reason.
        bad: partitions that exist, but whose files cannot be listed or used -> reason.
    """

    partitions: Mapping[str, PartitionFiles] = field(default_factory=dict)
    unfinished: tuple[str, ...] = ()
    unexpected: frozenset[str] = frozenset()
    ignored: Mapping[str, str] = field(default_factory=dict)
    bad: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ExternalChanges:
    """Changes of an external table to commit.

    Args:
        changed: partition -> its current files.
        gone: partitions that no longer have files.
        unconfirmed_gone: vanished partitions that are too many to drop without confirmation.
        unchanged_count: number of unchanged partitions.
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
    """Group the files of an external location by partition.

    Empty files are no data. Neither are hidden files: files whose name or folder begins with a dot or an underscore.

    Args:
        channel: the external channel.
        location: resolved address of the location.
        listed_files: all files below the location.
        expected_partitions: partitions that the channel should have, if its dimensions alone do not determine them.
    """
    assert channel.external is not None
    folders: dict[str, list[ExternalFileInfo]] = {}
    complete_folders: set[str] = set()
    for file in listed_files:
        folder, _, name = file.path.removeprefix(f"{location}/").rpartition("/")
        if name == channel.external.success_file:
            complete_folders.add(folder)
            folders.setdefault(folder, [])  # a marker alone means a complete, empty partition
        elif file.bytes and not is_hidden_file(folder, name):
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
    unexpected = frozenset(() if expected_partitions is None else files.keys() - set(expected_partitions))
    complete_partitions = {
        p: partition_files(channel, some) for p, some in files.items() if p not in unfinished and p not in unexpected
    }
    return LocationContents(complete_partitions, tuple(sorted(unfinished - unexpected)), unexpected, ignored)


def detect_changes(
    contents: LocationContents, version_by_partition: Mapping[str, str], *, allow_gone: bool = False
) -> ExternalChanges:
    """Compare the content of a location with the versions in the catalog.

    Args:
        contents: content of the location.
        version_by_partition: partition -> its version in the catalog.
        allow_gone: accept any number of vanished partitions.
    """
    changed = {p: c for p, c in contents.partitions.items() if version_by_partition.get(p) != c.version}
    missing = tuple(
        p
        for p in version_by_partition
        if p not in {*contents.partitions, *contents.unfinished, *contents.unexpected, *contents.bad}
    )
    is_too_many = not allow_gone and len(missing) > max(MAX_GONE_PARTITIONS, MAX_GONE_SHARE * len(version_by_partition))
    return ExternalChanges(
        changed, () if is_too_many else missing, missing if is_too_many else (), len(contents.partitions) - len(changed)
    )


def partition_of_folder(channel: Channel, folder: str) -> str:
    """Partition of a folder, from its path below the location.

    Raises:
        PartitionError: the folder is not a partition of the channel.
    """
    text_by_column: dict[str, str | None] = {}
    for part in filter(None, folder.split("/")):
        column, equals, value = part.partition("=")
        if not equals:
            raise PartitionError(f"folder {part!r} names no value of a partition column", found=folder)
        text_by_column[unquote(column).lower()] = None if value == HIVE_NULL else _unescape_folder_value(value)
    columns = [c.lower() for c in channel.partition_columns]
    if set(text_by_column) != set(columns) or len(text_by_column) != len([p for p in folder.split("/") if p]):
        expected_form = "/".join(f"{c}=..." for c in channel.partition_columns) or "(files directly in the location)"
        raise PartitionError(f"the folder name does not have the form {expected_form}", found=folder)
    return partition_of_values(channel, text_by_column)


def partition_of_values(channel: Channel, text_by_column: Mapping[str, str | None]) -> str:
    """Partition with these values.

    Args:
        text_by_column: partition column in lower case -> its value as Hive and Spark write it in a folder name, without
            escapes; None for null.

    Raises:
        PartitionError: a value is invalid for its column.
    """
    values = {
        d.column: _parse_dimension_value(channel, d, text_by_column[d.column.lower()]) for d in channel.partitions
    }
    return partition_name(channel.partition_columns, values)


def _parse_dimension_value(channel: Channel, dimension: Dimension, text: str | None) -> str | None:
    """Canonical value of a dimension. It must equal the value that Spark reads from the folder name."""
    assert channel.schema is not None
    type_name = channel.schema.field(dimension.column).type.name
    if text is not None and not _is_text_of_type(text, type_name):
        raise PartitionError(f"{text!r} is not a valid {type_name}", found=text)
    value = dimension.parse(text)
    if value is not None and type_name in _INTEGER_LIMITS:
        value = str(int(value))
    if type_name in ("string", "boolean", "date") and value != text:
        raise PartitionError(f"{dimension.column}={text} must be written {dimension.column}={value}", found=text)
    return value


def _is_text_of_type(text: str, type_name: str) -> bool:
    """Whether Spark parses a text as a value of a type without changing it."""
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
    """Unescaped value from a folder name.

    Spark decodes each escape to one character. Other tools decode several escapes to one character. A value for which
    the two differ is ambiguous and is rejected.
    """
    decoded = unquote(value)
    if decoded != unquote(value, encoding="latin-1"):
        raise PartitionError(f"{value!r} is escaped so that Spark reads another value", found=value)
    return decoded


def is_hidden_file(folder: str, name: str) -> bool:
    parts = [p for p in folder.split("/") if p]
    hidden = any(p.startswith((".", "_")) and "=" not in p for p in parts) or name.startswith((".", "_"))
    return hidden or name.endswith(_COPYING_SUFFIX)


def partition_files(channel: Channel, files: Sequence[ExternalFileInfo]) -> PartitionFiles:
    """The files of a partition, with a version that depends on them and on the definition of the channel."""
    assert channel.external is not None and channel.schema is not None
    ordered = tuple(sorted(files, key=lambda f: f.path))
    described = [channel.external.format, channel.schema.as_json(), [[f.path, f.bytes, f.modified_ns] for f in ordered]]
    version = hashlib.sha256(json.dumps(described, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:32]
    return PartitionFiles(ordered, version)


# tables of databases


def contents_of_rows(
    channel: Channel,
    rows: Iterable[tuple[Sequence[str | None], str]],
    expected_partitions: Collection[str] | None,
) -> LocationContents:
    """Partitions that a source has, with their versions.

    Args:
        rows: the values of the partition columns as text, and a version, for each partition.
        expected_partitions: partitions that the channel should have, if its dimensions alone do not determine them.
    """
    versions: dict[str, str] = {}
    ignored: dict[str, str] = {}
    for values, version in rows:
        try:
            versions[partition_of_row(channel, values)] = version
        except PartitionError as error:
            ignored["/".join("NULL" if v is None else v for v in values)] = error.what
    unexpected = frozenset(() if expected_partitions is None else versions.keys() - set(expected_partitions))
    return LocationContents(
        {p: PartitionFiles((), v) for p, v in sorted(versions.items()) if p not in unexpected}, (), unexpected, ignored
    )


def partition_of_row(channel: Channel, values: Sequence[str | None]) -> str:
    """Name of the partition with these values of the partition columns.

    Raises:
        PartitionError: a dimension has no such value, or writes it otherwise.
    """
    if not channel.partitions:
        return WHOLE
    parsed: dict[str, str | None] = {}
    for dimension, text in zip(channel.partitions, values, strict=True):
        value = dimension.parse(text)
        if value != text:
            raise PartitionError(f"{dimension.column}={text} must be {dimension.column}={value}", found=text)
        parsed[dimension.column] = value
    return partition_name(channel.partition_columns, parsed)


def unexpected_partitions(requested: Collection[str], written: Mapping[str, object]) -> list[str]:
    """Partitions of rows that were not requested."""
    return sorted(p for p in written if p not in requested)
