"""Channels, bindings and triggers as Dagster assets, graphs and sensors."""

from nova_assets.dagster_bridge import condition
from nova_assets.dagster_bridge.definitions import build_definitions
from nova_assets.dagster_bridge.launch import launch_due
from nova_assets.dagster_bridge.nova_asset import nova_asset
from nova_assets.dagster_bridge.resources import NovaIOManager, NovaResource

__all__ = ["NovaIOManager", "NovaResource", "build_definitions", "condition", "launch_due", "nova_asset"]
