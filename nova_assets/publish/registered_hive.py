"""A published folder that is also registered in a Hive metastore, in one publication.

    write the edition ─► submit its partitions to the metastore ─► switch the link

The link is switched last. So a sealed day's marker ``_SUCCESS`` appears below the published path after the metastore
knows all partitions of the day (Speedy Batch, part 6). If the metastore does not answer, readers of the folder keep the
previous edition, too, and the publication is repeated.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Sequence
from pathlib import Path

from nova_assets.errors import NotSupported, TableUnavailable
from nova_assets.model.metastore_table import MetastoreTable, parse_metastore_table
from nova_assets.model.published_table import HiveTable
from nova_assets.model.published_version import PublishedContent
from nova_assets.publish.edition_parts import PartitionConverter
from nova_assets.publish.hive import HivePublishTarget
from nova_assets.publish.metastore_registration import MetastoreRegistration, RegisteredEdition, hive_columns
from nova_assets.publish.target import PublishTarget

_RECORD_FILE = ".nova.json.metastore"
"""File beside the editions that names the table of the metastore. It outlives the definition, so that the table can be
removed from the metastore after it was removed from the definition."""


def open_hive_target(table: HiveTable, path: Path, forbidden_folders: Sequence[Path], owner: str) -> PublishTarget:
    """Publish target of a folder, with its registration in a metastore where there is one, or was one."""
    folder = HivePublishTarget(path, forbidden_folders, owner, format=table.format)
    record_path = folder.versions_folder / _RECORD_FILE
    if table.registered_as is None and not record_path.exists():
        return folder
    return RegisteredHiveTarget(folder, table.registered_as, table.partitions_per_call, record_path)


class RegisteredHiveTarget:
    """The published folder of one channel, and its table in a metastore.

    Args:
        folder: the published folder.
        table: table of the metastore; None if the channel is no longer registered in one.
        record_path: file that names the table in which the channel was registered last.
    """

    def __init__(
        self, folder: HivePublishTarget, table: MetastoreTable | None, partitions_per_call: int, record_path: Path
    ) -> None:
        self.folder = folder
        self.table = table
        self.partitions_per_call = partitions_per_call
        self.record_path = record_path
        folder.before_shown = self._register

    def check_can_publish(self, *, take_over: bool = False) -> None:
        self.folder.check_can_publish(take_over=take_over)
        if self.table is not None and self.folder.has_own_layout(take_over=take_over):
            raise NotSupported(
                f"{self.folder.path} cannot be registered in a metastore, because it was taken over",
                found="files that keep the columns and types of the old folder, which the metastore would not know",
                expected="a folder that nova has made",
                next="publish without metastore=, or under another path",
            )
        if self.table is not None:
            self._registration(self.table).check_can_register()

    def published_version(self) -> int | None:
        return self.folder.published_version()

    def is_complete(self, number: int) -> bool:
        if not self.folder.is_complete(number) or self._recorded_table() != self.table:
            return False
        return self.table is None or self._registration(self.table).registered_version() == number

    def publish(
        self,
        number: int,
        content: PublishedContent,
        file_paths: Sequence[str],
        *,
        take_over: bool = False,
        convert: PartitionConverter | None = None,
    ) -> None:
        if self.table is not None:
            hive_columns(content.schema)  # a type that Hive lacks must fail before anything is written
        self.folder.publish(number, content, file_paths, take_over=take_over, convert=convert)

    def delete_versions(self, numbers: Collection[int]) -> None:
        self.folder.delete_versions(numbers)

    def withdraw(self) -> None:
        recorded = self._recorded_table()
        if recorded is not None:
            self._registration(recorded).withdraw()
        for record in self.record_path.parent.glob(f"{_RECORD_FILE}*"):
            record.unlink(missing_ok=True)
        self.folder.withdraw()

    def _register(self, number: int, content: PublishedContent, version_folder: Path) -> None:
        recorded = self._recorded_table()
        if recorded is not None and recorded != self.table:  # its partitions would point to expired editions
            self._registration(recorded).withdraw()
            self.record_path.unlink()
        if self.table is None:
            return
        self._record_table(self.table)
        edition = RegisteredEdition(
            number,
            content.seq,
            content.schema,
            content.dimensions,
            str(version_folder),
            _partition_folders(version_folder) if content.dimensions else (),
        )
        self._registration(self.table).register(edition)

    def _registration(self, table: MetastoreTable) -> MetastoreRegistration:
        return MetastoreRegistration(table, self.folder.owner, self.partitions_per_call)

    def _recorded_table(self) -> MetastoreTable | None:
        try:
            address = json.loads(self.record_path.read_text(encoding="utf-8"))["table"]
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self._damaged_record_error(str(error)) from error
        table = parse_metastore_table(str(address))
        if table is None:
            raise self._damaged_record_error(str(address))
        return table

    def _record_table(self, table: MetastoreTable) -> None:
        """Record the table before it is registered, so that a crash leaves no unrecorded table."""
        unfinished = self.record_path.with_name(f"{_RECORD_FILE}.{os.getpid()}")
        unfinished.write_text(json.dumps({"table": str(table)}), encoding="utf-8")
        unfinished.rename(self.record_path)

    def _damaged_record_error(self, actual: str) -> TableUnavailable:
        return TableUnavailable(
            f"{self.record_path} does not name the table of a metastore",
            found=actual,
            expected='{"table": "thrift://HOST:PORT/DATABASE.TABLE"}',
            next="correct the file, or delete it after dropping the table from the metastore",
            path=str(self.record_path),
        )


def _partition_folders(version_folder: Path) -> list[str]:
    """Folders of an edition that hold files, relative to the edition. Marker files begin with an underscore."""
    files = (p for p in version_folder.rglob("*") if not p.name.startswith(("_", ".")) and not p.is_dir())
    return sorted({str(p.parent.relative_to(version_folder)) for p in files} - {"."})
