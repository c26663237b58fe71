"""Files that other systems make: what is there, and what each of them holds. Nothing here writes or deletes one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs, orc

from nova_assets.engine.storage import file_io
from nova_assets.errors import BadRecord, FileMissing, NotSupported, SchemaMismatch, SourceUnavailable
from nova_assets.model.arrow_types import spark_type
from nova_assets.model.block import DataFile, Manifest
from nova_assets.model.channel import Channel
from nova_assets.model.external_files import Seen
from nova_assets.model.external_table import Described
from nova_assets.model.schema import DataType, Field

AT_ONCE = 16
"""Files that are looked into side by side: far away, each is a wait."""

_TABLES: Mapping[str, str] = {"_delta_log": "Delta Lake", ".hoodie": "Hudi", "_spark_metadata": "Spark's streaming"}
"""Folders by which a table of another format is known, some of whose files may hold rows that are gone."""


_Opened = tuple[int, pa.Schema]
"""Rows, and columns."""


def look(location: str) -> list[Seen]:
    """All files below a location.

    Raises:
        SourceUnavailable: it cannot be listed.
        NotSupported: it is a table of a format that says elsewhere which of its files count.
    """
    try:
        files, path = file_io.filesystem(location)
        prefix = location.removesuffix(path)  # the scheme, which the store leaves out
        found = files.get_file_info(fs.FileSelector(path, recursive=True))
    except (OSError, ValueError, RuntimeError) as error:  # Arrow's own are among them
        raise SourceUnavailable(
            f"{location} cannot be listed",
            found=str(error),
            expected="a folder that is there, and that may be read",
            next="mend it; what was known of it is as it was",
        ) from error
    _refuse_tables(location, [f.path.removeprefix(path) for f in found])
    return [Seen(f"{prefix}{f.path}", int(f.size or 0), int(f.mtime_ns or 0)) for f in found if f.is_file]


def _refuse_tables(location: str, paths: Sequence[str]) -> None:
    parts = {part for path in paths for part in path.split("/")}
    kinds = [kind for name, kind in _TABLES.items() if name in parts]
    kinds += ["Iceberg"] if any("/metadata/" in p and p.endswith(".metadata.json") for p in paths) else []
    if kinds:
        raise NotSupported(
            f"{location} is a table of {kinds[0]}",
            found="files some of whose rows may be gone: its own metadata says which",
            expected="folders of plain Parquet or ORC files",
            next="read it in a function of your own: nova.sql_function(returns='table(...)')",
        )


def described(channel: Channel, partition: str, files: Sequence[Seen]) -> Described:
    """What files hold, by their footers: rows, and whether their columns are the channel's.

    Raises:
        FileMissing: one is gone since it was listed.
        BadRecord: one is not what it should be.
        SchemaMismatch: a column of one is of another type.
    """
    assert channel.external is not None and channel.schema is not None
    read = _orc if channel.external.format == "orc" else _parquet
    with ThreadPoolExecutor(AT_ONCE, "nova-footers") as pool:
        opened = list(pool.map(lambda f: _opened(f, read, channel.name), files))
    columns: set[str] = set()
    found = []
    for file, (rows, schema) in zip(files, opened, strict=True):
        columns |= {name.lower() for name in schema.names}
        _refuse_types(channel, file, schema)
        found.append(DataFile(file.path, rows, file.bytes, partition=partition))
    return Described(tuple(found), frozenset(columns))


def paths_of(manifest: Manifest, channel: str) -> list[str]:
    """Where the files of a block are that others keep, each seen to be there with the size that it had.

    Raises:
        FileMissing: one is gone, was changed, or is not where the block says.
    """
    outside = manifest.outside
    assert outside is not None
    for file in manifest.files:
        if not outside.holds(file.path):
            raise FileMissing(f"{file.path!r} is not in {outside.location}", path=file.path)
    for file, size in zip(manifest.files, file_io.sizes_of([f.path for f in manifest.files]), strict=True):
        if size != file.bytes:
            raise _moved(file, channel, "no such file" if size is None else f"{size} bytes")
    return [f.path for f in manifest.files]


def _moved(file: DataFile, channel: str, found: str) -> FileMissing:
    return FileMissing(
        f"{file.path} was changed, or removed, by whoever writes it",
        found=found,
        expected=f"{file.bytes} bytes, as when {channel!r} was looked at last",
        next=f"nova refresh {channel}, and do it again",
        path=file.path,
    )


def _opened(file: Seen, read: Callable[[str], _Opened], channel: str) -> _Opened:
    try:
        return read(file.path)
    except FileNotFoundError as error:
        raise FileMissing(
            f"{file.path} is gone since it was listed", next=f"nova refresh {channel}", path=file.path
        ) from error
    except (pa.ArrowException, OSError) as error:
        raise BadRecord(
            f"{file.path} cannot be read",
            found=str(error).split("\n", 1)[0],
            expected="a whole file; one that is still being written belongs elsewhere, or behind a file done=",
            path=file.path,
        ) from error


def _parquet(address: str) -> _Opened:
    footer: pq.FileMetaData = file_io.footer_of(address)
    return footer.num_rows, footer.schema.to_arrow_schema()


def _orc(address: str) -> _Opened:
    files, path = file_io.filesystem(address)
    with files.open_input_file(path) as opened:
        found = orc.ORCFile(opened)
        return found.nrows, found.schema


def _refuse_types(channel: Channel, file: Seen, schema: pa.Schema) -> None:
    assert channel.schema is not None
    given = {name.lower(): schema.field(n).type for n, name in enumerate(schema.names)}
    for field in _data(channel):
        kind = given.get(field.name.lower())
        if kind is None:
            continue
        found = spark_type(kind, field.name)
        if not _fits(found, field.type):
            raise SchemaMismatch(
                f"column {field.name!r} of external channel {channel.name!r} is another in {file.path}",
                found=str(found),
                expected=str(field.type),
                next=f"declare it as {found}, if that is what all files have",
                channel=channel.name,
            )


def _fits(found: DataType, declared: DataType) -> bool:
    """Whether Spark reads the one as the other. Older files have moments without a zone, and mean them in UTC."""
    return str(found) == str(declared) or (found.name == "timestamp_ntz" and declared.name == "timestamp")


def _data(channel: Channel) -> Iterator[Field]:
    assert channel.schema is not None
    partition = {c.lower() for c in channel.partition_columns}
    return (f for f in channel.schema.fields if f.name.lower() not in partition)
