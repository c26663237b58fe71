"""Parquet, ORC and Avro files as Arrow tables. They say of themselves what their columns are."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from nova_assets.formats.file import File, bad


def read_parquet(file: File) -> pa.Table:
    """A whole Parquet file. Raises BadRecord where it is none."""
    # partitioning would add columns that stand in the path and not in the file
    return columnar(file, partial(pq.read_table, partitioning=None), "Parquet")


def read_orc(file: File) -> pa.Table:
    """A whole ORC file. Raises BadRecord where it is none."""
    return columnar(file, orc.read_table, "ORC")


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
