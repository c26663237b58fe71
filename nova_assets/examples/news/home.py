"""Where the example keeps its catalog and its blocks; the same for the shell and for Dagster."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from nova_assets.model.project import Project
from nova_assets.store.store import Store
from nova_assets.wiring.open_store import open as open_deployment

HOME = Path(".nova") / "news"
"""Under the folder that the example is started in."""


class Location(NamedTuple):
    """A catalog's URL and a warehouse's folder."""

    catalog: str
    warehouse: str


def location(home: Path | None = None) -> Location:
    """Where the example's store is: what NOVA_CATALOG and NOVA_WAREHOUSE say, or else `.nova/news`.

    Args:
        home: a folder for both, whatever the environment says.
    """
    folder = (home or HOME).absolute()
    given = os.environ if home is None else {}
    return Location(
        catalog=given.get("NOVA_CATALOG") or f"sqlite:///{folder / 'catalog.db'}",
        warehouse=given.get("NOVA_WAREHOUSE") or str(folder / "warehouse"),
    )


def open_store(project: Project, home: Path | None = None) -> Store:
    """The store there, opened for a project."""
    place = location(home)
    return open_deployment(project=project, catalog=place.catalog, warehouse=place.warehouse)
