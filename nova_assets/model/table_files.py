"""Files of a published table, as the readers of the table expect them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from nova_assets.model.json_form import JsonForm
from nova_assets.short_repr import short_repr

TableFormat = Literal["parquet", "orc", "rcfile", "avro", "csv", "json"]

TABLE_FORMATS: tuple[str, ...] = get_args(TableFormat)

FILE_SUFFIXES: Mapping[str, str] = {
    "parquet": ".parquet",
    "orc": ".orc",
    "rcfile": "",
    "avro": ".avro",
    "csv": ".csv",
    "json": ".json",
}
"""Format -> suffix of the names of new files. Hive gives its own files no suffix."""

DEFAULT_FILE_BYTES = 128 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class TableFileLayout(JsonForm):
    """Layout of the files that nova converts for a published table.

    Args:
        format: file format.
        path_columns: partition columns that are in the names of folders only, and in no file.
        columns: columns of the files, in their order. Columns of the channel that are not listed follow. Empty for the
            order of the channel.
        arrow_schema: for Parquet: serialized Arrow schema, in Base64, that the files had before the table was taken
            over. Its columns keep their types. Empty for the types of the channel.
        int96: for Parquet: whether timestamps are stored in the old type INT96.
        compression: for Parquet: name of the codec.
        header: for CSV: whether the first line has the names of the columns.
        suffix: end of the file names.
    """

    __repr__ = short_repr

    format: TableFormat = "parquet"
    path_columns: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    arrow_schema: str = ""
    int96: bool = False
    compression: str = "zstd"
    header: bool = True
    suffix: str = ".parquet"

    def file_columns(self, channel_columns: Sequence[str]) -> tuple[str, ...]:
        """Columns of a file, in their order.

        Args:
            channel_columns: all columns of the channel.
        """
        stored = [c for c in channel_columns if c not in self.path_columns]
        first = [c for c in self.columns if c in stored]
        return (*first, *(c for c in stored if c not in first))

    @property
    def digest(self) -> str:
        """Hash of the layout. Files of one layout can be reused in another only if both hashes are equal."""
        text = json.dumps(self.as_json(), separators=(",", ":"), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file that was converted for a published table.

    Args:
        name: name in the folder of its partition.
        bytes: size of the file.
    """

    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class ExistingTableFile:
    """A data file of a folder that other tools have filled.

    Args:
        address: path or address of the file.
        bytes: size of the file.
        folder_values: partition column -> its value in the names of the folders; None for null.
    """

    address: str
    bytes: int
    folder_values: Mapping[str, str | None]
