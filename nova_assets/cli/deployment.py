"""Deployment of a command: its settings, its project, and its store, opened for reading or for changes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import click

from nova_assets.errors import CatalogUnavailable, SettingsError
from nova_assets.masking import mask_address
from nova_assets.model.project import Project
from nova_assets.nova_error import NovaError
from nova_assets.settings import CATALOG_PATIENCE, CATALOG_TIMEOUT, Settings, load_settings
from nova_assets.store.store import Store
from nova_assets.wiring import open_store

IN_MEMORY_CATALOG = "sqlite://"

CatalogCreation = Literal["anywhere", "default", "never"]
"""Address at which a command creates a missing catalog: any address, only the default address, or none."""


@dataclass
class Deployment:
    """Deployment that the options, the environment and pyproject.toml name.

    Args:
        project: value of ``--project``.
        catalog: value of ``--catalog``.
        warehouse: value of ``--warehouse``.
        quiet: print no progress, because the output is for a program.
    """

    project: str | None = None
    catalog: str | None = None
    warehouse: str | None = None
    quiet: bool = False

    @cached_property
    def settings(self) -> Settings:
        """Settings of the deployment. Raises SettingsError."""

        return load_settings(catalog=self.catalog, warehouse=self.warehouse, project=self.project)

    def open(self, with_project: bool = True, creation: CatalogCreation = "default", *, dry_run: bool = False) -> Store:
        """Open the store for changes. Creates a missing catalog where ``creation`` allows it.

        Args:
            with_project: import the project, if one is configured. Commands that only handle channels leave it out,
                because the import may be slow or fail.
            creation: only ``nova init`` creates a catalog anywhere. All other commands create one at the default
                address, and say so on standard error, unless their output is for a program.
            dry_run: open the store for reading instead, as ``open_read_only``.

        Raises:
            SettingsError: the settings are invalid, or the project cannot be imported.
            DefinitionError: the project is invalid.
            CatalogUnavailable: the catalog does not answer, or there is none at an address that was set.
            CatalogVersion: this package does not support the catalog's version.
        """
        if dry_run:
            return self.open_read_only(with_project)
        return self._open_for_changes(self._project(with_project), self.settings, None, creation)

    def open_with_view_storage(
        self,
        settings: Settings,
        open_view_storage: Callable[[str], Any],
        creation: CatalogCreation = "default",
    ) -> Store:
        """Open the store for changes, with other settings and a storage for file views. Raises as ``open``."""
        return self._open_for_changes(self.load_project() or Project(), settings, open_view_storage, creation)

    def _open_for_changes(
        self, project: Project, settings: Settings, storage: Callable[[str], Any] | None, creation: CatalogCreation
    ) -> Store:
        is_default = is_default_catalog(settings)
        if creation == "never" or (creation == "default" and not is_default):
            check_catalog_exists(settings)
        file = sqlite_file_path(settings.catalog)
        creates_default = is_default and file is not None and not file.exists()
        store = open_store.open_quietly(project, settings, storage=storage)
        if creates_default and creation == "default" and not self.quiet:
            click.echo(f"created the catalog {file}", err=True)
        return store

    def open_read_only(self, with_project: bool = False, needs_catalog: bool = True) -> Store:
        """Open the store for reading. If there is no catalog, the store has an empty one in memory.

        Only the first read of data builds the engine and checks that the warehouse is the one of the catalog.

        Args:
            needs_catalog: refuse an address that was set if there is no catalog. A mistyped address would otherwise
                look like an empty deployment.

        Raises:
            CatalogUnavailable: the catalog does not answer, or there is none at an address that was set.
        """
        if self.catalog_exists:
            return open_store.open_for_reading(self._project(with_project), self.settings)
        if needs_catalog and not is_default_catalog(self.settings):
            raise missing_catalog_error(self.settings)
        return self.open_with_empty_catalog(with_project)

    def open_channel_read_only(self, channel: str) -> Store:
        """Open the store for reading one channel.

        If the project defines the channel but the catalog does not have it, the store has an empty catalog in memory.
        """
        store = self.open_read_only(with_project=True)
        registered_channels = {s.channel.name for s in store.channels()}
        if channel in registered_channels or channel not in {c.name for c in store.project.channels}:
            return store
        store.close()
        return self.open_with_empty_catalog()

    def open_with_empty_catalog(self, with_project: bool = True) -> Store:
        """Open a store with an empty catalog in memory, for dry runs on channels that do not exist yet."""
        return open_store.open_for_reading(
            self._project(with_project), replace(self.settings, catalog=IN_MEMORY_CATALOG)
        )

    @cached_property
    def catalog_exists(self) -> bool:
        """Whether the catalog exists. Does not create it. Raises CatalogUnavailable, CatalogVersion."""
        return _has_catalog(self.settings)

    def load_project(self) -> Project | None:
        """Import the configured project; None if no project is configured.

        Raises:
            SettingsError: the project cannot be imported, whatever error its modules raise.
            DefinitionError: the project is invalid.
        """

        try:
            return open_store.load_project(self.settings)
        except NovaError:
            raise
        except Exception as error:  # the project is the user's code
            raise SettingsError(
                f"the project {self.settings.project} cannot be loaded: its code raises {type(error).__name__}",
                found=" ".join(str(error).split()) or "(no message)",
                next="NOVA_DEBUG=1 shows where; then: nova doctor",
            ) from error

    def _project(self, with_project: bool) -> Project:
        return (self.load_project() if with_project else None) or Project()

    def check_project_configured(self, suggested_command: str) -> None:
        """Raise SettingsError if no project is configured, because then there are no bindings.

        Args:
            suggested_command: command line to suggest in the error.
        """

        if self.settings.project is None:
            raise SettingsError(
                "no project is configured, so there are no bindings",
                found="neither --project, nor NOVA_PROJECT, nor project in [tool.nova] of pyproject.toml",
                expected="package.module:attribute of a nova.Project",
                next=f"{suggested_command} --project package.module:project",
            )


def sqlite_file_path(url: str) -> Path | None:
    """File of a SQLite catalog; None for other catalogs."""
    prefix = "sqlite:///"
    file_path = url.removeprefix(prefix).partition("?")[0]
    return Path(file_path) if url.startswith(prefix) and file_path and file_path != ":memory:" else None


def is_default_catalog(settings: Settings) -> bool:
    """Whether the catalog has the default address, which no argument, variable or pyproject.toml set."""
    return settings.sources.get("catalog", "default") == "default"


def check_catalog_exists(settings: Settings) -> None:
    """Check that there is a catalog. Does not create or migrate it.

    Raises:
        CatalogUnavailable: there is no catalog, or it does not answer.
    """
    if not _has_catalog(settings):
        raise missing_catalog_error(settings)


def missing_catalog_error(settings: Settings) -> CatalogUnavailable:
    """Error for an address without a catalog: where nova looked, and which setting holds the address."""
    file = sqlite_file_path(settings.catalog)
    if file is None:
        found, expected = "a database without the tables of a catalog", "a catalog that nova init created"
    else:
        found = f"no file {file}" if not file.exists() else f"the file {file}, without the tables of a catalog"
        expected = (
            f"a catalog that nova init created; a relative address starts at the project's folder {settings.root}"
        )
    setting = {
        "argument": "--catalog",
        "environment": "NOVA_CATALOG",
        "pyproject.toml": f"catalog in [tool.nova] of {settings.root / 'pyproject.toml'}",
    }.get(settings.sources.get("catalog", "default"), "")
    return CatalogUnavailable(
        f"there is no catalog at {mask_address(settings.catalog)}",
        found=found,
        expected=expected,
        next="nova init creates it" + (f"; if the address is wrong, correct {setting}" if setting else ""),
    )


def _has_catalog(settings: Settings) -> bool:
    version = read_catalog_version(settings.catalog, settings.catalog_patience, settings.catalog_timeout)
    return version is not None


def read_catalog_version(
    url: str, patience: float = CATALOG_PATIENCE, statement_timeout: float = CATALOG_TIMEOUT
) -> str | None:
    """Schema version of the catalog; None if there is no catalog. Does not create or migrate it.

    Raises:
        CatalogUnavailable: the catalog does not answer.
    """
    from nova_assets.catalog import schema_version
    from nova_assets.catalog.database.transactions import Database

    file = sqlite_file_path(url)
    if file is not None and not file.exists():
        return None
    with contextlib.closing(Database(url, patience=patience, statement_timeout=statement_timeout)) as database:
        return schema_version.current_version(database)
