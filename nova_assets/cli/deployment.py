"""Deployment of a command: its settings, its project, and its store, opened for reading or for changes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from nova_assets.errors import SettingsError
from nova_assets.model.project import Project
from nova_assets.nova_error import NovaError
from nova_assets.settings import Settings, load_settings
from nova_assets.store.store import Store
from nova_assets.wiring import open_store

IN_MEMORY_CATALOG = "sqlite://"


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

    def open(self, with_project: bool = True) -> Store:
        """Open the store for changes. Creates a missing catalog.

        Args:
            with_project: import the project, if one is configured. Commands that only handle channels leave it out,
                because the import may be slow or fail.

        Raises:
            SettingsError: the settings are invalid, or the project cannot be imported.
            DefinitionError: the project is invalid.
            CatalogUnavailable: the catalog does not answer.
            CatalogVersion: this package does not support the catalog's version.
        """
        return open_store.open(project=self._project(with_project), settings=self.settings)

    def open_with_view_storage(self, settings: Settings, open_view_storage: Callable[[str], Any]) -> Store:
        """Open the store for changes, with other settings and a storage for file views."""
        return open_store.open(project=self.load_project() or Project(), settings=settings, storage=open_view_storage)

    def open_read_only(self, with_project: bool = False) -> Store:
        """Open the store for reading. If there is no catalog, the store has an empty one in memory.

        Only the first read of data builds the engine and checks that the warehouse is the one of the catalog.
        """
        return (
            open_store.open_for_reading(self._project(with_project), self.settings)
            if self.catalog_exists
            else self.open_with_empty_catalog(with_project)
        )

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
        return read_catalog_version(self.settings.catalog) is not None

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


def read_catalog_version(url: str) -> str | None:
    """Schema version of the catalog; None if there is no catalog. Does not create or migrate it.

    Raises:
        CatalogUnavailable: the catalog does not answer.
    """
    from nova_assets.catalog import schema_version
    from nova_assets.catalog.database.transactions import Database

    file = sqlite_file_path(url)
    if file is not None and not file.exists():
        return None
    with contextlib.closing(Database(url)) as database:
        return schema_version.current_version(database)
