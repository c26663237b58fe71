"""The news pipeline for Dagster: ``workspace.yaml`` loads this module. It looks at the store that the demo fills."""

from __future__ import annotations

from nova_assets.dagster_bridge import build_definitions
from nova_assets.examples.news.home import location
from nova_assets.examples.news.pipeline import project

_home = location()
defs = build_definitions(project, catalog=_home.catalog, warehouse=_home.warehouse)
