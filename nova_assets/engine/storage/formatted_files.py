"""Files of blocks in ORC, Avro, CSV and JSON lines: read by this package alone, as an insert reads them (Nova 3.1).

All readers, in this process and in Spark's workers, use the same function. So a file has the same rows everywhere:
Spark, Arrow and other tools differ in nulls, times, decimals and quotes of one CSV file. A file is read as a whole, and
all its bytes are compared with the digest that its writer has computed, since these formats have no footer that names
the file.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from nova_assets.engine.storage import file_io
from nova_assets.engine.storage.integrity import digest_of_file, file_altered_error
from nova_assets.errors import BadRecord
from nova_assets.formats import readers, schema_fit
from nova_assets.formats.column_conversion import convert_table
from nova_assets.formats.input_file import InputFile
from nova_assets.model.block import Block, DataFile
from nova_assets.model.schema import DELETED, Schema
from nova_assets.model.value_conversion import TYPED

FORMATS = ("orc", "avro", "csv", "json")
"""Formats of blocks that this module reads. Parquet has readers of its own."""


@dataclass(frozen=True, slots=True)
class FormattedFile:
    """A file of a block, with all that is needed to read it, also in another process.

    Args:
        address: address of the file.
        format: file format.
        stored_schema: columns of the block.
        column_by_stored_name: columns to return, by the names under which the block has them.
        digest: digest of all bytes.
        path: path in the warehouse, for errors.
        delta_index: index of the delta, for readers that need it.
    """

    address: str
    format: str
    stored_schema: Schema
    column_by_stored_name: Mapping[str, str]
    digest: str
    path: str
    delta_index: int | None = None

    def read(self, schema: Schema) -> pa.Table:
        """Rows of the file in the columns of a schema. Columns that the file lacks are null.

        Raises:
            FileAltered: the file has other bytes than were written.
            FileNotFoundError: the file is missing.
        """
        with _local_copy(self.address) as path:
            if self.digest and digest_of_file(str(path)) != self.digest:
                raise file_altered_error(self.path, "other bytes than were written", self.address)
            rows = parse_block_file(path, self.format, self.stored_schema)
        names = [n for n in rows.column_names if n in self.column_by_stored_name]
        rows = rows.select(names).rename_columns([self.column_by_stored_name[n] for n in names])
        return schema_fit.fit_to_schema(rows, schema.with_all_nullable())


def formatted_file(
    block: Block,
    file: DataFile,
    address: str,
    column_by_stored_name: Mapping[str, str],
    delta_index: int | None = None,
) -> FormattedFile:
    """File of a block, with the arguments of ``FormattedFile``."""
    stored = block.manifest.schema.of_files
    return FormattedFile(
        address, block.manifest.format, stored, column_by_stored_name, file.digest, file.path, delta_index
    )


def parse_block_file(path: Path, format_: Any, stored_schema: Schema) -> pa.Table:
    """Rows of a local file, converted to the types of its block.

    Columns that the block lacks are left out, except ``_deleted``. Columns that the file lacks are not added.

    Raises:
        NovaError: the file does not have this format, or a value is not of its column's type.
    """
    schema = stored_schema.without_columns(DELETED)
    try:
        rows = readers.read_table(InputFile(path), format_, schema)
    except pa.ArrowException as error:
        raise BadRecord(f"{path}: the file cannot be read", found=str(error).splitlines()[0], file=str(path)) from error
    rows = rows.select([n for n in rows.column_names if n in schema or n == DELETED]).replace_schema_metadata(None)
    return convert_table(rows, schema, TYPED)


@contextmanager
def _local_copy(address: str) -> Iterator[Path]:
    """Local path of a file. A remote file is fetched first."""
    if not file_io.is_remote(address):
        yield Path(address)
        return
    with tempfile.TemporaryDirectory(prefix="nova-file-") as folder:
        path = Path(folder) / file_io.name_of(address)
        with file_io.open_input_stream(address) as source, path.open("wb") as target:
            shutil.copyfileobj(source, target, 4 * 2**20)
        yield path
