"""Parquet and ORC files as Arrow tables. They say of themselves what their columns are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from nova_assets.formats.file import File, TooLarge, bad


def read_parquet(file: File) -> pa.Table:
    """A whole Parquet file. Raises BadRecord where it is none, or becomes too large."""
    return columnar(file, partial(_parquet, most=file.largest), "Parquet")


def read_orc(file: File) -> pa.Table:
    """A whole ORC file. Raises BadRecord where it is none, or becomes too large."""
    return columnar(file, partial(_orc, most=file.largest), "ORC")


def _parquet(path: Path, most: int | None) -> pa.Table:
    if most is None:  # partitioning would add columns that stand in the path and not in the file
        return pq.read_table(path, partitioning=None)
    with pq.ParquetFile(path) as opened:
        parts = (opened.read_row_group(n) for n in range(opened.num_row_groups))
        return _bounded(parts, opened.schema_arrow, most)


def _orc(path: Path, most: int | None) -> pa.Table:
    if most is None:
        return orc.read_table(path)
    opened = orc.ORCFile(path)
    parts = (pa.Table.from_batches([opened.read_stripe(n)]) for n in range(opened.nstripes))
    return _bounded(parts, opened.schema, most)


def _bounded(parts: Iterable[pa.Table], schema: pa.Schema, most: int) -> pa.Table:
    """All parts of a file, unless they take too much memory together."""
    found: list[pa.Table] = []
    for part in parts:
        found.append(part)
        if sum(p.nbytes for p in found) > most:
            raise TooLarge(f"more than {most} bytes when it is decompressed")
    return pa.concat_tables(found) if found else schema.empty_table()


def columnar(file: File, read: Callable[[Any], Any], format_: str) -> Any:
    """What a reader makes of a file. Raises BadRecord where that fails."""
    try:
        return read(file.path)
    except (pa.ArrowException, OSError) as error:
        raise bad(
            file,
            f"the file is no whole {format_} file",
            found=str(error).splitlines()[0] if str(error) else type(error).__name__,
            expected=f"a {format_} file with its footer",
            next="fetch the file again: it looks cut short, or is of another format",
        ) from error
