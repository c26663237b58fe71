"""A channel as a table of Apache Iceberg: each edition is a snapshot, whose files are the channel's own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from nova_assets.crash_points import crash_point
from nova_assets.errors import CommitConflict, NotSupported, TableTaken, TableUnavailable
from nova_assets.model.arrow_types import to_arrow
from nova_assets.model.published_version import Content
from nova_assets.settings import s3_place

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

_OWNER = "nova.published-from"
_EDITION = "nova.edition"
_SEQ = "nova.seq"

_PROPERTIES = {
    # Whose files these are decides when they go: not the table's own expiry, nor another engine's.
    "gc.enabled": "false",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "commit.manifest-merge.enabled": "true",
    # An edition that is late is no edition: it is not to be put on top of a newer one.
    "commit.retry.num-retries": "0",
}


class IcebergOutlet:
    """The table of one channel.

    Args:
        name: with its namespace.
        load: opens the catalog that it is in.
        owner: tells whose it is: our catalog and the channel.
    """

    def __init__(self, name: str, load: Callable[[], Catalog], owner: str) -> None:
        self.name = name
        self.owner = owner
        self._load = load

    def check(self, *, take_over: bool = False) -> None:
        with self._reaching():
            table = self._table()
            if table is not None:
                self._refuse_strangers(table)

    def shown(self) -> int | None:
        with self._reaching():
            table = self._table()
            return None if table is None else _number(table.current_snapshot())

    def is_whole(self, number: int) -> bool:
        return True  # its table would not have been loaded

    def show(self, number: int, content: Content, where: Sequence[str], *, take_over: bool = False) -> None:
        with self._reaching():
            table = self._table() or self._create(content)
            self._refuse_strangers(table)
            crash_point("edition.made")
            shown = _number(table.current_snapshot())
            if shown is not None and shown >= number:
                raise CommitConflict(
                    f"{self.name} shows a later edition", found=shown, expected=f"one before {number}", reason="edition"
                )
            _commit(table, number, content, [path if "://" in path else f"file://{path}" for path in where])

    def forget(self, numbers: Collection[int]) -> None:
        with self._reaching():
            table = self._table()
            if table is None:
                return
            current = table.current_snapshot()
            gone = [s for s in table.snapshots() if s != current and _number(s) in numbers]
            if not gone:
                return
            before = _metadata_files(table, gone)
            table.maintenance.expire_snapshots().by_ids([s.snapshot_id for s in gone]).commit()
            table.refresh()
            for path in sorted(before - _metadata_files(table, table.snapshots())):
                table.io.delete(path)

    def withdraw(self) -> None:
        with self._reaching():
            table = self._table()
            if table is None:
                return
            self._refuse_strangers(table)
            gone = _metadata_files(table, table.snapshots())
            gone |= {table.metadata_location, *(m.metadata_file for m in table.metadata.metadata_log)}
            self._load().drop_table(self.name)
            for path in sorted(gone):
                table.io.delete(path)

    def _table(self) -> Table | None:
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        try:
            return self._load().load_table(self.name)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None

    def _create(self, content: Content) -> Table:
        catalog = self._load()
        catalog.create_namespace_if_not_exists(self.name.rsplit(".", 1)[0])
        properties = {**_PROPERTIES, _OWNER: self.owner, "format-version": "2"}
        with catalog.create_table_transaction(self.name, schema=_schema(content), properties=properties) as made:
            if content.dimensions:
                with made.update_spec() as spec:
                    for dimension in content.dimensions:
                        spec.add_identity(dimension.column)
        return catalog.load_table(self.name)

    def _refuse_strangers(self, table: Table) -> None:
        owner = table.properties.get(_OWNER)
        if owner != self.owner:
            raise TableTaken(
                f"the Iceberg table {self.name} is there already, and is not of this channel",
                found="a table of " + (owner or "somebody else's"),
                expected=f"none, or one of {self.owner}",
                next="publish under another name, or drop it",
                table=self.name,
            )

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            from pyiceberg.exceptions import CommitFailedException, ValidationException
        except ModuleNotFoundError as error:
            raise NotSupported(
                "channels are published as Iceberg tables by PyIceberg, which is not installed",
                found=str(error),
                next="pip install 'nova-assets[iceberg]'",
            ) from error
        try:
            yield
        except (CommitConflict, TableTaken, TableUnavailable, NotSupported):
            raise
        except (CommitFailedException, ValidationException) as error:
            raise CommitConflict(
                f"the Iceberg table {self.name} was changed meanwhile", found=str(error), reason="edition"
            ) from error
        except Exception as error:  # of the catalog, whichever it is: database, HTTP, files
            raise TableUnavailable(
                f"the Iceberg table {self.name} cannot be reached or written",
                found=f"{type(error).__name__}: {error}".split("\n")[0],
                next="mend that; readers see what they saw before",
                table=self.name,
            ) from error


def _commit(table: Table, number: int, content: Content, paths: Sequence[str]) -> None:
    """One snapshot: files that are new are added, those that are gone are removed."""
    from pyiceberg.io.pyarrow import parquet_file_to_data_file
    from pyiceberg.table import TableProperties

    listed = {task.file.file_path: task.file for task in table.scan().plan_files()}
    wanted = set(paths)
    with table.transaction() as change:
        with change.update_schema(allow_incompatible_changes=True) as schema:
            for field in table.schema().fields:
                if field.name not in content.schema:  # no file has it any more
                    schema.delete_column(field.name)
            schema.union_by_name(_schema(content))
        mapping = change.table_metadata.schema().name_mapping.model_dump_json()
        if table.properties.get(TableProperties.DEFAULT_NAME_MAPPING) != mapping:
            change.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})
        said = {_EDITION: str(number), _SEQ: str(content.seq)}
        with change.update_snapshot(snapshot_properties=said).overwrite() as snapshot:
            for path in sorted(listed.keys() - wanted):
                snapshot.delete_data_file(listed[path])
            for path in paths:
                if path not in listed:
                    snapshot.append_data_file(parquet_file_to_data_file(table.io, change.table_metadata, path))


def _schema(content: Content) -> pa.Schema:
    """The channel's columns as Iceberg may hold them: none of them is required, since files that were written before a
    column came lack it."""
    return pa.schema([pa.field(f.name, f.type, nullable=True) for f in to_arrow(content.schema)])


def _number(snapshot: Snapshot | None) -> int | None:
    """The edition that a snapshot is."""
    said: Any = None if snapshot is None or snapshot.summary is None else snapshot.summary[_EDITION]
    return None if said is None else int(said)


def _metadata_files(table: Table, snapshots: Iterable[Snapshot]) -> set[str]:
    """The files in which it stands what some snapshots list."""
    found: set[str] = set()
    for snapshot in snapshots:
        found.add(snapshot.manifest_list)
        found.update(m.manifest_path for m in snapshot.manifests(table.io))
    return found


def own_catalog(home: Path) -> Catalog:
    """The catalog that is there without being configured: SQLite, and a folder beside it."""
    from pyiceberg.catalog.sql import SqlCatalog

    home.mkdir(parents=True, exist_ok=True)
    endpoint, region = s3_place()
    where = {"uri": f"sqlite:///{home / 'catalog.db'}", "warehouse": f"file://{home / 'tables'}"}
    reached = {"s3.endpoint": endpoint, "s3.region": region}  # which PyIceberg does not take from there itself
    return SqlCatalog("nova", **where, **{name: value for name, value in reached.items() if value})


def named_catalog(name: str) -> Catalog:
    """A catalog as PyIceberg's own configuration has it."""
    from pyiceberg.catalog import load_catalog

    return load_catalog(name)
