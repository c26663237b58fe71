"""Definitions of external tables that follow their sources: columns of a new source, and changes of a known one.

BigDataFlow generates and updates its views of external datasets. Here, ``nova external add`` and ``nova external
check`` do so. A refresh never changes a definition: types would change under the readers of a table without a review.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import get_args

from nova_assets.errors import DefinitionError, NotSupported, SchemaMismatch, SettingsError, SourceUnavailable
from nova_assets.masking import get_logger
from nova_assets.model.channel import Channel
from nova_assets.model.database_table import DatabaseTable, SourceColumn
from nova_assets.model.engine import Engine
from nova_assets.model.external_table import ExternalFormat, MetastoreTable
from nova_assets.model.file_source import ExternalFileInfo
from nova_assets.model.schema import DataType, Field
from nova_assets.nova_error import NovaError
from nova_assets.plan.source_columns import ColumnChange, column_changes, is_file_readable_as
from nova_assets.store.metastore_columns import check_partition_columns, describe_metastore_table, is_supported

MAX_INSPECTED_FILES = 20
"""Number of files whose columns are compared: the newest ones."""


@dataclass(frozen=True, slots=True)
class TableOfFiles:
    """Content of a folder of files, or of a table of a Hive metastore.

    Args:
        columns: columns of the files, then the partition columns.
        partition_columns: names of the partition columns, outermost first.
    """

    format: ExternalFormat
    columns: tuple[Field, ...]
    partition_columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExternalCheck:
    """Differences between the definition of an external channel and its source.

    Args:
        changes: the differences; empty if there are none.
        error: why the source could not be compared; None if it was.
    """

    channel: str
    changes: tuple[ColumnChange, ...] = field(default=())
    error: NovaError | None = None

    @property
    def is_breaking(self) -> bool:
        return any(c.breaking for c in self.changes)


def describe_database(name: str, table: DatabaseTable) -> tuple[SourceColumn, ...]:
    """Columns of a database table or query. Raises SourceUnavailable, SettingsError, NotSupported."""
    from nova_assets.sources.postgres.table import read_columns  # needs psycopg

    return read_columns(name, table)


def describe_table_of_metastore(table: MetastoreTable, channel_name: str) -> TableOfFiles:
    """Format, columns and partition columns of a table of a Hive metastore.

    Raises:
        SourceUnavailable: the metastore does not answer, or has no such table.
        NotSupported: nova cannot read the table's files, or does not support the type of a column.
    """
    actual = describe_metastore_table(table, channel_name)
    format_ = next((f for f in get_args(ExternalFormat) if f == actual.format), None)
    if format_ is None:
        raise NotSupported(
            f"nova cannot read the files of {table.full_name}",
            found=actual.format,
            expected=" or ".join(get_args(ExternalFormat)),
            next="ingest the files: source=nova.files(...)",
        )
    columns = (*actual.columns, *actual.partition_columns)
    if unsupported := [c for c in columns if not is_supported(c)]:
        raise NotSupported(
            f"column {unsupported[0].name!r} of {table.full_name} has a type that nova does not support",
            found=unsupported[0].source_type,
            expected="types of Spark",
            next="write the definition by hand, without this column",
        )
    fields = tuple(Field(c.name, c.type) for c in columns)
    return TableOfFiles(format_, fields, actual.partition_keys)


def describe_folder(engine: Engine, location: str, absolute_location: str) -> TableOfFiles:
    """Format, columns and partition columns of a folder, from its newest files. The partition columns are text.

    Args:
        location: as a person wrote it.
        absolute_location: address of the same folder.

    Raises:
        SourceUnavailable: the folder cannot be listed, or has no Parquet or ORC files.
        SchemaMismatch: a column has different types in different files.
    """
    files = _data_files(engine, absolute_location)
    if not files:
        raise SourceUnavailable(
            f"{location} has no file from which columns could be read",
            expected=f"files whose names end with {' or '.join(f'.{f}' for f in get_args(ExternalFormat))}",
        )
    format_ = _format_of(files[-1].path)
    assert format_ is not None
    newest = [f for f in files if _format_of(f.path) == format_][-MAX_INSPECTED_FILES:]
    columns = _columns_of_files(engine, location, newest, format_)
    partition_columns = _partition_columns(newest[-1].path.removeprefix(f"{absolute_location}/"))
    in_folder_names = {c.lower() for c in partition_columns}
    fields = [Field(c.name, c.type) for c in columns if c.name.lower() not in in_folder_names]
    fields += [Field(c, DataType("string")) for c in partition_columns]
    return TableOfFiles(format_, tuple(fields), partition_columns)


def check_external(engine: Engine, channel: Channel, absolute_location: str) -> ExternalCheck:
    """Compare an external channel with its source. A source that does not answer is reported, not raised."""
    assert channel.external is not None
    try:
        if channel.external.database is not None:
            columns = describe_database(channel.name, channel.external.database)
        elif channel.external.metastore_table is not None:
            columns = _columns_in_metastore(channel, channel.external.metastore_table)
        else:
            columns = _columns_of_newest_files(engine, channel, absolute_location)
        return ExternalCheck(channel.name, column_changes(channel, columns))
    except NovaError as error:
        return ExternalCheck(channel.name, error=error)


def check_databases(channels: Sequence[Channel], timeout: int = 2) -> tuple[list[NovaError], list[NovaError]]:
    """Compare the channels that copy a database with their sources.

    Args:
        timeout: of connecting, in seconds.

    Returns:
        The contradictions, and the reasons why other sources could not be compared.
    """
    contradictions: list[NovaError] = []
    unavailable: list[NovaError] = []
    for channel in channels:
        if channel.external is None or channel.external.database is None:
            continue
        from nova_assets.sources.postgres.table import check_source  # needs psycopg

        try:
            check_source(channel, timeout)
        except (SourceUnavailable, SettingsError) as error:
            unavailable.append(error)
        except NovaError as error:
            contradictions.append(error)
    return contradictions, unavailable


def _columns_in_metastore(channel: Channel, table: MetastoreTable) -> tuple[SourceColumn, ...]:
    """Columns of the files. The partition columns must be those of the channel.

    Columns that no channel can have are left out, unless this channel declares them.
    """
    assert channel.schema is not None
    actual = describe_metastore_table(table, channel.name)
    check_partition_columns(channel, table, actual)
    declared = {n.lower() for n in channel.schema.names}
    return tuple(c for c in actual.columns if c.name in declared or is_supported(c))


def _columns_of_newest_files(engine: Engine, channel: Channel, absolute_location: str) -> tuple[SourceColumn, ...]:
    assert channel.external is not None
    files = [f for f in engine.external_files.list_files(absolute_location) if _is_data(f, absolute_location)]
    if channel.external.success_file is not None:
        files = [f for f in files if PurePosixPath(f.path).name != channel.external.success_file]
    newest = sorted(files, key=lambda f: (f.modified_ns, f.path))[-MAX_INSPECTED_FILES:]
    if not newest:
        raise SourceUnavailable(f"{channel.external.location} has no files", expected="at least one file with rows")
    columns: dict[str, SourceColumn] = {}
    declared = {} if channel.schema is None else {f.name.lower(): f.type for f in channel.schema.fields}
    for file in reversed(newest):
        for f in engine.external_files.read_file_schema(file.path, channel.external.format).fields:
            column, expected = SourceColumn(f.name, str(f.type), f.type), declared.get(f.name.lower())
            earlier = columns.setdefault(f.name.lower(), column)
            # A type that the definition cannot read in any of these files is a change, even if the newest can be read.
            if expected is not None and is_file_readable_as(earlier, expected):
                columns[f.name.lower()] = earlier if is_file_readable_as(column, expected) else column
    return tuple(columns.values())


def _columns_of_files(
    engine: Engine, location: str, files: Sequence[ExternalFileInfo], format_: ExternalFormat
) -> list[Field]:
    columns: dict[str, Field] = {}
    for file in reversed(files):
        for f in engine.external_files.read_file_schema(file.path, format_).fields:
            earlier = columns.setdefault(f.name.lower(), f)
            if str(earlier.type) != str(f.type):
                raise SchemaMismatch(
                    f"column {f.name!r} has different types in the files of {location}",
                    found=f"{earlier.type}, and {f.type} in {file.path}",
                    expected="one type in all files",
                )
    return list(columns.values())


def _data_files(engine: Engine, absolute_location: str) -> list[ExternalFileInfo]:
    """Files with rows, oldest first."""
    files = [f for f in engine.external_files.list_files(absolute_location) if _is_data(f, absolute_location)]
    return sorted((f for f in files if _format_of(f.path) is not None), key=lambda f: (f.modified_ns, f.path))


def _is_data(file: ExternalFileInfo, absolute_location: str) -> bool:
    parts = PurePosixPath(file.path.removeprefix(f"{absolute_location}/")).parts
    return file.bytes > 0 and not any(p.startswith((".", "_")) and "=" not in p for p in parts)


def _format_of(path: str) -> ExternalFormat | None:
    return next((f for f in get_args(ExternalFormat) if path.lower().endswith(f".{f}")), None)


def _partition_columns(relative_path: str) -> tuple[str, ...]:
    folders = relative_path.split("/")[:-1]
    return tuple(f.partition("=")[0] for f in folders if "=" in f)


log = get_logger("nova_assets.external")

_checked_definitions: set[str] = set()
"""Definitions that this process has compared. A process loads its definitions many times."""


def check_sources_once(channels: Iterable[Channel], is_refreshed: Callable[[Channel], bool]) -> None:
    """Compare the channels that copy a database with their sources, unless this process did so before.

    A source that does not answer is no error. A contradiction is an error for a new definition. For a definition under
    which the channel was refreshed, the source has changed, and the contradiction is logged: pipelines that do not read
    the channel must go on.

    Args:
        is_refreshed: whether a channel was refreshed under its definition.

    Raises:
        DefinitionError: new definitions contradict their sources. The error lists all contradictions.
    """
    problems: list[str] = []
    silent_databases: set[str] = set()  # each of them costs the time of a connection that nobody answers
    for channel in channels:
        if channel.external is None or channel.external.database is None or _key(channel) in _checked_definitions:
            continue
        url = channel.external.location
        contradictions, unavailable = ([], []) if url in silent_databases else check_databases([channel])
        for error in unavailable:
            silent_databases.add(url)
            log.info("the definition of %s was not compared with its source: %s", channel.name, error.found)
        for contradiction in contradictions:
            if is_refreshed(channel) or not isinstance(contradiction, SchemaMismatch | DefinitionError):
                log.warning("%s", contradiction)
            else:
                problems.append(f"{contradiction.what}: {contradiction.found}")
        if not contradictions and url not in silent_databases:
            _checked_definitions.add(_key(channel))
    if problems:
        raise DefinitionError.of(problems, "the project")


def _key(channel: Channel) -> str:
    return repr(channel.as_json())
