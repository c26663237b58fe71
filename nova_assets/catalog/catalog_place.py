"""Recorded place of a SQLite catalog: a second name of its file, a copy, and a restored backup are noticed.

A place is changed only by a process that has the file for itself, under every name. Each process compares the recorded
place with its own after it has opened the file. So processes with two logs cannot use one file at the same time.
"""

from __future__ import annotations

import random
import time
from functools import cache, partial
from pathlib import Path

from sqlalchemy import Connection, select, update

from nova_assets.catalog import schema_version
from nova_assets.catalog.database.file_system import network_file_system
from nova_assets.catalog.database.sqlite import SqliteBackend
from nova_assets.catalog.database.sqlite_file import log_of
from nova_assets.catalog.database.sqlite_place import (
    Place,
    PlaceChange,
    RecordedPlace,
    place_change,
    place_of_file,
)
from nova_assets.catalog.database.transactions import Database
from nova_assets.catalog.identity import skip_numbers
from nova_assets.catalog.tables import catalog_identity
from nova_assets.errors import CatalogUnavailable
from nova_assets.masking import get_logger, mask_address

log = get_logger("nova_assets.catalog")

PLACE_PATIENCE_SECONDS = 5.0
"""Seconds to wait for other processes that are opening the file at the same time."""


_FIRST_VERSION_WITH_PLACE = "0025"


def check_before_change(database: Database, version: str | None) -> None:
    """Check that no other process has the file open under another name, before the catalog is created or migrated.

    Args:
        version: present version of the catalog; None for an empty file.

    Raises:
        CatalogUnavailable.
    """
    if version is None:
        _check_empty_file_is_unused(database)
    elif version >= _FIRST_VERSION_WITH_PLACE:
        check_or_record_place(database)


def _check_empty_file_is_unused(database: Database) -> None:
    backend = database.backend
    if not isinstance(backend, SqliteBackend) or backend.catalog_file is None or not backend.catalog_file.existed:
        return
    deadline = time.monotonic() + database.patience
    while schema_version.current_version(database) is None and backend.run_exclusively(lambda c: True) is None:
        if time.monotonic() > deadline:
            raise _used_under_another_name_error(database, None)
        time.sleep(random.uniform(0.01, 0.1))


def check_or_record_place(database: Database) -> None:
    """Compare the recorded place of the catalog with the place of its file, and record a new place.

    A copy or a restored backup leaves out numbers (``skip_numbers``), so that no number that others have seen is given
    to other rows. A copy commits and deletes nothing in the warehouse of the original until a person decides.

    Raises:
        CatalogUnavailable: other processes use the file under another name, or the log is beside another name.
    """
    backend = database.backend
    if not isinstance(backend, SqliteBackend) or backend.catalog_file is None:
        return
    file, deadline = backend.catalog_file.path, time.monotonic() + PLACE_PATIENCE_SECONDS
    _warn_of_network_file_system(database.masked_url, file.parent)
    while True:
        recorded = database.read(_read_recorded_place)
        own = place_of_file(file, backend.catalog_file.generation())
        change = place_change(recorded, own)
        if change == "none":
            return
        if change == "new":
            database.write(partial(_set_place, own=own))
            backend.write_log_into_file()
            return
        done = backend.run_exclusively(partial(_change_place, masked_url=database.masked_url, own=own))
        if done is not None:
            _log_change(database, done, recorded, own)
            return
        if time.monotonic() > deadline:
            raise _used_under_another_name_error(database, recorded.place)
        time.sleep(random.uniform(0.01, 0.1))


@cache
def _warn_of_network_file_system(database_url: str, folder: Path) -> None:
    """Log once per process that a catalog is on a file system of a network."""
    file_system = network_file_system(folder)
    if file_system is not None:
        log.warning(
            "the SQLite catalog %s is on a file system of a network (%s): only processes of one host may use it; "
            "for several hosts, use PostgreSQL",
            database_url,
            file_system,
        )


def _read_recorded_place(c: Connection) -> RecordedPlace:
    return RecordedPlace.parse(c.execute(select(catalog_identity.c.place)).scalar_one())


def _set_place(c: Connection, own: Place) -> None:
    c.execute(update(catalog_identity).values(place=own.as_text()))


def _change_place(c: Connection, masked_url: str, own: Place) -> PlaceChange:
    """Record the own place, unless another process has done so meanwhile, and note what follows from the change.

    Raises:
        CatalogUnavailable: a log is beside the former name of the file.
    """
    recorded = _read_recorded_place(c)
    change = place_change(recorded, own)
    _check_no_log_left_behind(masked_url, recorded, own, change)
    if change in ("copied", "restored"):
        skip_numbers(c)
    if change == "copied":
        original = "another place" if recorded.place is None else recorded.place.path
        undecided = catalog_identity.c.copied_from.is_(None)
        c.execute(update(catalog_identity).where(undecided).values(copied_from=original))
    _set_place(c, own)
    return change


def _check_no_log_left_behind(masked_url: str, recorded: RecordedPlace, own: Place, change: PlaceChange) -> None:
    """Check that no log with commits of this file is beside the former name of the file.

    Raises:
        CatalogUnavailable.
    """
    if change != "renamed" or recorded.place is None or recorded.place.path == own.path:
        return
    former_log, own_log = log_of(Path(recorded.place.path)), log_of(Path(own.path))
    if former_log.is_file() and former_log.stat().st_size > 0 and not _are_same_file(former_log, own_log):
        raise CatalogUnavailable(
            f"the log of the catalog {masked_url} is beside its former name",
            found=f"{former_log}, which holds commits that are not in the file yet",
            expected="no log there, or the log beside the file",
            next=f"rename the log, too: mv {former_log} {own_log}; or use the former name",
        )


def _are_same_file(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.samefile(other)


def _log_change(database: Database, change: PlaceChange, recorded: RecordedPlace, own: Place) -> None:
    source = "an unknown place" if recorded.place is None else recorded.place.path
    if recorded.backup_time is not None:
        source = f"a backup of {recorded.backup_time}, made at {source}"
    if change == "copied":
        log.warning(
            "the catalog %s is a copy of %s: nothing is committed to its warehouse or deleted there, and numbers "
            "of channels are left out, until you decide which of the two owns the warehouse: nova doctor --claim",
            database.masked_url,
            source,
        )
    elif change == "restored":
        log.warning(
            "the file of the catalog %s was put in place of another one (%s): numbers that were perhaps used meanwhile "
            "are left out; next: nova doctor --repair",
            database.masked_url,
            source,
        )
    elif change == "renamed" and source != own.path:
        log.info("the file of the catalog is now %s (before: %s)", mask_address(own.path), mask_address(source))


def _used_under_another_name_error(database: Database, other: Place | None) -> CatalogUnavailable:
    return CatalogUnavailable(
        f"other processes use the file of the catalog {database.masked_url} under another name",
        found="the file is in use" + ("" if other is None else f", as {other.path} (perhaps in a container)"),
        expected="one name for all processes, since the log of a SQLite file is found by the name of the file",
        next="mount the folder of the catalog instead of its file, and use the same name everywhere; or PostgreSQL",
    )
