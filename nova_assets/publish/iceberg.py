"""Publishing a channel as an Apache Iceberg table: each published version is a snapshot of the channel's own files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from nova_assets.crash_points import crash_point
from nova_assets.errors import CommitConflict, NotSupported, TableTaken, TableUnavailable
from nova_assets.model.arrow_types import to_arrow_schema
from nova_assets.model.published_version import PublishedContent
from nova_assets.publish.target import Edition
from nova_assets.s3_settings import s3_endpoint_and_region

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

_OWNER_PROPERTY = "nova.published-from"
_VERSION_PROPERTY = "nova.edition"
_SEQ_PROPERTY = "nova.seq"

_TABLE_PROPERTIES = {
    # nova decides when files are deleted, not the table's expiry or another engine.
    "gc.enabled": "false",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "commit.manifest-merge.enabled": "true",
    # A late version must not be committed on top of a newer one, so conflicts are not retried.
    "commit.retry.num-retries": "0",
}


class IcebergPublishTarget:
    """The Iceberg table of one channel.

    Args:
        name: name of the table, with its namespace.
        open_catalog: opens the Iceberg catalog of the table.
        owner: identifies nova's catalog and the channel.
    """

    def __init__(self, name: str, open_catalog: Callable[[], Catalog], owner: str) -> None:
        self.name = name
        self.owner = owner
        self._open_catalog = open_catalog

    def check_can_publish(self, *, take_over: bool = False) -> None:
        with self._translate_errors():
            table = self._load_table()
            if table is None:
                return
            if take_over and table.properties.get(_OWNER_PROPERTY) != self.owner:
                raise NotSupported(
                    f"the Iceberg table {self.name} cannot be taken over",
                    found="a table of " + (table.properties.get(_OWNER_PROPERTY) or "an unknown owner"),
                    expected="only folders of files can be taken over, with nova.hive(...) or nova.hive_table(...)",
                    next="publish under another name, or drop the table and publish without --take-over",
                    table=self.name,
                )
            self._check_ownership(table)

    def published_version(self) -> int | None:
        with self._translate_errors():
            table = self._load_table()
            return None if table is None else _version_of_snapshot(table.current_snapshot())

    def is_complete(self, number: int) -> bool:
        return True  # an incomplete table could not be loaded

    def publish(self, edition: Edition) -> None:
        with self._translate_errors():
            table = self._load_table() or self._create_table(edition.content)
            self._check_ownership(table)
            crash_point("edition.made")
            published = _version_of_snapshot(table.current_snapshot())
            if published is not None and published >= edition.number:
                raise CommitConflict(
                    f"{self.name} already shows a later version",
                    found=published,
                    expected=f"a version before {edition.number}",
                    reason="edition",
                )
            file_addresses = [path if "://" in path else f"file://{path}" for path in edition.file_paths]
            _commit_snapshot(table, edition.number, edition.content, file_addresses)

    def delete_versions(self, numbers: Collection[int]) -> None:
        with self._translate_errors():
            table = self._load_table()
            if table is None:
                return
            current = table.current_snapshot()
            expired_snapshots = [s for s in table.snapshots() if s != current and _version_of_snapshot(s) in numbers]
            if not expired_snapshots:
                return
            old_metadata_files = _metadata_files(table, expired_snapshots)
            table.maintenance.expire_snapshots().by_ids([s.snapshot_id for s in expired_snapshots]).commit()
            table.refresh()
            for path in sorted(old_metadata_files - _metadata_files(table, table.snapshots())):
                table.io.delete(path)

    def withdraw(self) -> None:
        with self._translate_errors():
            table = self._load_table()
            if table is None:
                return
            self._check_ownership(table)
            metadata_files = _metadata_files(table, table.snapshots())
            metadata_files |= {table.metadata_location, *(m.metadata_file for m in table.metadata.metadata_log)}
            self._open_catalog().drop_table(self.name)
            for path in sorted(metadata_files):
                table.io.delete(path)

    def _load_table(self) -> Table | None:
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        try:
            return self._open_catalog().load_table(self.name)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None

    def _create_table(self, content: PublishedContent) -> Table:
        catalog = self._open_catalog()
        catalog.create_namespace_if_not_exists(self.name.rsplit(".", 1)[0])
        properties = {**_TABLE_PROPERTIES, _OWNER_PROPERTY: self.owner, "format-version": "2"}
        with catalog.create_table_transaction(
            self.name, schema=_nullable_arrow_schema(content), properties=properties
        ) as transaction:
            if content.dimensions:
                with transaction.update_spec() as spec:
                    for dimension in content.dimensions:
                        spec.add_identity(dimension.column)
        return catalog.load_table(self.name)

    def _check_ownership(self, table: Table) -> None:
        owner = table.properties.get(_OWNER_PROPERTY)
        if owner != self.owner:
            raise TableTaken(
                f"the Iceberg table {self.name} exists already, and does not belong to this channel",
                found="a table of " + (owner or "an unknown owner"),
                expected=f"no table, or a table of {self.owner}",
                next="publish under another name, or drop the table",
                table=self.name,
            )

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            from pyiceberg.exceptions import CommitFailedException, ValidationException
        except ModuleNotFoundError as error:
            raise NotSupported(
                "Iceberg tables need PyIceberg, which is not installed",
                found=str(error),
                next="pip install 'nova-assets[iceberg]'",
            ) from error
        try:
            yield
        except (CommitConflict, TableTaken, TableUnavailable, NotSupported):
            raise
        except (CommitFailedException, ValidationException) as error:
            raise CommitConflict(
                f"another process has changed the Iceberg table {self.name} meanwhile",
                found=str(error),
                reason="edition",
            ) from error
        except Exception as error:  # errors of any Iceberg catalog: database, HTTP, files
            raise TableUnavailable(
                f"the Iceberg table {self.name} cannot be reached or written",
                found=f"{type(error).__name__}: {error}".split("\n")[0],
                next="correct the cause; readers still see the previous version",
                table=self.name,
            ) from error


def _commit_snapshot(table: Table, number: int, content: PublishedContent, file_paths: Sequence[str]) -> None:
    """Commit one snapshot that adds new files and removes files that the version no longer lists."""
    from pyiceberg.io.pyarrow import parquet_file_to_data_file
    from pyiceberg.table import TableProperties

    listed_files = {task.file.file_path: task.file for task in table.scan().plan_files()}
    new_paths = set(file_paths)
    with table.transaction() as transaction:
        with transaction.update_schema(allow_incompatible_changes=True) as schema:
            for field in table.schema().fields:
                if field.name not in content.schema:  # no file contains it any more
                    schema.delete_column(field.name)
            schema.union_by_name(_nullable_arrow_schema(content))
        mapping = transaction.table_metadata.schema().name_mapping.model_dump_json()
        if table.properties.get(TableProperties.DEFAULT_NAME_MAPPING) != mapping:
            transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})
        snapshot_properties = {_VERSION_PROPERTY: str(number), _SEQ_PROPERTY: str(content.seq)}
        with transaction.update_snapshot(snapshot_properties=snapshot_properties).overwrite() as snapshot:
            for path in sorted(listed_files.keys() - new_paths):
                snapshot.delete_data_file(listed_files[path])
            for path in file_paths:
                if path not in listed_files:
                    snapshot.append_data_file(parquet_file_to_data_file(table.io, transaction.table_metadata, path))


def _nullable_arrow_schema(content: PublishedContent) -> pa.Schema:
    """Arrow schema of the channel with all columns nullable. Files written before a column was added lack it."""
    return pa.schema([pa.field(f.name, f.type, nullable=True) for f in to_arrow_schema(content.schema)])


def _version_of_snapshot(snapshot: Snapshot | None) -> int | None:
    """Number of the published version in a snapshot; None if the snapshot is not from nova."""
    text: Any = None if snapshot is None or snapshot.summary is None else snapshot.summary[_VERSION_PROPERTY]
    return None if text is None else int(text)


def _metadata_files(table: Table, snapshots: Iterable[Snapshot]) -> set[str]:
    """Manifest lists and manifests of some snapshots."""
    paths: set[str] = set()
    for snapshot in snapshots:
        paths.add(snapshot.manifest_list)
        paths.update(m.manifest_path for m in snapshot.manifests(table.io))
    return paths


def default_iceberg_catalog(folder: Path) -> Catalog:
    """Default catalog without configuration: SQLite, with a folder of tables beside it."""
    from pyiceberg.catalog.sql import SqlCatalog

    folder.mkdir(parents=True, exist_ok=True)
    endpoint, region = s3_endpoint_and_region()
    locations = {"uri": f"sqlite:///{folder / 'catalog.db'}", "warehouse": f"file://{folder / 'tables'}"}
    s3_options = {"s3.endpoint": endpoint, "s3.region": region}  # PyIceberg does not read these settings itself
    return SqlCatalog("nova", **locations, **{name: value for name, value in s3_options.items() if value})


def configured_iceberg_catalog(name: str) -> Catalog:
    """Catalog from PyIceberg's own configuration."""
    from pyiceberg.catalog import load_catalog

    return load_catalog(name)
