"""Users' assets that write channels. Each of them is a binding of the project whose one task is the asset's function.

Dagster calls the function. ``channel_writer.py`` executes the rest of the binding around this call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

from dagster import (
    AssetKey,
    AssetsDefinition,
    AssetSpec,
    In,
    OpDefinition,
    Out,
    PartitionsDefinition,
)

from nova_assets.dagster_bridge.asset_consumers import (
    PRODUCES_METADATA_KEY,
    consumer_name,
    input_modes,
)
from nova_assets.dagster_bridge.assets import build_channel_asset_spec
from nova_assets.dagster_bridge.channel_writer import ChannelWriter
from nova_assets.dagster_bridge.partitions import build_partitions_definition
from nova_assets.dagster_bridge.resources import RESOURCE_KEY
from nova_assets.errors import DefinitionError
from nova_assets.model.binding import Binding, bind
from nova_assets.model.channel import Channel
from nova_assets.model.edge import Consumes, Mode, Produces
from nova_assets.model.names import check_name
from nova_assets.model.partitions import Dimension
from nova_assets.model.project import Project
from nova_assets.model.task import Task
from nova_assets.model.workflowette import Workflowette
from nova_assets.suggestions import did_you_mean

KINDS = ("delta", "base")

EDGES_ATTRIBUTE = "nova_produces"
"""Attribute of an asset's function with output edges, whose channels the asset brings along."""


def add_writing_assets(project: Project, assets: Iterable[AssetsDefinition]) -> tuple[Project, list[AssetsDefinition]]:
    """The project with a binding for each asset that writes channels, and the assets as Dagster runs them.

    Assets that write no channel stay as they are.

    Raises:
        DefinitionError: the metadata or the partitions of an asset do not fit its channels.
    """
    assets = list(assets)
    for asset in assets:
        input_modes(asset)  # raises an error for assets that only read, too
    brought = [e.channel for asset in assets for e in _declared_edges(asset) if e.channel is not None]
    channels = {c.name: c for c in (*project.channels, *brought)}
    bindings = {id(asset): _binding_of_asset(asset, channels) for asset in assets}
    written = [b for b in bindings.values() if b is not None]
    if not written:
        return project, assets
    extended = Project([*project.bindings, *written], channels=list(channels.values()))
    names = {asset_id: b.name for asset_id, b in bindings.items() if b is not None}
    return extended, [_with_channel_writer(a, extended.binding(names[id(a)])) if id(a) in names else a for a in assets]


def _declared_edges(asset: AssetsDefinition) -> tuple[Produces, ...]:
    """Output edges of an asset that was made by ``nova_asset``."""
    node = asset.node_def if asset.is_executable else None
    function = getattr(getattr(node, "compute_fn", None), "decorated_fn", None)
    edges: tuple[Produces, ...] = getattr(function, EDGES_ATTRIBUTE, ())
    return edges


def _binding_of_asset(asset: AssetsDefinition, channels: Mapping[str, Channel]) -> Binding | None:
    """The binding of an asset; None if none of its outputs writes a channel.

    Raises:
        DefinitionError: the metadata or the partitions of the asset do not fit its channels.
    """
    kinds = {key: spec.metadata[PRODUCES_METADATA_KEY] for key, spec in asset.specs_by_key.items() if _writes(spec)}
    if not kinds or not asset.is_executable:
        return None
    name = asset.node_def.name
    if not isinstance(asset.node_def, OpDefinition):
        raise DefinitionError(
            f"asset {name!r} writes a channel, but is made from a graph",
            expected="@dg.asset or @dg.multi_asset, whose one step writes and commits",
        )
    check_name(name, "an asset that writes a channel")
    declared = {e.port: e for e in _declared_edges(asset)}
    edges = (_produces_edge(key, kind, channels) for key, kind in kinds.items())
    produces = tuple(replace(e, columns=declared[e.port].columns) if e.port in declared else e for e in edges)
    consumes = tuple(_consumes_edges(asset, channels))
    task = Task(name, _not_called_here(name), consumes, produces, description=asset.node_def.description)
    written = [e.channel for e in produces if e.channel is not None]
    columns = [d.column for d in _dimensions(name, written[0], asset.partitions_def)]
    return bind(Workflowette(name, [task]), description=task.description, partitions=columns)


def reading_binding(asset: AssetsDefinition, project: Project) -> Binding | None:
    """An asset that writes no channel, as a binding that reads channels: for what is unread. None if it has no cursor.

    Raises:
        DefinitionError: the asset is partitioned, so nova cannot tell what is unread in each of its partitions.
    """
    channels = {c.name: c for c in project.channels}
    edges = tuple(_consumes_edges(asset, channels))
    if not any(e.moves_cursor for e in edges):
        return None
    name = asset.node_def.name
    if asset.partitions_def is not None:
        raise DefinitionError(
            f"has_unread is a condition of {name!r}, which has partitions and writes no channel",
            expected="an asset without partitions, or one that writes a channel with these partitions",
        )
    workflowette = Workflowette(name, [Task(name, _not_called_here(name), edges)])
    return Binding(consumer_name(asset), workflowette, workflowette.declared_channels_by_port, {}, None)


def _writes(spec: Any) -> bool:
    return PRODUCES_METADATA_KEY in spec.metadata


def _produces_edge(key: AssetKey, kind: Any, channels: Mapping[str, Channel]) -> Produces:
    kind = getattr(kind, "value", kind)
    if kind not in KINDS:
        raise DefinitionError(
            f"asset {key.to_user_string()!r} has an unknown {PRODUCES_METADATA_KEY}",
            found=repr(kind),
            expected=" or ".join(KINDS),
        )
    name = key.path[-1]
    if len(key.path) > 1 or name not in channels:
        raise DefinitionError(
            f"asset {key.to_user_string()!r} writes a channel that the project does not have",
            found=f"no channel {key.to_user_string()!r}{did_you_mean(name, list(channels))}",
            expected="a channel with the name of the asset",
            next=f'nova.Project(..., channels=[nova.Channel("{name}", ...)])',
        )
    return Produces(name, kind, channels[name])


def _consumes_edges(asset: AssetsDefinition, channels: Mapping[str, Channel]) -> Iterable[Consumes]:
    """An edge for each input that is a channel."""
    for name, (channel_name, mode) in input_modes(asset).items():
        channel = channels.get(channel_name)
        if channel is None:
            continue
        if mode != "all":
            channel.refuse_changes()
        yield Consumes(channel.name, cast(Mode, mode), name, channel)


def _dimensions(asset: str, channel: Channel, partitions: PartitionsDefinition[Any] | None) -> tuple[Dimension, ...]:
    """Dimensions of the channel by which an asset is partitioned.

    Raises:
        DefinitionError: the asset's partitions are not those of the channel.
    """
    if partitions is None:
        return ()
    expected = build_partitions_definition(channel.partitions)
    if type(expected) is not type(partitions) and not isinstance(expected, type(partitions)):
        raise DefinitionError(
            f"asset {asset!r} is partitioned otherwise than channel {channel.name!r}",
            found=type(partitions).__name__,
            expected="no partitions" if expected is None else type(expected).__name__,
            next='give the channel partitions=, such as nova.daily("day", start="2026-01-01")',
        )
    return channel.partitions


def _not_called_here(asset: str) -> Any:
    def function(**inputs: Any) -> Any:
        raise DefinitionError(
            f"{asset!r} is a Dagster asset, so Dagster calls its function",
            next=f"dg launch --assets {asset}, or dagster asset materialize --select {asset}",
        )

    return function


def _with_channel_writer(asset: AssetsDefinition, binding: Binding) -> AssetsDefinition:
    """The asset with a step that writes its channels."""
    op = asset.node_def
    assert isinstance(op, OpDefinition)
    written = {c.name for c in binding.writes}
    output_names = {name for name, key in asset.keys_by_output_name.items() if key.path[-1] in written}
    outs = {d.name: Out.from_definition(d) for d in op.output_defs}
    writer = OpDefinition(
        ChannelWriter(op, binding, {n: asset.keys_by_output_name[n].path[-1] for n in output_names}),
        name=op.name,
        description=op.description,
        ins={d.name: In.from_definition(d) for d in op.input_defs},
        outs={n: out._replace(io_manager_key=RESOURCE_KEY) if n in output_names else out for n, out in outs.items()},
        config_schema=op.config_schema,
        required_resource_keys=op.required_resource_keys | {RESOURCE_KEY},
        tags=op.tags,
        code_version=op.version,
        retry_policy=op.retry_policy,
        pool=op.pool,
    )
    written_asset = AssetsDefinition.dagster_internal_init(**{**asset.get_attributes_dict(), "node_def": writer})
    channel_by_key = {AssetKey(c.name): c for c in binding.writes}
    return written_asset.map_asset_specs(
        lambda spec: _with_channel_attributes(spec, channel_by_key[spec.key]) if spec.key in channel_by_key else spec
    )


def _with_channel_attributes(spec: AssetSpec, channel: Channel) -> AssetSpec:
    """The spec of an asset with what its channel adds: what the asset says itself comes first."""
    own = build_channel_asset_spec(channel, upstream_channels=(), default_group=None)
    return spec.replace_attributes(
        description=spec.description or own.description,
        metadata={**own.metadata, **spec.metadata},
        group_name=spec.group_name if channel.group is None else channel.group,
        kinds={*spec.kinds, *own.kinds},
        owners=list(spec.owners or own.owners),
        tags={**own.tags, **spec.tags},
        freshness_policy=spec.freshness_policy or own.freshness_policy,
    )
