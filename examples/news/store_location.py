"""Location of the example's catalog and warehouse, for the shell and for Dagster."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from nova_assets.model.project import Project
from nova_assets.store.store import Store
from nova_assets.wiring.open_store import open as open_deployment

HOME = Path(".nova") / "news"
"""Default folder, relative to the working directory."""


class Location(NamedTuple):
    """URL of a catalog, and folder of a warehouse."""

    catalog: str
    warehouse: str


def find_location(home: Path | None = None) -> Location:
    """Location of the example's store: NOVA_CATALOG and NOVA_WAREHOUSE, or by default ``.nova/news``.

    Args:
        home: folder for catalog and warehouse. If given, the environment is ignored.
    """
    folder = (home or HOME).absolute()
    environment = os.environ if home is None else {}
    return Location(
        catalog=environment.get("NOVA_CATALOG") or f"sqlite:///{folder / 'catalog.db'}",
        warehouse=environment.get("NOVA_WAREHOUSE") or str(folder / "warehouse"),
    )


def open_store(project: Project, home: Path | None = None) -> Store:
    """Open the example's store for a project."""
    place = find_location(home)
    return open_deployment(project=project, catalog=place.catalog, warehouse=place.warehouse)
