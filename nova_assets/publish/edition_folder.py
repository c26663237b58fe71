"""The folder of one edition on a local disk: links to the channel's files, or files that were converted for it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.parquet as pq

from nova_assets.formats.table_schema import parquet_table_schema, parquet_write_options
from nova_assets.model.arrow_types import to_arrow_schema
from nova_assets.model.partitions import partition_values
from nova_assets.model.published_version import PublishedContent
from nova_assets.model.table_files import TableFileLayout
from nova_assets.publish.edition_parts import EditionPart, PartitionConverter, plan_edition
from nova_assets.publish.partition_paths import hive_partition_path, null_partition_subpath

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
