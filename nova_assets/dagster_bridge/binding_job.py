"""Job of a binding, resolved against the binding's own assets only."""

from __future__ import annotations

from collections.abc import Mapping

from dagster import AssetSelection, ExecutorDefinition, JobDefinition, ResourceDefinition
from dagster._core.definitions.assets.graph.asset_graph import AssetGraph
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from nova_assets.dagster_bridge.dagster_names import DagsterNames
from nova_assets.model.binding import Binding


class BindingJob(UnresolvedAssetJobDefinition):
    """Job that materializes the channels that a binding writes.

    Dagster resolves each job against all assets of the code location, so the time to load a location grows with the
    square of the number of bindings. This job is resolved only against its own assets, their parents and their checks.
    """

    def resolve(
        self,
        asset_graph: AssetGraph,
        default_executor_def: ExecutorDefinition | None = None,
        resource_defs: Mapping[str, ResourceDefinition] | None = None,
    ) -> JobDefinition:
        return super().resolve(_subgraph_with_parents(asset_graph, self.selection), default_executor_def, resource_defs)


def build_binding_job(binding: Binding, names: DagsterNames) -> BindingJob:
    """Job of a binding that writes channels. The job has the binding's name."""
    selection = AssetSelection.assets(*(names.key(c.name) for c in binding.writes))
    return BindingJob(names.name(binding.name), selection, description=binding.description)


def _subgraph_with_parents(asset_graph: AssetGraph, selection: AssetSelection) -> AssetGraph:
    """Asset graph of the selected assets, their parents and their checks."""
    selected = [asset_graph.get(key) for key in selection.resolve(asset_graph)]
    parents = [asset_graph.get(key) for node in selected for key in node.parent_keys]
    checks = {key: asset_graph.assets_def_for_key(key) for node in selected for key in node.check_keys}
    return AssetGraph({node.key: node for node in (*parents, *selected)}, checks)
