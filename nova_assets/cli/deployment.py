"""The deployment that a command works on: its settings, its project, and its store, opened to look or to change."""

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
    """What ``--project``, ``--catalog``, ``--warehouse``, the environment and pyproject.toml name.

    Args:
        quiet: no progress: the answer is for a program.
    """

    project: str | None = None
    catalog: str | None = None
    warehouse: str | None = None
    quiet: bool = False

    @cached_property
    def settings(self) -> Settings:
        """The settings. Raises SettingsError."""

        return load_settings(catalog=self.catalog, warehouse=self.warehouse, project=self.project)

    def open(self, with_project: bool = True) -> Store:
        """The store, for commands that change something. A catalog that is not there yet is made.

        Args:
            with_project: import the project, where one is configured. Commands that only look at channels do without:
                importing it may take long, or fail.

        Raises:
            SettingsError, DefinitionError, CatalogUnavailable, CatalogVersion.
        """
        return self._open(self.settings, with_project)

    def open_with_view_storage(self, settings: Settings, open_view_storage: Callable[[str], Any]) -> Store:
        """The same, by other settings, with views that are kept."""
        return open_store.open(project=self.load_project() or Project(), settings=settings, storage=open_view_storage)

    def open_read_only(self, with_project: bool = False) -> Store:
        """The store, for commands that change nothing. Where no catalog is, it looks at an empty one and makes none."""
        return (
            self._open(self.settings, with_project)
            if self.catalog_exists
            else self.open_with_empty_catalog(with_project)
        )

    def open_channel_read_only(self, channel: str) -> Store:
        """The store, for commands that look at one channel and change nothing. One that the project defines and nobody
        has registered is looked at in an empty catalog of its own."""
        store = self.open_read_only(with_project=True)
        registered_channels = {s.channel.name for s in store.channels()}
        if channel in registered_channels or channel not in {c.name for c in store.project.channels}:
            return store
        store.close()
        return self.open_with_empty_catalog()

    def open_with_empty_catalog(self, with_project: bool = True) -> Store:
        """A store with an empty catalog of its own, gone when it is closed; for dry runs on what does not exist yet."""
        return self._open(replace(self.settings, catalog=IN_MEMORY_CATALOG), with_project)

    @cached_property
    def catalog_exists(self) -> bool:
        """Whether there is a catalog already. Makes none. Raises CatalogUnavailable, CatalogVersion."""
        return read_catalog_version(self.settings.catalog) is not None

    def load_project(self) -> Project | None:
        """The configured project; None where none is.

        Raises:
            SettingsError: it cannot be imported, whatever its modules raise.
            DefinitionError: it is not sound.
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

    def _open(self, settings: Settings, with_project: bool) -> Store:
        return open_store.open(project=(self.load_project() if with_project else None) or Project(), settings=settings)

    def check_project_configured(self, command: str) -> None:
        """Raises SettingsError where no project is configured, without which there are no bindings."""

        if self.settings.project is None:
            raise SettingsError(
                "no project is configured, so there are no bindings",
                found="neither --project, nor NOVA_PROJECT, nor project in [tool.nova] of pyproject.toml",
                expected="package.module:attribute of a nova.Project",
                next=f"{command} --project package.module:project",
            )


def sqlite_file_path(url: str) -> Path | None:
    """The file of a SQLite catalog; None for any other."""
    prefix = "sqlite:///"
    file_path = url.removeprefix(prefix).partition("?")[0]
    return Path(file_path) if url.startswith(prefix) and file_path and file_path != ":memory:" else None


def read_catalog_version(url: str) -> str | None:
    """The version of the catalog, None where there is none yet. Makes and migrates nothing.

    Raises:
        CatalogUnavailable: it does not answer.
    """
    from nova_assets.catalog import schema_version
    from nova_assets.catalog.database import Database

    file = sqlite_file_path(url)
    if file is not None and not file.exists():
        return None
    with contextlib.closing(Database(url)) as database:
        return schema_version.current_version(database)
