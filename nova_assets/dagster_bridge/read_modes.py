"""Read modes of users' assets: the places where Dagster lets a user write ``nova/mode``, and what each input reads.

An input names its mode in its own metadata (``dg.AssetIn``, and ``dg.In`` of an op), or in that of the dependency on
the channel (``dg.AssetDep``), where Dagster wants all of a dependency that a spec lists. A mode that no read looks at
would leave its input in mode ``all``, and each run would read all rows again. Such a mode is an error.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dagster import AssetKey, AssetsDefinition, GraphDefinition, OpDefinition
from dagster._core.definitions.dependency import NodeInputHandle

from nova_assets.dagster_bridge.dagster_names import DagsterNames
from nova_assets.errors import DefinitionError
from nova_assets.model.modes_view import View
from nova_assets.suggestions import did_you_mean

MODE_METADATA_KEY = "nova/mode"
"""Metadata key of an input that names the read mode of its channel."""

PRODUCES_METADATA_KEY = "nova/produces"
"""Metadata key of an asset that writes the channel of its name: ``delta`` or ``base``."""

READ_MODES = ("all", "new", "old", "changes")

_MODE_OF_INPUT = f'metadata={{"{MODE_METADATA_KEY}": ...}} of the dg.AssetIn or dg.AssetDep of an input'


@dataclass(frozen=True, slots=True)
class _AssetInput:
    """An input of an asset, or of the step of a graph to which an input of the graph leads.

    Args:
        name: name for errors.
        definition: Dagster's ``InputDefinition``, which has the metadata and the annotation.
    """

    name: str
    key: AssetKey
    definition: Any

    @property
    def annotation(self) -> Any:
        return self.definition.dagster_type.typing_type

    @property
    def is_loaded(self) -> bool:
        return not self.definition.dagster_type.is_nothing


def input_mode(
    input_name: str,
    metadata: Mapping[str, object] | None,
    annotation: object,
    *,
    asset: AssetsDefinition | None = None,
    key: AssetKey | None = None,
) -> str:
    """Read mode that an input's metadata names. An input annotated as a ``View`` has mode ``changes``.

    Args:
        asset: the asset that has the input. The metadata of its dependencies names the mode, too.
        key: key of the asset that the input reads.

    Raises:
        DefinitionError: the metadata names an unknown mode, or two modes.
    """
    modes = _named_modes(metadata, asset, key)
    label = f"input {input_name!r}{'' if asset is None else f' of asset {asset.node_def.name!r}'}"
    for mode in modes:
        if mode not in READ_MODES:
            raise DefinitionError(
                f"{label} has an unknown mode",
                found=f"{mode!r}{did_you_mean(mode, READ_MODES)}",
                expected=", ".join(READ_MODES),
                next=f'{{"{MODE_METADATA_KEY}": "new"}}',
            )
    if any(mode != modes[0] for mode in modes):
        raise DefinitionError(
            f"{label} has several modes",
            found=" and ".join(dict.fromkeys(str(mode) for mode in modes)),
            expected="one mode: an input is loaded once for all outputs",
            next="annotate the input as nova.View, which has .all, .new and .old",
        )
    return "changes" if annotation is View else str(modes[0]) if modes else "all"


def input_modes(asset: AssetsDefinition, names: DagsterNames) -> dict[str, tuple[str, str]]:
    """Input -> its channel and read mode, for inputs that are loaded and have the project's prefix.

    Empty for a graph, each of whose steps has a mode of its own.

    Raises:
        DefinitionError: an input has an unknown mode, or ``old``, because an asset cannot have a second input with
            ``new`` of the same channel (R8).
    """
    if not asset.is_executable or not isinstance(asset.node_def, OpDefinition):
        return {}
    modes = {
        i.name: (channel, input_mode(i.name, i.definition.metadata, i.annotation, asset=asset, key=i.key))
        for i in _inputs(asset)
        if i.is_loaded and (channel := names.channel(i.key)) is not None
    }
    for name, (channel, mode) in modes.items():
        if mode == "old":
            raise _old_without_new_error(asset, channel, name)
    return modes


def check_read_modes(
    asset: AssetsDefinition, channels: Collection[str], plain_keys: Collection[AssetKey] | None, names: DagsterNames
) -> None:
    """Raise DefinitionError if a mode is written where no read looks at it, or if an input has no mode that is known.

    Args:
        channels: channels of the project, and those that assets bring along.
        plain_keys: keys of assets of users that are no channels. None if other projects may have the upstream assets:
            then the mode of an input that is no channel is left alone.
    """
    label = f"asset {', '.join(sorted(k.to_user_string() for k in asset.keys))!r}"
    for spec in asset.specs:
        _check_metadata_key(f"asset {spec.key.to_user_string()!r}", spec.metadata, PRODUCES_METADATA_KEY)
    inputs = list(_inputs(asset)) if asset.is_executable else []
    loaded = {i.key for i in inputs if i.is_loaded}
    for key, metadata in _dependencies(asset):
        _check_metadata_key(f"the dependency of {label} on {key.to_user_string()!r}", metadata, MODE_METADATA_KEY)
        if key not in loaded:
            _check_has_no_mode_unloaded(label, key, metadata)
    modes: dict[str, dict[str, str]] = {}
    for i in inputs:
        metadata = i.definition.metadata or {}
        _check_metadata_key(f"input {i.name!r} of {label}", metadata, MODE_METADATA_KEY)
        if not i.is_loaded:
            _check_has_no_mode_unloaded(label, i.key, metadata)
            continue
        channel, named = names.channel(i.key), _named_modes(metadata, asset, i.key)
        if channel in channels:
            mode = input_mode(i.name, metadata, i.annotation, asset=asset, key=i.key)
            modes.setdefault(str(channel), {})[mode] = i.name
            if not named and i.annotation is not View and isinstance(asset.node_def, GraphDefinition):
                raise _unknown_mode_of_step_error(label, i, str(channel))
        elif named and plain_keys is not None and (channel is not None or i.key in plain_keys):
            raise _no_channel_error(asset, i.key, named[0], channels)
        if named and not asset.keys and any(mode != "all" for mode in named):
            raise _mode_of_check_error(i, named[0])
    for channel, input_by_mode in modes.items():
        if "old" in input_by_mode and "new" not in input_by_mode:
            raise _old_without_new_error(asset, channel, input_by_mode["old"])


def _inputs(asset: AssetsDefinition) -> Iterator[_AssetInput]:
    """Inputs of an asset. For a graph, the inputs of its steps."""
    node = asset.node_def
    for name, key in asset.keys_by_input_name.items():
        if isinstance(node, OpDefinition):
            yield _AssetInput(name, key, node.input_def_named(name))
        elif isinstance(node, GraphDefinition):
            for handle in node.resolve_input_to_destinations(NodeInputHandle(node_handle=None, input_name=name)):
                op: Any = node.get_node(handle.node_handle).definition
                yield _AssetInput(f"{op.name}.{handle.input_name}", key, op.input_def_named(handle.input_name))


def _dependencies(asset: AssetsDefinition) -> Iterator[tuple[AssetKey, Mapping[str, Any]]]:
    """Upstream keys with the metadata of the ``AssetDep`` that names them."""
    for spec in asset.specs:
        yield from ((dep.asset_key, dep.metadata) for dep in spec.deps)
    for check in asset.check_specs:
        yield from ((dep.asset_key, dep.metadata) for dep in check.additional_deps)


def _named_modes(
    metadata: Mapping[str, object] | None, asset: AssetsDefinition | None, key: AssetKey | None
) -> list[object]:
    """The mode of each place that names one for an input."""
    written = [] if asset is None else [m for dep, m in _dependencies(asset) if dep == key]
    modes = [m[MODE_METADATA_KEY] for m in (metadata or {}, *written) if MODE_METADATA_KEY in m]
    return [getattr(mode, "value", mode) for mode in modes]


def _check_metadata_key(label: str, metadata: Mapping[str, Any], known: str) -> None:
    """Raises DefinitionError if metadata has a key of nova that nova does not read in this place."""
    for key in metadata:
        if key in (MODE_METADATA_KEY, PRODUCES_METADATA_KEY) and key != known:
            raise DefinitionError(
                f"{label} has metadata {key!r}, which nova does not read there",
                found=f"{key!r}: {getattr(metadata[key], 'value', metadata[key])!r}",
                expected=_MODE_OF_INPUT if key == MODE_METADATA_KEY else f"{key!r} in the metadata of an asset",
            )
        if key.startswith("nova/") and key != known and did_you_mean(key, [known]):
            raise DefinitionError(
                f"{label} has metadata {key!r}, which nova does not know", found=f"{key!r}{did_you_mean(key, [known])}"
            )


def _check_has_no_mode_unloaded(label: str, key: AssetKey, metadata: Mapping[str, Any]) -> None:
    if MODE_METADATA_KEY in metadata:
        upstream = key.to_user_string()
        raise DefinitionError(
            f"{label} reads {metadata[MODE_METADATA_KEY]}({upstream}), but does not load {upstream!r}",
            found="a dependency without a parameter of the function",
            expected="an input of the function",
            next=f'ins={{"{key.path[-1]}": dg.AssetIn("{upstream}")}} and a parameter {key.path[-1]!r}, or no mode',
        )


def _old_without_new_error(asset: AssetsDefinition, channel: str, input_name: str) -> DefinitionError:
    return DefinitionError(
        f"asset {asset.node_def.name!r} reads old({channel}) without new({channel}) beside it (R8)",
        next=f"annotate {input_name!r} as nova.View, which has .old and .new, or read {channel!r} in mode all",
    )


def _no_channel_error(
    asset: AssetsDefinition, key: AssetKey, mode: object, channels: Collection[str]
) -> DefinitionError:
    upstream = key.to_user_string()
    return DefinitionError(
        f"asset {asset.node_def.name!r} reads {mode}({upstream}), which is no channel",
        found=f"no channel {upstream!r}{did_you_mean(upstream, channels)}",
        expected="a channel of the project",
        next=f'nova.Project(..., channels=[nova.Channel("{upstream}", ...)])',
    )


def _unknown_mode_of_step_error(label: str, unnamed: _AssetInput, channel: str) -> DefinitionError:
    return DefinitionError(
        f"input {unnamed.name!r} of the graph of {label} reads channel {channel!r}, and names no read mode",
        found="Dagster drops the metadata of dg.AssetIn for a graph, so a mode written there would be lost",
        expected=f"{MODE_METADATA_KEY} on the input of the op",
        next=f'@dg.op(ins={{"{unnamed.definition.name}": dg.In(metadata={{"{MODE_METADATA_KEY}": "all"}})}}), or "new"',
    )


def _mode_of_check_error(checked: _AssetInput, mode: object) -> DefinitionError:
    return DefinitionError(
        f"input {checked.name!r} of an asset check reads {mode}({checked.key.to_user_string()})",
        expected="mode all, because a check has no cursor",
        next="check the changes in an asset, or read them with store.read(channel, since=...)",
    )
