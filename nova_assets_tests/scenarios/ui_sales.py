"""The sales example as a person meets it in Dagster's pages."""

from examples.sales.pipeline import project
from nova_assets.dagster_bridge import build_definitions

defs = build_definitions(project)
