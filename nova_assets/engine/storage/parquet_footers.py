"""What Parquet files tell: their footers of exact rows and bytes, key ranges and nulls (R16); and their rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from nova_assets.engine.storage import file_io
from nova_assets.engine.storage.integrity import footer_of_block_file, open_block_file
from nova_assets.engine.storage.parquet_writer import FileReport
from nova_assets.model.block import DataFile

_LONGEST = 512
"""A bound that is longer than this many characters is left out: the catalog is no place for documents."""


@dataclass(frozen=True, slots=True)
class Footer:
    """One file, as its footer describes it.

    Args:
        nulls: column -> rows that are null in it; None where the file does not say.
        digest: of all bytes of the file; empty where its writer computed none.
        footer_digest: of the footer alone.
        unpacked: bytes of its rows before they are compressed.
    """

    path: str
    rows: int
    bytes: int
    ranges: dict[str, tuple[Any, Any]]
    nulls: dict[str, int | None]
    digest: str = ""
    footer_digest: str = ""
    unpacked: int = 0

    def as_file(self, folder: str) -> DataFile:
        """As a block lists it.

        Args:
            folder: the block's, below the warehouse's root.
        """
        path = file_io.join(folder, file_io.name_of(self.path))
        return DataFile(
            path,
            self.rows,
            self.bytes,
            self.ranges,
            digest=self.digest,
            footer_digest=self.footer_digest,
            unpacked=self.unpacked,
        )

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Footer:
        return Footer(**{**data, "ranges": {c: (low, high) for c, (low, high) in data["ranges"].items()}})


def reported(report: FileReport, ranges_of: Sequence[str] = (), nulls_of: Sequence[str] = ()) -> Footer:
    """The footer of a file that was just written, as its writer reports it. Nothing is read.

    Args:
        ranges_of, nulls_of: as for ``read_footer``.
    """
    described = _described(report.metadata, ranges_of, nulls_of)
    unpacked = unpacked_bytes(report.metadata)
    return Footer(report.path, report.rows, report.bytes, *described, report.digest, report.footer_digest, unpacked)


def read_footer(path: str, ranges_of: Sequence[str] = (), nulls_of: Sequence[str] = ()) -> Footer:
    """Read one footer.

    Args:
        path: a Parquet file.
        ranges_of: columns whose least and greatest values are wanted; those that have none are left out.
        nulls_of: columns whose nulls are to be counted.
    """
    metadata = footer_of_block_file(path)
    described = _described(metadata, ranges_of, nulls_of)
    return Footer(path, metadata.num_rows, file_io.size_of(path), *described, unpacked=unpacked_bytes(metadata))


def _described(
    metadata: pq.FileMetaData, ranges_of: Sequence[str], nulls_of: Sequence[str]
) -> tuple[dict[str, tuple[Any, Any]], dict[str, int | None]]:
    ranges = {c: r for c in ranges_of if (r := _range(_chunks(metadata, c))) is not None}
    return ranges, {c: _nulls(_chunks(metadata, c)) for c in nulls_of}


def unpacked_bytes(metadata: pq.FileMetaData) -> int:
    """Bytes of the rows of a file before they are compressed."""
    return sum(int(metadata.row_group(n).total_byte_size) for n in range(metadata.num_row_groups))


def table_of(files: Sequence[str], columns: list[str] | None = None) -> pa.Table:
    """The rows of some files of one block."""
    return pa.concat_tables([open_block_file(f).read(columns) for f in files], promote_options="default")


def total_nulls(footers: Iterable[Footer], column: str) -> int | None:
    """Nulls of one column in all files; None where one of them does not say."""
    counts = [f.nulls[column] for f in footers]
    return None if None in counts else sum(c for c in counts if c is not None)


def _chunks(metadata: pq.FileMetaData, column: str) -> list[Any] | None:
    """Statistics of a top-level column, by row group; None where it is nested, absent, or has none."""
    schema = metadata.schema
    leaves = (i for i in range(metadata.num_columns) if schema.column(i).path == column)
    # A field "b" of a struct "a" has the same path as a column "a.b", but more levels.
    index = next((i for i in leaves if schema.column(i).max_definition_level <= 1), None)
    if index is None or schema.column(index).max_repetition_level:
        return None
    found = [metadata.row_group(g).column(index).statistics for g in range(metadata.num_row_groups)]
    return None if any(s is None for s in found) else found


def _nulls(chunks: list[Any] | None) -> int | None:
    if chunks is None or not all(s.has_null_count for s in chunks):
        return None
    return sum(int(s.null_count) for s in chunks)


def _range(chunks: list[Any] | None) -> tuple[Any, Any] | None:
    if not chunks:
        return None
    try:
        bounds = list(_bounds(chunks))
    except (ValueError, OverflowError):  # dates that Python does not have
        return None
    if not bounds:
        return None
    try:
        low, high = plain(min(b[0] for b in bounds)), plain(max(b[1] for b in bounds))
    except TypeError:
        return None
    return None if low is None or high is None else (low, high)


def _bounds(chunks: list[Any]) -> Iterator[tuple[Any, Any]]:
    """Least and greatest of each row group; nothing at all if one that has values does not give them."""
    found = []
    for chunk in chunks:
        if chunk.has_min_max:
            found.append((chunk.min, chunk.max))
        elif not (chunk.has_null_count and chunk.num_values == 0):
            return
    yield from found


def plain(value: Any) -> Any:
    """A value as JSON has it; None for what JSON cannot hold, what is too long to keep, and floats, whose bounds leave
    out any NaN."""
    if isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return value if len(value) <= _LONGEST else None
    if isinstance(value, datetime | date):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal) else None
