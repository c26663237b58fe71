"""Channels and bindings as Dagster assets. A binding is a graph-backed multi-asset: ``begin → tasks → commit``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from dagster import (
    AssetKey,
    AssetsDefinition,
    AssetSpec,
    DependencyDefinition,
    FreshnessPolicy,
    GraphDefinition,
    InputMapping,
    JobDefinition,
    NodeInvocation,
    OutputMapping,
    PartitionMapping,
)

from nova_assets.dagster_bridge.asset_checks import build_asset_check_specs
from nova_assets.dagster_bridge.materializations import to_table_schema
from nova_assets.dagster_bridge.ops import EXECUTION, build_begin_op, build_checks_op, build_commit_op, build_task_op
from nova_assets.dagster_bridge.partition_mappings import infer_partition_mapping
from nova_assets.dagster_bridge.partitions import (
    HasData,
    build_partitions_definition,
    default_partition_mapping,
    dimensions_in_dagster,
)
from nova_assets.dagster_bridge.resources import IO_MANAGER_KEY
from nova_assets.model.binding import Binding
from nova_assets.model.channel import Channel
from nova_assets.model.partitions import Dimension
from nova_assets.model.period import period_seconds
from nova_assets.model.project import Project
from nova_assets.model.task import Task
from nova_assets.sql.datasets.dataset_query import DatasetQuery

ASSET_KINDS = {"spark", "parquet"}


def build_binding_asset(binding: Binding, project: Project, has_data: HasData | None = None) -> AssetsDefinition:
    """Graph-backed multi-asset of a binding: one asset per written channel, partitioned like the binding's executions.

    Args:
        has_data: tells whether the catalog has data in a partition, as in ``build_partitions_definition``.

    Raises:
        DefinitionError: Dagster would give two checks of the binding the same name.
    """
    written = {c.name for c in binding.writes}
    upstream_channels = [c.name for c in binding.reads if c.name not in written]
    specs = [
        build_channel_asset_spec(
            c, upstream_channels=_upstream_channels_by_output(binding)[c.name], default_group=binding.name
        )
        for c in binding.writes
    ]
    graph = _build_step_graph(binding, upstream_channels)
    by_name = {c.name: c for c in binding.reads}
    mappings = {
        c: _input_partition_mapping(binding, by_name[c], dimensions_in_dagster(project, by_name[c]))
        for c in upstream_channels
    }
    multi_asset = AssetsDefinition.from_graph(
        graph,
        keys_by_input_name={c: AssetKey(c) for c in upstream_channels},
        keys_by_output_name={_graph_output_name(c): AssetKey(c) for c in sorted(written)},
        internal_asset_deps={
            _graph_output_name(c): {AssetKey(d) for d in deps}
            for c, deps in _upstream_channels_by_output(binding).items()
        },
        partitions_def=build_partitions_definition(binding.dimensions, has_data),
        partition_mappings={c: m for c, m in mappings.items() if m is not None} if binding.dimensions else None,
        check_specs=build_asset_check_specs(binding),
        group_name=None,
        can_subset=False,
    )
    by_key = {s.key: s for s in specs}

    def with_channel_attributes(spec: AssetSpec) -> AssetSpec:
        own = by_key[spec.key]
        return spec.replace_attributes(
            description=own.description,
            metadata={**spec.metadata, **own.metadata},
            group_name=own.group_name,
            kinds=own.kinds,
            owners=list(own.owners),
            tags={**spec.tags, **own.tags},
            freshness_policy=own.freshness_policy,
        )

    return multi_asset.map_asset_specs(with_channel_attributes)


def _input_partition_mapping(
    binding: Binding, input_channel: Channel, upstream_dimensions: Sequence[Dimension]
) -> PartitionMapping | None:
    """Partition mapping from an input to the binding, inferred from the binding's query if it has one."""
    queries = [t.scoped for t in binding.tasks if isinstance(t.scoped, DatasetQuery)]
    if queries and upstream_dimensions and binding.dimensions:
        return infer_partition_mapping(queries[0], input_channel.name, upstream_dimensions, binding.dimensions)
    return default_partition_mapping(upstream_dimensions, binding.dimensions)


def build_sink_job(binding: Binding) -> JobDefinition:
    """Job of a binding that writes no channel. Such a binding has no asset, so its steps form a plain job."""
    return _build_step_graph(binding, []).to_job(name=binding.name, description=binding.description)


def external_asset_specs(project: Project) -> list[AssetSpec]:
    """External assets for the channels that no binding writes. Inserts feed these channels."""
    return [
        build_channel_asset_spec(c, upstream_channels=(), default_group=None, with_partitions=True).with_io_manager_key(
            IO_MANAGER_KEY
        )
        for c in project.channels
        if project.writer(c.name) is None
    ]


def build_channel_asset_spec(
    channel: Channel, upstream_channels: Any, default_group: str | None, with_partitions: bool = False
) -> AssetSpec:
    """Asset spec of a channel: description, metadata, group, owners, tags, kinds and freshness policy.

    Args:
        upstream_channels: names of the channels that the asset depends on.
        default_group: asset group for a channel that names no group.
        with_partitions: partition the spec by all dimensions of the channel. Leave it off for a channel that a binding
            writes, because the multi-asset carries the binding's dimensions.
    """
    model = channel.merge.as_json()
    metadata: dict[str, Any] = {"nova/merge": model["kind"], "nova/key": ", ".join(channel.merge.key) or "(none)"}
    if channel.partitions:
        metadata["nova/partitions"] = ", ".join(f"{d.column} ({d.kind})" for d in channel.partitions)
    if channel.schema is not None:
        metadata["dagster/column_schema"] = to_table_schema(channel.schema)
    return AssetSpec(
        AssetKey(channel.name),
        deps=[AssetKey(d) for d in upstream_channels],
        description=channel.description,
        metadata=metadata,
        group_name=channel.group or default_group,
        owners=list(channel.owners),
        tags=dict(channel.tags),
        kinds=ASSET_KINDS,
        partitions_def=build_partitions_definition(channel.partitions) if with_partitions else None,
        freshness_policy=_freshness_policy(channel),
    )


def _freshness_policy(channel: Channel) -> FreshnessPolicy | None:
    seconds = period_seconds(channel.fresh_within)
    return None if seconds is None else FreshnessPolicy.time_window(timedelta(seconds=seconds))


def _build_step_graph(binding: Binding, upstream_channels: list[str]) -> GraphDefinition:
    """Graph of a binding's steps: begin, the tasks, the checks if there are any, and commit.

    Each node has its task's name as an alias, because the op's own name also contains the binding's name.
    """
    order = binding.workflowette.in_order()
    ops = {
        "begin": build_begin_op(binding, upstream_channels),
        **{t.name: build_task_op(binding, t, _upstream_task_names(binding, t)) for t in order},
    }
    execution = DependencyDefinition("begin", EXECUTION)
    dependencies_by_step = {
        t.name: {f"after_{u}": DependencyDefinition(u, "report") for u in _upstream_task_names(binding, t)}
        for t in order
    }
    all_tasks = {f"after_{t.name}": DependencyDefinition(t.name, "report") for t in order}
    check_output_names = [s.get_python_identifier() for s in build_asset_check_specs(binding)]
    if check_output_names:
        ops["checks"], dependencies_by_step["checks"] = build_checks_op(binding), all_tasks
    checks_dependency = (
        {"after_checks": DependencyDefinition("checks", check_output_names[0])} if check_output_names else {}
    )
    ops["commit"], dependencies_by_step["commit"] = build_commit_op(binding), {**all_tasks, **checks_dependency}
    outputs = [(_graph_output_name(c.name), "commit", c.name) for c in binding.writes] + [
        (v, "checks", v) for v in check_output_names
    ]
    return GraphDefinition(
        name=f"{binding.name}__steps",  # the job has the bare name
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


def _upstream_task_names(binding: Binding, task: Task) -> tuple[str, ...]:
    return binding.workflowette.upstream(task)


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
