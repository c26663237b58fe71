"""The news pipeline for Dagster, on the store that the demo fills. ``workspace.yaml`` loads this module."""

from __future__ import annotations

from examples.news.pipeline import project
from examples.news.store_location import find_location
from nova_assets.dagster_bridge import build_definitions

_home = find_location()
defs = build_definitions(project, catalog=_home.catalog, warehouse=_home.warehouse)
