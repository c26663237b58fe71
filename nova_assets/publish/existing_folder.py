"""Inspection of a folder that other tools have filled, before a channel takes it over.

Readers must not notice the take-over. So the files of the channel get the columns, the order of columns and the types
that the files of the folder have.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from nova_assets.errors import BadRecord, NotSupported, TableTaken
from nova_assets.formats.table_schema import encode_arrow_schema
from nova_assets.model.published_version import FILE_SUFFIXES, TableFileLayout, TableFormat
from nova_assets.model.schema import Schema
from nova_assets.publish.edition_folder import parse_hive_folder_name

_FOOTERS_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class FolderFiles:
    """Data files of a folder on a disk or in a store.

    Args:
        address: the folder.
        names: paths of the files, relative to the folder.
        open: opens a file for random access, by its relative path.
    """

    address: str
    names: tuple[str, ...]
    open: Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class ExistingFolder:
    """Contents of a folder in Hive layout.

    Args:
        files: its data files.
        partition_columns: columns of the folder names, outermost first.
        footers: for Parquet: file -> its footer. Empty for other formats.
    """

    files: FolderFiles
    partition_columns: tuple[str, ...]
    footers: Mapping[str, pq.FileMetaData]

    @property
    def address(self) -> str:
        return self.files.address

    @property
    def partition_paths(self) -> frozenset[str]:
        """Folders of the partitions with files, relative to the folder."""
        return frozenset(os.path.dirname(f) for f in self.files.names)

    @property
    def rows_by_partition(self) -> dict[str, int]:
        """For Parquet: folder of each partition -> its rows. Empty for other formats."""
        rows: dict[str, int] = {}
        for name, footer in self.footers.items():
            partition = os.path.dirname(name)
            rows[partition] = rows.get(partition, 0) + footer.num_rows
        return rows


def is_data_file(name: str) -> bool:
    """Whether readers take a file for data, by its relative path. Names that begin with ``.`` or ``_`` are ignored."""
    return not any(part.startswith((".", "_")) for part in Path(name).parts)


def local_files(folder: Path) -> FolderFiles:
    """Data files of a folder on a disk."""
    found = (str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())
    names = tuple(sorted(name for name in found if is_data_file(name)))
    return FolderFiles(str(folder), names, lambda name: (folder / name).open("rb"))


def is_table(folder: Path, format: TableFormat) -> bool:
    """Whether a folder has files that its readers can read as a table: for Parquet, at least one Parquet file."""
    names = local_files(folder).names
    if format != "parquet":
        return bool(names)
    return any((folder / f).open("rb").read(4) == b"PAR1" for f in names)


def inspect_folder(files: FolderFiles, format: TableFormat) -> ExistingFolder:
    """Inspect a folder.

    Args:
        files: its data files.
        format: format of its files.

    Raises:
        TableTaken: the folder is not in Hive layout.
        BadRecord: a file is no Parquet file.
    """
    columns_of_files = {tuple(_partition_columns(files.address, f)) for f in files.names}
    if len(columns_of_files) > 1:
        raise TableTaken(
            f"{files.address} cannot be taken over, because its files are in folders of different depth",
            found=" and ".join("/".join(f"{c}=…" for c in columns) or "no folder" for columns in columns_of_files),
            expected="the same partition columns for all files",
            next="move the other files out of the folder; nothing was changed",
            path=files.address,
        )
    footers: dict[str, pq.FileMetaData] = {}
    if format == "parquet":
        with ThreadPoolExecutor(_FOOTERS_AT_ONCE, "nova-footers") as pool:
            footers = dict(zip(files.names, pool.map(lambda f: _footer(files, f), files.names), strict=True))
    return ExistingFolder(files, next(iter(columns_of_files), ()), footers)


def layout_of_folder(existing: ExistingFolder, format: TableFormat, schema: Schema) -> TableFileLayout:
    """Layout by which readers of a folder find new files in the same form.

    Args:
        existing: the folder.
        format: format of its files.
        schema: columns of the channel.

    Raises:
        NotSupported: the files have no common schema, or timestamps of two kinds.
        BadRecord: a file is no Parquet file.
    """
    suffix = _common_suffix([os.path.basename(f) for f in existing.files.names]) or FILE_SUFFIXES[format]
    columns = tuple(c for c in schema.names if c not in existing.partition_columns)
    if format == "csv":
        header = _has_header(existing.files, columns)
        return TableFileLayout(format, existing.partition_columns, columns, header=header, suffix=suffix)
    if format != "parquet":
        return TableFileLayout(format, existing.partition_columns, columns, suffix=suffix)
    footers = list(existing.footers.items())
    fields: dict[str, pa.Field] = {}
    for name, footer in footers:
        for field in footer.schema.to_arrow_schema():
            known = fields.setdefault(field.name, field)
            if not known.type.equals(field.type):
                raise NotSupported(
                    f"{existing.address} cannot be taken over, because its files have different types",
                    found=f"column {field.name!r} is {field.type} in {name}, and {known.type} in an earlier file",
                    expected="one type for each column",
                    next="rewrite these files first; nothing was changed",
                    path=existing.address,
                )
    codecs = {f.row_group(0).column(0).compression for _, f in footers if f.num_row_groups and f.num_columns}
    stored = pa.schema(list(fields.values()))
    return TableFileLayout(
        "parquet",
        tuple(c for c in existing.partition_columns if c not in fields),
        tuple(fields),
        encode_arrow_schema(stored),
        _has_int96(existing.address, footers),
        (codecs.pop() if len(codecs) == 1 else "ZSTD").lower().replace("uncompressed", "none"),
        suffix=suffix,
    )


def check_partition_columns(existing: ExistingFolder, dimensions: Sequence[str], channel: str) -> None:
    """Check that a channel is partitioned as a folder is. Otherwise readers would find other columns.

    Raises:
        TableTaken.
    """
    if not existing.files.names or existing.partition_columns == tuple(dimensions):
        return
    raise TableTaken(
        f"{existing.address} cannot be taken over by channel {channel!r}, because it is partitioned differently",
        found="/".join(f"{c}=…" for c in existing.partition_columns) or "no partition folders",
        expected="/".join(f"{c}=…" for c in dimensions) or "no partition folders",
        next=f"declare the channel with these partitions, in this order: {', '.join(existing.partition_columns)}"
        if existing.partition_columns
        else "declare the channel without partitions",
        path=existing.address,
    )


def _partition_columns(folder: str, file: str) -> list[str]:
    names = Path(file).parent.parts
    parsed = [parse_hive_folder_name(name) for name in names]
    wrong = next((name for name, part in zip(names, parsed, strict=True) if part is None), None)
    if wrong is not None:
        raise TableTaken(
            f"{folder} cannot be taken over, because a folder in it is not named after a partition",
            found=wrong,
            expected="folders such as dt=2024-01-01/action=view",
            next="move that folder away; nothing was changed",
            path=folder,
        )
    return [part[0] for part in parsed if part is not None]


def _footer(files: FolderFiles, name: str) -> pq.FileMetaData:
    try:
        with files.open(name) as opened:
            return pq.read_metadata(opened)
    except pa.ArrowInvalid as error:
        raise BadRecord(
            f"{files.address} cannot be read as Parquet",
            found=f"{name}: {error}".split("\n")[0],
            expected="only Parquet files; files whose names begin with . or _ are ignored",
            next="move the other files out of the folder; nothing was changed",
            path=f"{files.address}/{name}",
        ) from error


def _has_int96(folder: str, footers: Sequence[tuple[str, pq.FileMetaData]]) -> bool:
    """Whether the files store timestamps as INT96. Raises NotSupported if only some timestamps are."""
    kinds: set[bool] = set()
    for _, footer in footers:
        for n, field in enumerate(footer.schema.to_arrow_schema()):
            if pa.types.is_timestamp(field.type):
                column = next(c for c in range(n, len(footer.schema)) if footer.schema.column(c).path == field.name)
                kinds.add(footer.schema.column(column).physical_type == "INT96")
    if len(kinds) > 1:
        raise NotSupported(
            f"{folder} cannot be taken over, because it stores some timestamps as INT96 and others not",
            expected="one kind of timestamp in all columns and files",
            next="rewrite these files first; nothing was changed",
            path=folder,
        )
    return True in kinds


def _common_suffix(names: Sequence[str]) -> str:
    """End that all file names have in common, from a dot or an underscore on."""
    shortest = min(names, key=len)
    common = next((e for n in range(len(shortest)) if all(m.endswith(e := shortest[n:]) for m in names)), "")
    starts = [n for n in (common.find("."), common.find("_")) if n >= 0]
    return common[min(starts) :] if starts else ""


def _has_header(files: FolderFiles, columns: Sequence[str]) -> bool:
    with files.open(files.names[0]) as stream:
        first_line = stream.readline().decode("utf-8", errors="replace").rstrip("\r\n")
    return [name.strip().strip('"').lower() for name in first_line.split(",")] == [c.lower() for c in columns]
