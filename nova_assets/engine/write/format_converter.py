"""Files of a block in another format than Parquet, or kept as they are (Nova 3.1).

The rows are first written as Parquet, with all checks and with the exact counts and ranges of each file. Then each file
is replaced. The new file is read again and its rows are compared, so no value is stored that the format cannot hold.
Spark's writers are not used: a CSV file of Spark is not read back exactly, and spark-avro is a separate package.
"""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from nova_assets.engine.buckets.file_writer import FileTarget, WrittenFile, gather_tables, write_unsorted_files
from nova_assets.engine.storage import file_io
from nova_assets.engine.storage.formatted_files import parse_block_file
from nova_assets.engine.storage.integrity import digest_bytes, digest_of_file, extract_footer, open_block_file
from nova_assets.engine.write.block_target import BlockTarget
from nova_assets.errors import PartitionError, SchemaMismatch
from nova_assets.formats import schema_fit
from nova_assets.formats.input_file import COMPRESSIONS
from nova_assets.formats.parquet_input import ParquetInput
from nova_assets.formats.python_values import text_of_value
from nova_assets.formats.table_writers import SUFFIX_BY_FORMAT, UnsupportedColumn, write_table
from nova_assets.model.arrow_types import spark_type
from nova_assets.model.schema import DELETED
from nova_assets.nova_error import NovaError

MAX_FILE_BYTES = 64 * 2**20
"""Approximate size in memory of the rows of one file. Such files are read as a whole."""


def convert_files(written_files: Sequence[WrittenFile], target: BlockTarget, format_: str) -> list[WrittenFile]:
    """Replace the Parquet files of a block by files of another format.

    Raises:
        SchemaMismatch: the format cannot hold a column or a value.
    """
    converted = [new for w in written_files for new in _convert_file(w, target, format_)]
    for written in written_files:
        file_io.delete_file(written.path)
    return converted


def _convert_file(written: WrittenFile, target: BlockTarget, format_: str) -> Iterator[WrittenFile]:
    for rows in _portions(written.path):
        name = f"part-{uuid.uuid4().hex[:12]}-{target.block_id}{SUFFIX_BY_FORMAT[format_]}"
        with tempfile.TemporaryDirectory(prefix="nova-format-") as folder:
            path = Path(folder) / name
            try:
                write_table(rows, path, format_)
            except (UnsupportedColumn, ValueError) as error:
                raise _cannot_hold_error(target, format_, str(error), getattr(error, "column", None)) from error
            _check_same_rows(path, format_, rows, target)
            yield _store_file(path, name, rows, written, target)


def _portions(address: str) -> Iterator[pa.Table]:
    """Rows of a Parquet file, in tables of about ``MAX_FILE_BYTES``."""
    with open_block_file(address) as file:
        yield from gather_tables(map(file.read_row_group, range(file.num_row_groups)), MAX_FILE_BYTES)


def keep_files(table: pa.Table, kept_files: Sequence[tuple[str, int]], target: BlockTarget, format_: str) -> Any:
    """Write the rows of kept files as Parquet, one file for each, and copy the kept files beside them.

    Args:
        table: rows of all files, one file after the other.
        kept_files: path and number of rows of each file.
        target: the block, whose files have the kept rows in their own order.

    Returns:
        Reports of the Parquet files, and reports of the kept files that take their place after all checks.

    Raises:
        PartitionError: a file has rows of several partitions.
        SchemaMismatch: a file cannot be kept as it is.
    """
    parquet_files, kept, start = list[WrittenFile](), list[WrittenFile](), 0
    for path_text, row_count in kept_files:
        rows = table.slice(start, row_count)
        start += row_count
        path = Path(path_text)
        written = _write_one_file(rows, replace(target, layout=None).file_target)
        if len(written.partitions) > 1:
            raise PartitionError(
                f"{path} has rows of {len(written.partitions)} partitions, and a kept file belongs to one",
                found=", ".join(written.partitions[:3]),
                expected="one partition",
                next="insert it without keep_files, which splits the rows",
                file=str(path),
            )
        if format_ == "parquet":
            _check_readable_by_spark(path, target)
        _check_same_rows(path, format_, rows, target)
        suffixes = "".join(s for s in path.suffixes[-2:] if s.lower() in (*SUFFIX_BY_FORMAT.values(), *COMPRESSIONS))
        suffix = suffixes if suffixes and suffixes.lower() not in COMPRESSIONS else path.suffix
        name = f"kept-{uuid.uuid4().hex[:12]}-{target.block_id}{suffix.lower()}"
        parquet_files.append(written)
        kept.append(_store_file(path, name, rows, written, target))
    return parquet_files, kept


def _write_one_file(rows: pa.Table, file_target: FileTarget) -> WrittenFile:
    [written] = write_unsorted_files([rows], replace(file_target, split_columns=()), 1 << 62)
    return written


def _store_file(path: Path, name: str, rows: pa.Table, written: WrittenFile, target: BlockTarget) -> WrittenFile:
    """Copy a local file into the folder of a block, and describe it by the Parquet file with the same rows."""
    address = file_io.join(target.folder, name)
    files, key = file_io.filesystem_and_path(address)
    with path.open("rb") as source, files.open_output_stream(key, compression=None) as sink:
        shutil.copyfileobj(source, sink, 4 * 2**20)
    size, digest = path.stat().st_size, digest_of_file(str(path))
    if file_io.size_of(address) != size:
        raise OSError(f"{address} was not written completely")
    footer_digest = _footer_digest(path) if name.endswith(".parquet") else ""
    footer = replace(
        written.footer,
        path=address,
        rows=rows.num_rows,
        bytes=size,
        digest=digest,
        footer_digest=footer_digest,
        uncompressed_bytes=rows.nbytes,
    )
    deletes = int(pc.sum(rows[DELETED]).as_py() or 0) if DELETED in rows.column_names else 0
    return replace(written, footer=footer, key_placement=None, deleted_rows=deletes)


def _footer_digest(path: Path) -> str:
    content = path.read_bytes()
    footer = extract_footer(content)
    return "" if footer is None else digest_bytes(footer)


# checks


def _check_same_rows(path: Path, format_: str, rows: pa.Table, target: BlockTarget) -> None:
    """Check that a file gives the rows of a block when it is read again.

    Raises:
        SchemaMismatch: with the first column that differs.
    """
    file_schema = target.file_schema.with_all_nullable()
    try:
        if format_ == "parquet":
            with closing(ParquetInput(path, target.schema, str(path))) as opened:
                table = opened.read()
            table = table.select([n for n in table.column_names if n in file_schema])
        else:
            table = parse_block_file(path, format_, target.schema.of_files)
        stored = schema_fit.fit_to_schema(table.replace_schema_metadata(None), file_schema)
    except (NovaError, pa.ArrowException) as error:
        raise _cannot_hold_error(target, format_, str(getattr(error, "what", error)), None) from error
    if stored.num_rows != rows.num_rows:
        raise _cannot_hold_error(target, format_, f"{stored.num_rows} rows in place of {rows.num_rows}", None)
    for name in stored.column_names:
        row = _first_difference(stored.column(name), rows.column(name))
        if row is not None:
            found = f"{text_of_value(stored.column(name)[row])} in place of {text_of_value(rows.column(name)[row])}"
            raise _cannot_hold_error(target, format_, f"row {row + 1} is read as {found}"[:300], name)


def _first_difference(stored: pa.ChunkedArray, rows: pa.ChunkedArray) -> int | None:
    if stored.type == rows.type and stored.equals(rows):
        return None
    pairs = zip(stored, rows, strict=True)
    return next((n for n, (a, b) in enumerate(pairs) if text_of_value(a) != text_of_value(b)), None)  # NaN equals NaN


def _check_readable_by_spark(path: Path, target: BlockTarget) -> None:
    """Check that Spark and Arrow read a Parquet file alike: it has the declared types, and no legacy times."""
    file = pq.ParquetFile(path)
    physical = {file.schema.column(n).physical_type for n in range(len(file.schema.names))}
    metadata = file.metadata.metadata or {}
    if "INT96" in physical or any(k.startswith(b"org.apache.spark.legacy") for k in metadata):
        raise _cannot_keep_error(path, target, "times in Spark's legacy notation")
    names = [n.lower() for n in file.schema_arrow.names]
    if len(set(names)) < len(names):
        raise _cannot_keep_error(path, target, "columns whose names differ only in case")
    for field in file.schema_arrow:
        if field.name in target.file_schema:
            declared = target.file_schema.field(field.name).type
            text = str(field.type)
            is_encoded = any(mark in text for mark in ("uint", "[ns", "extension<"))
            if is_encoded or str(spark_type(field.type, field.name)) != str(declared):
                raise _cannot_keep_error(path, target, f"column {field.name!r} as {text}, not {declared}", field.name)


def _cannot_keep_error(path: Path, target: BlockTarget, found: str, column: str | None = None) -> SchemaMismatch:
    return SchemaMismatch(
        f"{target.error_label}: {path} cannot be kept as it is",
        found=found,
        expected="exactly the columns and types of the channel",
        next="insert it without keep_files, which converts the rows",
        file=str(path),
        **({} if column is None else {"column": column}),
    )


def _cannot_hold_error(target: BlockTarget, format_: str, found: str, column: str | None) -> SchemaMismatch:
    where = "" if column is None else f" in column {column!r}"
    return SchemaMismatch(
        f"{target.error_label}: a file of format {format_} does not hold the rows{where}",
        found=found,
        expected="the rows of the block when the file is read again",
        next='choose format="parquet", or insert without keep_files',
        **({} if column is None else {"column": column}),
    )
