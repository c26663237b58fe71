"""Channels and bindings as Dagster assets. A binding is a graph-backed multi-asset: ``begin → tasks → commit``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Literal

from dagster import (
    AssetDep,
    AssetsDefinition,
    AssetSpec,
    BackfillPolicy,
    DependencyDefinition,
    FreshnessPolicy,
    GraphDefinition,
    InputMapping,
    JobDefinition,
    NodeInvocation,
    OutputMapping,
    PartitionMapping,
    PartitionsDefinition,
)

from nova_assets.dagster_bridge.asset_checks import build_asset_check_specs
from nova_assets.dagster_bridge.code_links import code_link_metadata
from nova_assets.dagster_bridge.dagster_names import DagsterNames
from nova_assets.dagster_bridge.materializations import to_table_schema
from nova_assets.dagster_bridge.observations import build_observable_asset
from nova_assets.dagster_bridge.ops import (
    EXECUTION,
    build_begin_op,
    build_checks_op,
    build_commit_op,
    build_task_op,
    unique_step_name,
)
from nova_assets.dagster_bridge.partition_mappings import infer_partition_mapping
from nova_assets.dagster_bridge.partitions import (
    HasData,
    build_partitions_definition,
    default_partition_mapping,
    dimensions_in_dagster,
)
from nova_assets.dagster_bridge.single_step import STEP, build_execution_op, output_mapping_type
from nova_assets.model.binding import Binding
from nova_assets.model.channel import Channel
from nova_assets.model.partitions import Dimension
from nova_assets.model.period import period_seconds
from nova_assets.model.project import Project
from nova_assets.sql.datasets.dataset_query import DatasetQuery

ASSET_KINDS = {"spark", "parquet"}

StepLayout = Literal["per_task", "one"]
"""Dagster steps of an execution: begin, each task, the checks and the commit, or one step for all of them."""


def build_binding_asset(
    binding: Binding,
    project: Project,
    names: DagsterNames,
    has_data: HasData | None = None,
    steps: StepLayout = "per_task",
    backfill_policy: BackfillPolicy | None = None,
) -> AssetsDefinition:
    """Graph-backed multi-asset of a binding: one asset per written channel, partitioned like the binding's executions.

    Args:
        names: names of the project in Dagster.
        has_data: tells whether the catalog has data in a partition, as in ``build_partitions_definition``.
        steps, backfill_policy: as in ``build_definitions``.

    Raises:
        DefinitionError: Dagster would give two checks of the binding the same name.
    """
    written = {c.name for c in binding.writes}
    upstream_channels = [c.name for c in binding.reads if c.name not in written]
    return AssetsDefinition(
        node_def=_build_step_graph(binding, upstream_channels, steps, names),
        keys_by_input_name={c: names.key(c) for c in upstream_channels},
        keys_by_output_name={_graph_output_name(c): names.key(c) for c in sorted(written)},
        check_specs_by_output_name={s.get_python_identifier(): s for s in build_asset_check_specs(binding, names)},
        specs=build_binding_specs(binding, project, names, has_data),
        backfill_policy=backfill_policy if binding.dimensions else None,
    )


def build_binding_specs(
    binding: Binding, project: Project, names: DagsterNames, has_data: HasData | None
) -> list[AssetSpec]:
    """Asset specs of the channels that a binding writes, with their inputs and links to the code of the tasks."""
    written = {c.name for c in binding.writes}
    inputs = {c.name: c for c in binding.reads if c.name not in written}
    dimensions = binding.dimensions
    upstream_channels = _upstream_channels_by_output(binding)
    links = code_link_metadata(binding)

    def dependency(channel: str) -> AssetDep:
        if channel not in inputs or not dimensions:
            return AssetDep(names.key(channel))
        input_channel = inputs[channel]
        mapping = _input_partition_mapping(binding, input_channel, dimensions_in_dagster(project, input_channel))
        return AssetDep(names.key(channel), partition_mapping=mapping)

    return [
        build_channel_asset_spec(
            c,
            names,
            deps=[dependency(upstream) for upstream in sorted(upstream_channels[c.name])],
            default_group=binding.name,
            partitions=build_partitions_definition(dimensions, has_data),
            more_metadata=links,
        )
        for c in binding.writes
    ]


def _input_partition_mapping(
    binding: Binding, input_channel: Channel, upstream_dimensions: Sequence[Dimension]
) -> PartitionMapping | None:
    """Partition mapping from an input to the binding, inferred from the binding's query if it has one."""
    queries = [t.scoped for t in binding.tasks if isinstance(t.scoped, DatasetQuery)]
    if queries and upstream_dimensions and binding.dimensions:
        return infer_partition_mapping(queries[0], input_channel.name, upstream_dimensions, binding.dimensions)
    return default_partition_mapping(upstream_dimensions, binding.dimensions)


def build_sink_job(binding: Binding, names: DagsterNames, steps: StepLayout = "per_task") -> JobDefinition:
    """Job of a binding that writes no channel. Such a binding has no asset, so its steps form a plain job."""
    return _build_step_graph(binding, [], steps, names).to_job(
        name=names.name(binding.name), description=binding.description
    )


def build_external_assets(project: Project, names: DagsterNames) -> list[AssetsDefinition]:
    """External assets for the channels that no binding writes. Inserts feed these channels. Dagster can observe those
    without partitions. For the partitions of an observable asset, its conditions count observations only, and not the
    materializations that nova reports.

    Dagster puts bare specs into one common definition. Each job that reads one of them would then go through all.
    """
    fed_from_outside = [c for c in project.channels if project.writer(c.name) is None]
    specs = [
        build_channel_asset_spec(c, names, partitions=build_partitions_definition(c.partitions)).with_io_manager_key(
            names.resource
        )
        for c in fed_from_outside
    ]
    return [
        AssetsDefinition(specs=[s]) if c.partitions else build_observable_asset(c, s, names)
        for c, s in zip(fed_from_outside, specs, strict=True)
    ]


def build_channel_asset_spec(
    channel: Channel,
    names: DagsterNames,
    *,
    deps: Sequence[AssetDep] = (),
    default_group: str | None = None,
    partitions: PartitionsDefinition[Any] | None = None,
    more_metadata: Mapping[str, Any] = MappingProxyType({}),
) -> AssetSpec:
    """Asset spec of a channel: description, metadata, group, owners, tags, kinds and freshness policy.

    Args:
        names: names of the project in Dagster.
        deps: assets of the channels that the asset depends on.
        default_group: asset group for a channel that names no group.
        partitions: partitions of the asset.
        more_metadata: metadata beside that of the channel.
    """
    model = channel.merge.as_json()
    metadata: dict[str, Any] = {"nova/merge": model["kind"], "nova/key": ", ".join(channel.merge.key) or "(none)"}
    if channel.partitions:
        metadata["nova/partitions"] = ", ".join(f"{d.column} ({d.kind})" for d in channel.partitions)
    if channel.schema is not None:
        metadata["dagster/column_schema"] = to_table_schema(channel.schema)
    return AssetSpec(
        names.key(channel.name),
        deps=deps,
        description=channel.description,
        metadata={**metadata, **more_metadata},
        group_name=channel.group or default_group,
        owners=list(channel.owners),
        tags=dict(channel.tags),
        kinds=ASSET_KINDS,
        partitions_def=partitions,
        freshness_policy=_freshness_policy(channel),
    )


def _freshness_policy(channel: Channel) -> FreshnessPolicy | None:
    seconds = period_seconds(channel.fresh_within)
    return None if seconds is None else FreshnessPolicy.time_window(timedelta(seconds=seconds))


def _build_step_graph(
    binding: Binding, upstream_channels: list[str], steps: StepLayout, names: DagsterNames
) -> GraphDefinition:
    build = _build_single_step if steps == "one" else _build_steps
    return build(binding, upstream_channels, names)


def _build_single_step(binding: Binding, upstream_channels: list[str], names: DagsterNames) -> GraphDefinition:
    """Graph of one step that carries out the whole execution."""
    op, mapping = build_execution_op(binding, upstream_channels, names), output_mapping_type(names.resource)
    outputs = [(_graph_output_name(c.name), c.name) for c in binding.writes]
    outputs += [(s.get_python_identifier(),) * 2 for s in build_asset_check_specs(binding, names)]
    return GraphDefinition(
        name=unique_step_name(binding, "steps", names),
        description=binding.description,
        node_defs=[op],
        dependencies={NodeInvocation(op.name, alias=STEP): {}},
        input_mappings=[
            InputMapping(graph_input_name=c, mapped_node_name=STEP, mapped_node_input_name=c) for c in upstream_channels
        ],
        output_mappings=[
            mapping(graph_output_name=name, mapped_node_name=STEP, mapped_node_output_name=of) for name, of in outputs
        ],
    )


def _build_steps(binding: Binding, upstream_channels: list[str], names: DagsterNames) -> GraphDefinition:
    """Graph of a binding's steps: begin, the tasks, the checks if there are any, and commit.

    Each node has its task's name as an alias, because the op's own name also contains the binding's name.
    """
    order = binding.workflowette.in_order()
    ops = {
        "begin": build_begin_op(binding, upstream_channels, names),
        **{t.name: build_task_op(binding, t, binding.workflowette.upstream(t), names) for t in order},
    }
    execution = DependencyDefinition("begin", EXECUTION)
    dependencies_by_step = {
        t.name: {f"after_{u}": DependencyDefinition(u, "report") for u in binding.workflowette.upstream(t)}
        for t in order
    }
    all_tasks = {f"after_{t.name}": DependencyDefinition(t.name, "report") for t in order}
    check_output_names = [s.get_python_identifier() for s in build_asset_check_specs(binding, names)]
    if check_output_names:
        ops["checks"], dependencies_by_step["checks"] = build_checks_op(binding, names), all_tasks
    checks_dependency = (
        {"after_checks": DependencyDefinition("checks", check_output_names[0])} if check_output_names else {}
    )
    ops["commit"], dependencies_by_step["commit"] = build_commit_op(binding, names), {**all_tasks, **checks_dependency}
    outputs = [(_graph_output_name(c.name), "commit", c.name) for c in binding.writes] + [
        (v, "checks", v) for v in check_output_names
    ]
    return GraphDefinition(
        name=unique_step_name(binding, "steps", names),  # the job has the bare name
        description=binding.description,
        node_defs=list(ops.values()),
        dependencies={
            NodeInvocation(op.name, alias=step): {}
            if step == "begin"
            else {EXECUTION: execution, **dependencies_by_step[step]}
            for step, op in ops.items()
        },
        input_mappings=[
            InputMapping(graph_input_name=c, mapped_node_name="begin", mapped_node_input_name=c)
            for c in upstream_channels
        ],
        output_mappings=[
            OutputMapping(graph_output_name=name, mapped_node_name=step, mapped_node_output_name=of)
            for name, step, of in outputs
        ],
    )


def _graph_output_name(channel: str) -> str:
    """Output name of a channel, prefixed so that it cannot equal the output name that Dagster gives to a check."""
    return f"block_of_{channel}"


def _upstream_channels_by_output(binding: Binding) -> Mapping[str, set[str]]:
    """Upstream channels of each written channel, traced through the tasks.

    A task that reads its own output channel reads an earlier version of that channel. Dagster's graph cannot express an
    earlier version, so such a read adds no edge.
    """
    channels_by_port: dict[str, set[str]] = {}
    for task in binding.workflowette.in_order():
        own_ports = {e.port for e in task.produces}
        inputs: set[str] = set()
        for edge in task.consumes:
            channel = binding.channel(edge.port)
            if edge.port not in own_ports:
                inputs |= {channel.name} if channel is not None else channels_by_port.get(edge.port, set())
        for out in task.produces:
            channels_by_port[out.port] = inputs
    return {ch.name: channels_by_port[p] - {ch.name} for p, ch in binding.channels.items() if p in channels_by_port}
