"""The news pipeline for Dagster, on the store that the demo fills. ``workspace.yaml`` loads this module."""

from __future__ import annotations

from nova_assets.dagster_bridge import build_definitions
from nova_assets.examples.news.pipeline import project
from nova_assets.examples.news.store_location import find_location

_home = find_location()
defs = build_definitions(project, catalog=_home.catalog, warehouse=_home.warehouse)
