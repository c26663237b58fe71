"""The sales example as a person meets it in Dagster's pages."""

from nova_assets.dagster_bridge import build_definitions
from nova_assets.examples.sales.pipeline import project

defs = build_definitions(project)
