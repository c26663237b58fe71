"""Channels and bindings as Dagster assets: a binding is a graph-backed multi-asset, ``begin → tasks → commit``."""

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

from nova_assets.dagster_bridge.asset_checks import check_specs
from nova_assets.dagster_bridge.materializations import table_schema
from nova_assets.dagster_bridge.ops import EXECUTION, begin_op, checks_op, commit_op, task_op
from nova_assets.dagster_bridge.partition_mappings import told_mapping
from nova_assets.dagster_bridge.partitions import HasData, dimensions_shown, mapping, partitions_def
from nova_assets.dagster_bridge.resources import IO_MANAGER
from nova_assets.model.binding import Binding
from nova_assets.model.channel import Channel
from nova_assets.model.partitions import Dimension
from nova_assets.model.period import seconds_of
from nova_assets.model.project import Project
from nova_assets.model.task import Task
from nova_assets.sql.datasets.task import InScope

KINDS = {"spark", "parquet"}


def bound_asset(binding: Binding, project: Project, has_data: HasData | None = None) -> AssetsDefinition:
    """A binding as the multi-asset of the channels that it writes, partitioned as its executions are.

    Args:
        has_data: as for ``partitions_def``.
    """
    written = {c.name for c in binding.writes}
    upstream = [c.name for c in binding.reads if c.name not in written]
    specs = [channel_spec(c, deps=_lineage(binding)[c.name], group=binding.name) for c in binding.writes]
    graph = _graph(binding, upstream)
    by_name = {c.name: c for c in binding.reads}
    mappings = {c: _mapping(binding, by_name[c], dimensions_shown(project, by_name[c])) for c in upstream}
    made = AssetsDefinition.from_graph(
        graph,
        keys_by_input_name={c: AssetKey(c) for c in upstream},
        keys_by_output_name={_output(c): AssetKey(c) for c in sorted(written)},
        internal_asset_deps={_output(c): {AssetKey(d) for d in deps} for c, deps in _lineage(binding).items()},
        partitions_def=partitions_def(binding.dimensions, has_data),
        partition_mappings={c: m for c, m in mappings.items() if m is not None} if binding.dimensions else None,
        check_specs=check_specs(binding),
        group_name=None,
        can_subset=False,
    )
    by_key = {s.key: s for s in specs}

    def dressed(spec: AssetSpec) -> AssetSpec:
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

    return made.map_asset_specs(dressed)


def _mapping(binding: Binding, read: Channel, upstream: Sequence[Dimension]) -> PartitionMapping | None:
    """Which partitions of an input a partition needs: as the query says, where there is one."""
    queries = [t.scoped for t in binding.tasks if isinstance(t.scoped, InScope)]
    if queries and upstream and binding.dimensions:
        return told_mapping(queries[0], read.name, upstream, binding.dimensions)
    return mapping(upstream, binding.dimensions)


def sink_job(binding: Binding) -> JobDefinition:
    """A binding that writes no channel makes no asset: its steps are a job of their own."""
    return _graph(binding, []).to_job(name=binding.name, description=binding.description)


def external_assets(project: Project) -> list[AssetSpec]:
    """Channels that no binding writes: fed by inserts, seen by Dagster as external assets."""
    return [
        channel_spec(c, deps=(), group=None, partitioned=True).with_io_manager_key(IO_MANAGER)
        for c in project.channels
        if project.writer(c.name) is None
    ]


def channel_spec(channel: Channel, deps: Any, group: str | None, partitioned: bool = False) -> AssetSpec:
    """How a channel is described in the catalogue of assets.

    Args:
        partitioned: by all of its dimensions; what a binding writes is, by those of the binding.
    """
    model = channel.merge.as_json()
    metadata: dict[str, Any] = {"nova/merge": model["kind"], "nova/key": ", ".join(channel.merge.key) or "(none)"}
    if channel.partitions:
        metadata["nova/partitions"] = ", ".join(f"{d.column} ({d.kind})" for d in channel.partitions)
    if channel.schema is not None:
        metadata["dagster/column_schema"] = table_schema(channel.schema)
    return AssetSpec(
        AssetKey(channel.name),
        deps=[AssetKey(d) for d in deps],
        description=channel.description,
        metadata=metadata,
        group_name=channel.group or group,
        owners=list(channel.owners),
        tags=dict(channel.tags),
        kinds=KINDS,
        partitions_def=partitions_def(channel.partitions) if partitioned else None,
        freshness_policy=_freshness(channel),
    )


def _freshness(channel: Channel) -> FreshnessPolicy | None:
    seconds = seconds_of(channel.fresh_within)
    return None if seconds is None else FreshnessPolicy.time_window(timedelta(seconds=seconds))


def _graph(binding: Binding, upstream: list[str]) -> GraphDefinition:
    """The steps, under the names that they have in the workflowette: ops themselves are called by binding, too."""
    order = binding.workflowette.in_order()
    ops = {"begin": begin_op(binding, upstream), **{t.name: task_op(binding, t, _before(binding, t)) for t in order}}
    execution = DependencyDefinition("begin", EXECUTION)
    waits = {t.name: {f"after_{u}": DependencyDefinition(u, "report") for u in _before(binding, t)} for t in order}
    all_tasks = {f"after_{t.name}": DependencyDefinition(t.name, "report") for t in order}
    verdicts = [s.get_python_identifier() for s in check_specs(binding)]
    if verdicts:
        ops["checks"], waits["checks"] = checks_op(binding), all_tasks
    checked = {"after_checks": DependencyDefinition("checks", verdicts[0])} if verdicts else {}
    ops["commit"], waits["commit"] = commit_op(binding), {**all_tasks, **checked}
    outputs = [(_output(c.name), "commit", c.name) for c in binding.writes] + [(v, "checks", v) for v in verdicts]
    return GraphDefinition(
        name=f"{binding.name}__steps",  # the bare name is the job's
        description=binding.description,
        node_defs=list(ops.values()),
        dependencies={
            NodeInvocation(op.name, alias=step): {} if step == "begin" else {EXECUTION: execution, **waits[step]}
            for step, op in ops.items()
        },
        input_mappings=[
            InputMapping(graph_input_name=c, mapped_node_name="begin", mapped_node_input_name=c) for c in upstream
        ],
        output_mappings=[
            OutputMapping(graph_output_name=name, mapped_node_name=step, mapped_node_output_name=of)
            for name, step, of in outputs
        ],
    )


def _output(channel: str) -> str:
    """Apart from the names that Dagster gives to checks, which are of the same kind."""
    return f"block_of_{channel}"


def _before(binding: Binding, task: Task) -> tuple[str, ...]:
    return binding.workflowette.upstream(task)


def _lineage(binding: Binding) -> Mapping[str, set[str]]:
    """Written channel -> the channels that it is made from, following the tasks.

    What a task reads of its own outputs is what they were before: no edge, since Dagster's graph has no yesterday.
    """
    made_from: dict[str, set[str]] = {}
    for task in binding.workflowette.in_order():
        own = {e.port for e in task.produces}
        inputs: set[str] = set()
        for edge in task.consumes:
            channel = binding.channel(edge.port)
            if edge.port not in own:
                inputs |= {channel.name} if channel is not None else made_from.get(edge.port, set())
        for out in task.produces:
            made_from[out.port] = inputs
    return {ch.name: made_from[p] - {ch.name} for p, ch in binding.channels.items() if p in made_from}
