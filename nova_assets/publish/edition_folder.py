"""The folder of one edition on a local disk: links to the channel's files, or files that were converted for it."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote
from zoneinfo import ZoneInfo

from nova_assets.errors import NotSupported
from nova_assets.model.partitions import partition_values
from nova_assets.model.published_version import PublishedContent, TableFileLayout
from nova_assets.publish.target import PartitionConverter

NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED_CHARACTERS = frozenset("\"#%'*/:=?\\{}[]^") | {chr(n) for n in (*range(32), 127)}
_MAX_NAME_BYTES = 255  # limit of most file systems


def hive_partition_path(partition: str, content: PublishedContent) -> str:
    """Folder of a partition in Hive layout: ``dt=2024-01-01/action=a%2Fb``. Timestamps are in UTC, as in the files.

    Raises:
        NotSupported: a value is a text that readers of such folders take for null, or too long for a folder's name.
    """
    parts = [
        f"{escape_hive_name(c)}={_hive_partition_value(c, v, content)}" for c, v in partition_values(partition).items()
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
        return NULL_PARTITION
    if value in ("", NULL_PARTITION):
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
        return escape_hive_name(value)
    moment = datetime.fromisoformat(value)
    if type_name == "timestamp":
        zone = ZoneInfo(zone_by_hourly_column[column] or "UTC")
        moment = (moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)).astimezone(UTC)
    return escape_hive_name(moment.strftime("%Y-%m-%d %H:%M:%S"))


def escape_hive_name(text: str) -> str:
    """Escape a name as Hive and Spark do."""
    return "".join(f"%{ord(c):02X}" if c in _ESCAPED_CHARACTERS else c for c in text)


def null_partition_subpath(sealed_scope: str, content: PublishedContent) -> str:
    """Folders below a sealed day or hour that has no files. Spark requires all files of a table to have equal depth."""
    [column] = partition_values(sealed_scope)
    columns = [d.column for d in content.dimensions]
    return "/".join(f"{escape_hive_name(c)}={NULL_PARTITION}" for c in columns[columns.index(column) + 1 :])


def parse_hive_folder_name(name: str) -> tuple[str, str] | None:
    """Column and value of a partition folder, such as ``action=a%2Fb``; None for another folder."""
    column, equals, value = name.partition("=")
    return (unquote(column), unquote(value)) if equals and column else None


def parse_hive_folder_values(file: str) -> dict[str, str | None]:
    """Partition values in the folders of a file, by its path in a folder in Hive layout; None for null."""
    parsed = (parse_hive_folder_name(name) for name in file.split("/")[:-1])
    return {column: None if value == NULL_PARTITION else value for column, value in filter(None, parsed)}


@dataclass(frozen=True, slots=True)
class EditionPart:
    """A partition of an edition.

    Args:
        source: identifies the rows and the layout. Partitions with equal sources have equal files.
        files: names or addresses of the files.
    """

    source: str
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EditionPlan:
    """Parts of a new edition, by the path of their folder.

    Args:
        kept: parts whose files the previous edition has already.
        converted: path -> (partition, source) of the parts that must be converted.
    """

    kept: Mapping[str, EditionPart]
    converted: Mapping[str, tuple[str, str]]


def plan_edition(
    content: PublishedContent, layout: TableFileLayout, previous: Mapping[str, EditionPart]
) -> EditionPlan:
    """Plan a converted edition: each partition is converted once, until its rows change.

    Args:
        content: content of the edition.
        layout: layout of its files.
        previous: parts of the previous edition.
    """
    seqs = dict(content.partition_seqs)
    kept: dict[str, EditionPart] = {}
    converted: dict[str, tuple[str, str]] = {}
    for partition in dict.fromkeys(f.partition for f in content.files if f.rows):
        path = hive_partition_path(partition, content)
        source = _source_of(partition, seqs[partition], content, layout)
        part = previous.get(path)
        if part is not None and part.source == source:
            kept[path] = part
        else:
            converted[path] = (partition, source)
    for partition in content.frozen:
        path = hive_partition_path(partition, content)
        if path in previous:
            kept[path] = previous[path]
    return EditionPlan(kept, converted)


def _source_of(partition: str, seq: int, content: PublishedContent, layout: TableFileLayout) -> str:
    """Identifier of the rows of a partition in a layout. A compaction does not change it."""
    identity = [partition, seq, content.schema.as_json(), layout.digest]
    return hashlib.sha256(json.dumps(identity, separators=(",", ":")).encode()).hexdigest()[:24]


def parts_to_json(parts: Mapping[str, EditionPart]) -> str:
    return json.dumps({path: [p.source, list(p.files)] for path, p in parts.items()}, separators=(",", ":"))


def parts_from_json(text: str) -> dict[str, EditionPart]:
    """Parts from their JSON; none if it is damaged, so that all partitions are converted again."""
    try:
        return {path: EditionPart(source, tuple(files)) for path, (source, files) in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError):
        return {}


SUCCESS_FILE = "_SUCCESS"
_EMPTY_FILE = "no-rows"
CONVERSIONS_AT_ONCE = 4


def write_linked_edition(version_folder: Path, content: PublishedContent, file_paths: Sequence[str]) -> None:
    """Link all files of the channel, then mark complete parts: each sealed day or hour, and finally the edition."""
    folders: dict[str, Path] = {}
    for file, path in zip(content.files, file_paths, strict=True):
        folder = folders.get(file.partition)
        if folder is None:
            folder = folders[file.partition] = version_folder / hive_partition_path(file.partition, content)
            folder.mkdir(parents=True, exist_ok=True)
        _, block, name = file.path.rsplit("/", 2)
        hard_link_or_symlink(path, folder / f"{block}-{name}")
    _mark_complete(version_folder, content, None, folders.values())


def write_converted_edition(
    version_folder: Path,
    content: PublishedContent,
    layout: TableFileLayout,
    convert: PartitionConverter,
    previous_folder: Path | None,
    previous_parts: Mapping[str, EditionPart],
) -> dict[str, EditionPart]:
    """Convert partitions that have changed, link files of the others, then mark complete parts.

    Args:
        version_folder: empty folder of the edition.
        content: content of the edition.
        layout: layout of the files.
        convert: writes the files of a partition.
        previous_folder: folder of the previous edition.
        previous_parts: its parts.

    Returns:
        The parts of the new edition, by the path of their folder.
    """
    existing = {
        path: part
        for path, part in previous_parts.items()
        if previous_folder is not None and all((previous_folder / path / name).exists() for name in part.files)
    }
    plan = plan_edition(content, layout, existing)

    def convert_part(item: tuple[str, tuple[str, str]]) -> tuple[str, EditionPart]:
        path, (partition, source) = item
        folder = version_folder / path
        folder.mkdir(parents=True, exist_ok=True)
        return path, EditionPart(source, tuple(f.name for f in convert(partition, str(folder), layout)))

    with ThreadPoolExecutor(CONVERSIONS_AT_ONCE, "nova-convert") as pool:
        parts = dict(pool.map(convert_part, plan.converted.items()))
    for path, part in plan.kept.items():
        folder = version_folder / path
        folder.mkdir(parents=True, exist_ok=True)
        for name in part.files:
            assert previous_folder is not None
            hard_link_or_symlink(os.path.realpath(previous_folder / path / name), folder / name)
    parts.update(plan.kept)
    fsync_paths(*(version_folder / path / name for path in plan.converted for name in parts[path].files))
    _mark_complete(version_folder, content, layout, [version_folder / path for path in parts])
    return parts


def _mark_complete(
    version_folder: Path, content: PublishedContent, layout: TableFileLayout | None, folders: Iterable[Path]
) -> None:
    """Mark the folder of each sealed day or hour, and the folder of the edition. Folders without rows get a file."""
    folders = list(folders)
    empty_folders: list[Path] = []
    for scope in content.sealed:
        for folder in _folders_of_scope(version_folder, scope, content):
            folder.mkdir(parents=True, exist_ok=True)
            has_files = any(p.name[0] not in "._" for p in folder.rglob("*") if p.is_file())
            empty_folders += [] if has_files else [folder / null_partition_subpath(scope, content)]
            (folder / SUCCESS_FILE).touch()
    if layout is None or layout.format == "parquet":
        _write_empty_files(empty_folders if folders or empty_folders else [version_folder], content, layout)
    (version_folder / SUCCESS_FILE).touch()
    existing_empty_folders = [f for f in empty_folders if f.exists()]
    fsync_paths(*folders, *existing_empty_folders, version_folder, version_folder.parent)


def _write_empty_files(folders: Sequence[Path], content: PublishedContent, layout: TableFileLayout | None) -> None:
    """Write a Parquet file with the schema and no rows to each folder.

    Readers need a file for the columns, and reject a folder without one.
    """
    import pyarrow.parquet as pq  # not with this module, which commands load that read no data

    from nova_assets.formats.table_schema import parquet_table_schema, parquet_write_options
    from nova_assets.model.arrow_types import to_arrow_schema

    first: Path | None = None
    name = f"{_EMPTY_FILE}{'.parquet' if layout is None else layout.suffix}"
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        if first is None:
            first = folder / name
            if layout is None:
                pq.write_table(to_arrow_schema(content.schema).empty_table(), first)
            else:
                schema = parquet_table_schema(content.schema, layout)
                pq.write_table(schema.empty_table(), first, **parquet_write_options(layout))
            fsync_paths(first)
        else:
            hard_link_or_symlink(str(first), folder / name)


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


def hard_link_or_symlink(source: str, target: Path) -> None:
    """Hard link to a file, or a symbolic link if hard links are not possible, for example across file systems."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP):
            raise
        os.symlink(source, target)


def fsync_paths(*paths: Path) -> None:
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
