"""Users' own assets under the key prefix of a project."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dagster import AssetKey, AssetsDefinition, OpDefinition, Out

from nova_assets.dagster_bridge.dagster_names import IO_MANAGER_KEY, RESOURCE_KEY, DagsterNames


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
