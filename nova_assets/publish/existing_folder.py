"""Inspection of a folder that other tools have filled, before a channel takes it over.

Readers must not notice the take-over. So the files of the channel get the columns, the order of columns and the types
that the files of the folder have.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from nova_assets.errors import BadRecord, NotSupported, TableTaken
from nova_assets.formats.table_schema import encode_arrow_schema
from nova_assets.model.schema import Schema
from nova_assets.model.table_files import FILE_SUFFIXES, TableFileLayout, TableFormat
from nova_assets.publish.partition_paths import parse_hive_folder_name


@dataclass(frozen=True, slots=True)
class ExistingFolder:
    """Contents of a folder in Hive layout.

    Args:
        path: the folder.
        files: paths of the data files, relative to the folder.
        partition_columns: columns of the folder names, outermost first.
        rows_by_partition: for Parquet: folder of each partition -> its rows. Empty for other formats.
    """

    path: Path
    files: tuple[str, ...]
    partition_columns: tuple[str, ...]
    rows_by_partition: dict[str, int]

    @property
    def partition_paths(self) -> frozenset[str]:
        """Folders of the partitions with files, relative to the folder."""
        return frozenset(os.path.dirname(f) for f in self.files)


def data_files(folder: Path) -> list[str]:
    """Files that readers take for data, relative to the folder. Names that begin with ``.`` or ``_`` are ignored."""
    found = (p.relative_to(folder) for p in folder.rglob("*") if p.is_file())
    return sorted(str(p) for p in found if not any(name.startswith((".", "_")) for name in p.parts))


def is_table(folder: Path, format: TableFormat) -> bool:
    """Whether a folder has files that its readers can read as a table: for Parquet, at least one Parquet file."""
    if format != "parquet":
        return bool(data_files(folder))
    return any((folder / f).open("rb").read(4) == b"PAR1" for f in data_files(folder))


def inspect_folder(folder: Path, format: TableFormat) -> ExistingFolder:
    """Inspect a folder.

    Args:
        folder: the folder.
        format: format of its files.

    Raises:
        TableTaken: the folder is not in Hive layout.
        BadRecord: a file is no Parquet file.
    """
    files = data_files(folder)
    columns_of_files = {tuple(_partition_columns(folder, f)) for f in files}
    if len(columns_of_files) > 1:
        raise TableTaken(
            f"{folder} cannot be taken over, because its files are in folders of different depth",
            found=" and ".join("/".join(f"{c}=…" for c in columns) or "no folder" for columns in columns_of_files),
            expected="the same partition columns for all files",
            next="move the other files out of the folder; nothing was changed",
            path=str(folder),
        )
    rows_by_partition: dict[str, int] = {}
    if format == "parquet":
        for f in files:
            partition = os.path.dirname(f)
            rows_by_partition[partition] = rows_by_partition.get(partition, 0) + _footer(folder / f).num_rows
    return ExistingFolder(folder, tuple(files), next(iter(columns_of_files), ()), rows_by_partition)


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
    suffix = _common_suffix([os.path.basename(f) for f in existing.files]) or FILE_SUFFIXES[format]
    columns = tuple(c for c in schema.names if c not in existing.partition_columns)
    if format == "csv":
        header = _has_header(existing.path / existing.files[0], columns)
        return TableFileLayout(format, existing.partition_columns, columns, header=header, suffix=suffix)
    if format != "parquet":
        return TableFileLayout(format, existing.partition_columns, columns, suffix=suffix)
    footers = [(f, _footer(existing.path / f)) for f in existing.files]
    fields: dict[str, pa.Field] = {}
    for name, footer in footers:
        for field in footer.schema.to_arrow_schema():
            known = fields.setdefault(field.name, field)
            if not known.type.equals(field.type):
                raise NotSupported(
                    f"{existing.path} cannot be taken over, because its files have different types",
                    found=f"column {field.name!r} is {field.type} in {name}, and {known.type} in an earlier file",
                    expected="one type for each column",
                    next="rewrite these files first; nothing was changed",
                    path=str(existing.path),
                )
    codecs = {f.row_group(0).column(0).compression for _, f in footers if f.num_row_groups and f.num_columns}
    stored = pa.schema(list(fields.values()))
    return TableFileLayout(
        "parquet",
        tuple(c for c in existing.partition_columns if c not in fields),
        tuple(fields),
        encode_arrow_schema(stored),
        _has_int96(existing.path, footers),
        (codecs.pop() if len(codecs) == 1 else "ZSTD").lower().replace("uncompressed", "none"),
        suffix=suffix,
    )


def check_partition_columns(existing: ExistingFolder, dimensions: Sequence[str], channel: str) -> None:
    """Check that a channel is partitioned as a folder is. Otherwise readers would find other columns.

    Raises:
        TableTaken.
    """
    if not existing.files or existing.partition_columns == tuple(dimensions):
        return
    raise TableTaken(
        f"{existing.path} cannot be taken over by channel {channel!r}, because it is partitioned differently",
        found="/".join(f"{c}=…" for c in existing.partition_columns) or "no partition folders",
        expected="/".join(f"{c}=…" for c in dimensions) or "no partition folders",
        next=f"declare the channel with these partitions, in this order: {', '.join(existing.partition_columns)}"
        if existing.partition_columns
        else "declare the channel without partitions",
        path=str(existing.path),
    )


def _partition_columns(folder: Path, file: str) -> list[str]:
    names = Path(file).parent.parts
    parsed = [parse_hive_folder_name(name) for name in names]
    wrong = next((name for name, part in zip(names, parsed, strict=True) if part is None), None)
    if wrong is not None:
        raise TableTaken(
            f"{folder} cannot be taken over, because a folder in it is not named after a partition",
            found=wrong,
            expected="folders such as dt=2024-01-01/action=view",
            next="move that folder away; nothing was changed",
            path=str(folder),
        )
    return [part[0] for part in parsed if part is not None]


def _footer(path: Path) -> pq.FileMetaData:
    try:
        return pq.read_metadata(path)
    except pa.ArrowInvalid as error:
        raise BadRecord(
            f"{path.parent} cannot be read as Parquet",
            found=f"{path.name}: {error}".split("\n")[0],
            expected="only Parquet files; files whose names begin with . or _ are ignored",
            next="move the other files out of the folder; nothing was changed",
            path=str(path),
        ) from error


def _has_int96(folder: Path, footers: Sequence[tuple[str, pq.FileMetaData]]) -> bool:
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
            path=str(folder),
        )
    return True in kinds


def _common_suffix(names: Sequence[str]) -> str:
    """End that all file names have in common, from a dot or an underscore on."""
    shortest = min(names, key=len)
    common = next((e for n in range(len(shortest)) if all(m.endswith(e := shortest[n:]) for m in names)), "")
    starts = [n for n in (common.find("."), common.find("_")) if n >= 0]
    return common[min(starts) :] if starts else ""


def _has_header(file: Path, columns: Sequence[str]) -> bool:
    with file.open(encoding="utf-8", errors="replace") as stream:
        first_line = stream.readline().rstrip("\r\n")
    return [name.strip().strip('"').lower() for name in first_line.split(",")] == [c.lower() for c in columns]
