"""Users' assets that write channels. Each of them is a binding of the project whose one task is the asset's function.

Dagster calls the function. ``channel_writer.py`` executes the rest of the binding around this call.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable, Mapping, Sequence
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
from dagster._core.definitions.output import OutputDefinition

from nova_assets.dagster_bridge.asset_consumers import consumer_name
from nova_assets.dagster_bridge.assets import build_channel_asset_spec
from nova_assets.dagster_bridge.channel_writer import ChannelWriter
from nova_assets.dagster_bridge.code_links import code_link_of_function
from nova_assets.dagster_bridge.dagster_names import IO_MANAGER_KEY, RESOURCE_KEY, DagsterNames
from nova_assets.dagster_bridge.partitions import build_partitions_definition
from nova_assets.dagster_bridge.read_modes import PRODUCES_METADATA_KEY, check_read_modes, input_modes
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


def add_writing_assets(
    project: Project, assets: Iterable[AssetsDefinition], names: DagsterNames
) -> tuple[Project, list[AssetsDefinition]]:
    """The project with a binding for each asset that writes channels, and the assets as Dagster runs them.

    Assets that write no channel get the names of the project, and stay as they are otherwise.

    Raises:
        DefinitionError: the metadata or the partitions of an asset do not fit its channels.
    """
    assets = list(assets)
    brought = [e.channel for asset in assets for e in declared_edges(asset) if e.channel is not None]
    channels = {c.name: c for c in (*project.channels, *brought)}
    assets = add_prefix(assets, channels, names)
    plain_keys = {key for asset in assets for key in asset.keys if names.channel(key) not in channels}
    for asset in assets:
        check_read_modes(asset, channels, plain_keys, names)
    bindings = [_binding_of_asset(asset, channels, names) for asset in assets]
    written = [b for b in bindings if b is not None]
    if written:
        _check_one_writer(project, written)
        project = Project([*project.bindings, *written], channels=list(channels.values()), checks=project.checks)
    return project, [
        rename_step(asset, names) if b is None else _with_channel_writer(asset, project.binding(b.name), names)
        for asset, b in zip(assets, bindings, strict=True)
    ]


def declared_edges(asset: AssetsDefinition) -> tuple[Produces, ...]:
    """Output edges of an asset that was made by ``nova_asset``."""
    node = asset.node_def if asset.is_executable else None
    function = getattr(getattr(node, "compute_fn", None), "decorated_fn", None)
    edges: tuple[Produces, ...] = getattr(function, EDGES_ATTRIBUTE, ())
    return edges


def _binding_of_asset(asset: AssetsDefinition, channels: Mapping[str, Channel], names: DagsterNames) -> Binding | None:
    """The binding of an asset; None if none of its outputs writes a channel.

    Raises:
        DefinitionError: the metadata or the partitions of the asset do not fit its channels.
    """
    kinds = {key: spec.metadata[PRODUCES_METADATA_KEY] for key, spec in asset.specs_by_key.items() if _writes(spec)}
    if not kinds or not asset.is_executable:
        return None
    name = names.without_prefix(asset.node_def.name)
    if not isinstance(asset.node_def, OpDefinition):
        raise DefinitionError(
            f"asset {name!r} writes a channel, but is made from a graph",
            expected="@dg.asset or @dg.multi_asset, whose one step writes and commits",
        )
    check_name(name, "an asset that writes a channel")
    _check_outputs(asset, asset.node_def, kinds)
    declared = {e.port: e for e in declared_edges(asset)}
    edges = (_produces_edge(key, kind, channels, names) for key, kind in kinds.items())
    produces = tuple(replace(e, columns=declared[e.port].columns) if e.port in declared else e for e in edges)
    consumes = tuple(_consumes_edges(asset, channels, names))
    task = Task(name, _not_called_here(name), consumes, produces, description=asset.node_def.description)
    written = [e.channel for e in produces if e.channel is not None]
    columns = [d.column for d in _dimensions(name, written[0], asset.partitions_def)]
    return bind(Workflowette(name, [task]), description=task.description, partitions=columns)


def reading_binding(asset: AssetsDefinition, project: Project, names: DagsterNames) -> Binding | None:
    """An asset that writes no channel, as a binding that reads channels: for what is unread. None if it has no cursor.

    Raises:
        DefinitionError: the asset is partitioned, so nova cannot tell what is unread in each of its partitions.
    """
    channels = {c.name: c for c in project.channels}
    edges = tuple(_consumes_edges(asset, channels, names))
    if not any(e.moves_cursor for e in edges):
        return None
    name = names.without_prefix(asset.node_def.name)
    if asset.partitions_def is not None:
        raise DefinitionError(
            f"has_unread is a condition of {name!r}, which has partitions and writes no channel",
            expected="an asset without partitions, or one that writes a channel with these partitions",
        )
    workflowette = Workflowette(name, [Task(name, _not_called_here(name), edges)])
    return Binding(consumer_name(asset), workflowette, workflowette.declared_channels_by_port, {}, None)


def _writes(spec: Any) -> bool:
    return PRODUCES_METADATA_KEY in spec.metadata


def _produces_edge(key: AssetKey, kind: Any, channels: Mapping[str, Channel], names: DagsterNames) -> Produces:
    kind = getattr(kind, "value", kind)
    if kind not in KINDS:
        raise DefinitionError(
            f"asset {key.to_user_string()!r} has an unknown {PRODUCES_METADATA_KEY}",
            found=repr(kind),
            expected=" or ".join(KINDS),
        )
    name = names.channel(key)
    if name is None or name not in channels:
        raise DefinitionError(
            f"asset {key.to_user_string()!r} writes a channel that the project does not have",
            found=f"no channel {key.to_user_string()!r}{did_you_mean(key.path[-1], list(channels))}",
            expected="a channel with the name of the asset",
            next=f'nova.Project(..., channels=[nova.Channel("{key.path[-1]}", ...)])',
        )
    return Produces(name, kind, channels[name])


def _consumes_edges(
    asset: AssetsDefinition, channels: Mapping[str, Channel], names: DagsterNames
) -> Iterable[Consumes]:
    """An edge for each input that is a channel."""
    for name, (channel_name, mode) in input_modes(asset, names).items():
        channel = channels.get(channel_name)
        if channel is None:
            continue
        if mode != "all":
            channel.refuse_changes()
        yield Consumes(channel.name, cast(Mode, mode), name, channel)


def _check_outputs(asset: AssetsDefinition, op: OpDefinition, written: Collection[AssetKey]) -> None:
    """Raises DefinitionError if a run could leave out a channel that the asset writes.

    The cursors of the asset are shared by its channels. A channel that is left out would miss the rows of this run.
    """
    if asset.can_subset:
        raise DefinitionError(
            f"asset {op.name!r} writes channels, and its outputs can be materialized one by one",
            found="can_subset=True",
            expected="can_subset=False: one run writes all of its channels in one commit",
            next="make an asset of each channel, if each is to be materialized by itself",
        )
    for definition in op.output_defs:
        key = asset.keys_by_output_name.get(definition.name)
        if key is not None and key in written and not definition.is_required:
            raise DefinitionError(
                f"output {definition.name!r} of asset {op.name!r} writes a channel, and is optional",
                found="is_required=False, or skippable=True",
                expected="an output that each run returns",
                next="return an empty table, if there is nothing to write",
            )
    function = getattr(op.compute_fn, "decorated_fn", None)
    if function is not None and inspect.signature(function).return_annotation in (None, "None"):
        raise DefinitionError(
            f"asset {op.name!r} writes a channel, but its function is annotated to return None",
            expected="a function that returns rows",
            next="annotate it with -> pa.Table, for example, or leave out nova/produces",
        )


def _check_one_writer(project: Project, bindings: Iterable[Binding]) -> None:
    """Raises DefinitionError if an asset writes a channel that has another writer."""
    writers = {c.name: f"binding {b.name!r}" for b in project.bindings for c in b.writes}
    for binding in bindings:
        for channel in binding.writes:
            if channel.name in writers:
                raise DefinitionError(
                    f"channel {channel.name!r} has two writers",
                    found=f"{writers[channel.name]} and asset {binding.name!r}",
                    expected="one binding or asset that writes the channel",
                    next="give one of them a channel of its own, or remove it",
                )
            writers[channel.name] = f"asset {binding.name!r}"


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


def _with_channel_writer(asset: AssetsDefinition, binding: Binding, names: DagsterNames) -> AssetsDefinition:
    """The asset with a step that writes its channels."""
    op = asset.node_def
    assert isinstance(op, OpDefinition)
    _check_names_differ(asset, binding, names)
    channel_by_key = {names.key(c.name): c for c in binding.writes}
    channel_by_output = {
        output: channel_by_key[key].name for output, key in asset.keys_by_output_name.items() if key in channel_by_key
    }
    writer = OpDefinition(
        ChannelWriter(op, binding, channel_by_output, names),
        name=names.name(binding.name),
        description=op.description,
        ins={d.name: In.from_definition(d) for d in op.input_defs},
        outs={
            d.name: _channel_out(d, names) if d.name in channel_by_output else Out.from_definition(d)
            for d in op.output_defs
        },
        config_schema=op.config_schema,
        required_resource_keys=op.required_resource_keys | {names.resource},
        tags=op.tags,
        code_version=next((d.code_version for d in op.output_defs), None),
        retry_policy=op.retry_policy,
        pool=op.pool,
    )
    written_asset = AssetsDefinition.dagster_internal_init(**{**asset.get_attributes_dict(), "node_def": writer})
    function = getattr(op.compute_fn, "decorated_fn", None)
    links = {} if function is None else code_link_of_function(function, binding.name)
    return written_asset.map_asset_specs(
        lambda spec: (
            _with_channel_attributes(spec, channel_by_key[spec.key], names, links)
            if spec.key in channel_by_key
            else spec
        )
    )


def _channel_out(definition: OutputDefinition, names: DagsterNames) -> Out:
    """Output of the step that writes a channel. Dagster gives outputs of ``@dg.multi_asset(specs=...)`` the type
    Nothing, which has no values.
    """
    any_type: Any = Any
    dagster_type = any_type if definition.dagster_type.is_nothing else definition.dagster_type
    out: Out = Out.from_definition(definition)._replace(io_manager_key=names.resource, dagster_type=dagster_type)
    return out


def _check_names_differ(asset: AssetsDefinition, binding: Binding, names: DagsterNames) -> None:
    """Raises DefinitionError if the asset has a check of its own with the name of a check of its channel."""
    own = {(names.channel(s.asset_key), s.name) for s in asset.check_specs}
    for check in binding.checks:
        if (check.port, check.name) in own:
            raise DefinitionError(
                f"asset {check.port!r} and the project both have a check {check.name!r}",
                next="give one of them another name=",
            )


def _with_channel_attributes(
    spec: AssetSpec, channel: Channel, names: DagsterNames, links: Mapping[str, Any]
) -> AssetSpec:
    """The spec of an asset with what its channel adds. What the asset itself says comes first, but the channel's group
    replaces the asset's.

    Args:
        links: metadata with a link to the asset's function.
    """
    own = build_channel_asset_spec(channel, names)
    return spec.replace_attributes(
        description=spec.description or own.description,
        metadata={**own.metadata, **links, **spec.metadata},
        group_name=spec.group_name if channel.group is None else channel.group,
        kinds={*spec.kinds, *own.kinds},
        owners=list(spec.owners or own.owners),
        tags={**own.tags, **spec.tags},
        freshness_policy=spec.freshness_policy or own.freshness_policy,
    )


def add_prefix(
    assets: Sequence[AssetsDefinition], channels: Collection[str], names: DagsterNames
) -> list[AssetsDefinition]:
    """The assets with keys below the project's prefix. What they read of each other, and the channels that they read,
    get the prefix, too. Other upstream assets keep their keys.
    """
    if not names.prefix:
        return list(assets)
    own = {key for asset in assets for key in asset.keys} | {AssetKey(c) for c in channels}
    replacements = {key: names.add_prefix(key) for key in own}
    return [asset.with_attributes(asset_key_replacements=replacements) for asset in assets]


def rename_step(asset: AssetsDefinition, names: DagsterNames) -> AssetsDefinition:
    """The asset with a step and IO managers that have the names of the project.

    Dagster requires that two steps of a code location with the same name are the same step.
    """
    op = asset.node_def if asset.is_executable else None
    if not names.prefix or not isinstance(op, OpDefinition):
        return asset
    outs = {d.name: Out.from_definition(d) for d in op.output_defs}
    renamed = op.with_replaced_properties(
        name=names.name(names.without_prefix(op.name)),
        outs={
            name: out._replace(io_manager_key=names.name(out.io_manager_key))
            if out.io_manager_key in (RESOURCE_KEY, IO_MANAGER_KEY)
            else out
            for name, out in outs.items()
        },
    )
    return AssetsDefinition.dagster_internal_init(**{**asset.get_attributes_dict(), "node_def": renamed})
