"""Base of all nova components: each contributes to the one nova project of its code location."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping, Sequence
from typing import Annotated, Self

from dagster import (
    AssetKey,
    AssetsDefinition,
    AssetSpec,
    ComponentLoadContext,
    Definitions,
    Model,
    Resolvable,
    SensorDefinition,
)
from dagster._record import record
from dagster.components.core.component_tree import ComponentTree, TestComponentTree
from dagster.components.core.defs_module import ComponentLoc
from pydantic import BaseModel

from nova_assets.dagster_bridge.components.channel_attributes import described
from nova_assets.dagster_bridge.components.contribution import Contribution, Contributor
from nova_assets.dagster_bridge.components.field_error import in_field, in_yaml
from nova_assets.dagster_bridge.dagster_names import DagsterNames
from nova_assets.dagster_bridge.definitions import build_definitions
from nova_assets.dagster_bridge.resources import NovaResource
from nova_assets.dagster_bridge.writing_assets import declared_edges
from nova_assets.errors import DefinitionError
from nova_assets.key_prefix import parse_key_prefix
from nova_assets.model.channel import Channel
from nova_assets.model.project import Project
from nova_assets.model.quarantine import quarantine_channel
from nova_assets.sql.datasets.dataset_bindings import Datasets, dataset_queries_by_name, datasets_of_folders


class ProjectPart(Contributor, Resolvable, Model, ABC):
    """Component that contributes to the one nova project of its code location.

    All nova components of a code location share a catalog, a resource and the sensors that belong to a project. So the
    first of them that Dagster builds builds the definitions of all (``definitions_of_part``). Each component returns
    the assets, jobs and sensors that it has contributed, so that links and post-processing concern its own YAML file.
    """

    key_prefix: Annotated[
        str | Sequence[str] | None,
        described("First parts of all asset keys of the project, such as eu. One component may say it for all."),
    ] = None

    @property
    def parsed_key_prefix(self) -> tuple[str, ...] | None:
        """Parts of ``key_prefix``; None if the component names none. Raises FieldError."""
        with in_field("key_prefix"):
            return None if self.key_prefix is None else parse_key_prefix(self.key_prefix)

    def build_defs(self, context: ComponentLoadContext) -> Definitions:
        """The definitions that the component has contributed to the project."""
        return definitions_of_part(self, context)

    @classmethod
    def load(cls, attributes: BaseModel | None, context: ComponentLoadContext) -> Self:
        """The component of a YAML document.

        Raises:
            DefinitionError: a field has a wrong value. The error names the file, the line and the field.
        """
        part = super().load(attributes, context)
        with in_yaml(context.resolution_context.at_path("attributes")):
            _ = part.contribution
        return part


@record
class NovaProjectLoc(ComponentLoc):
    """Location of the nova project in a component tree, which caches definitions by location."""


def definitions_of_part(part: Contributor, context: ComponentLoadContext) -> Definitions:
    """The share of a component in the definitions of the one nova project of a code location.

    If each component built the definitions of its own channels, a code location would have several catalogs of
    resources, and each maintenance sensor several times. So they are built once, for all components of the tree.

    Raises:
        DefinitionError: the components do not fit each other, or Dagster cannot find the component.
    """
    tree = context.component_tree
    part_by_place = parts_of_tree(tree) if not isinstance(tree, TestComponentTree) else {"this component": part}
    places = [place for place, other in part_by_place.items() if other is part]
    if not places:
        raise DefinitionError(
            f"Dagster's component tree does not show {type(part).__name__}",
            found="a function without the component's class as the annotation of its result",
            expected=f"@dg.component_instance def load(context) -> {type(part).__name__}",
        )
    contributions = {place: other.contribution for place, other in part_by_place.items()}
    project_loc = NovaProjectLoc()
    tree.mark_component_defs_dependency(from_loc=project_loc, to_loc=context.component_loc)
    tree.mark_component_defs_dependency(from_loc=context.component_loc, to_loc=project_loc)
    whole = tree.state_tracker.get_cache_data(project_loc).defs
    if whole is None:
        assets = [a for c in contributions.values() for a in c.assets]
        whole = build_definitions(
            merge_contributions(contributions),
            assets=assets,
            key_prefix=_common_prefix(contributions),
            root=context.project_root,
        )
        tree.state_tracker.set_cache_data(project_loc, defs=whole)
    return _share(whole, contributions, places[0])


def parts_of_tree(tree: ComponentTree) -> dict[str, Contributor]:
    """Place in the tree -> nova component, in the order of the tree."""
    found = {}
    for loc, decl in tree.find_root_decl().iterate_loc_component_decl_pairs():
        if isinstance(decl.component_type, type) and issubclass(decl.component_type, Contributor):
            component = tree.load_component(loc)
            assert isinstance(component, Contributor)
            found[loc.get_display_key(tree.defs_module_path)] = component
    return found


def merge_contributions(contributions: Mapping[str, Contribution]) -> Project:
    """One project of all contributions.

    Args:
        contributions: place of a component -> what it contributes.

    Raises:
        DefinitionError: two components define a channel, or the whole is not sound.
        SqlError: a dataset in SQL cannot be analysed.
    """
    channels = _distinct_channels(contributions)
    each = list(contributions.values())
    bindings = [b for c in each for b in c.bindings]
    named = [c for b in bindings for c in b.channels.values() if isinstance(c, Channel)]
    brought = [e.channel for c in each for a in c.assets for e in declared_edges(a) if e.channel is not None]
    folders = [f for c in each for f in c.folders]
    datasets: Datasets | tuple[()] = ()
    if folders:
        datasets = datasets_of_folders(folders, list(dict.fromkeys([*channels, *named, *brought])))
        channels = [*channels, *datasets.channels]
    return Project([*bindings, *datasets], channels=channels, checks=[k for c in each for k in c.checks])


def _distinct_channels(contributions: Mapping[str, Contribution]) -> list[Channel]:
    """The channels of all contributions, each once.

    A Python project may repeat a channel of another component, with an equal definition.

    Raises:
        DefinitionError: two components define a channel differently, or equally but neither of them has bindings, as
            two components in YAML.
    """
    in_order = sorted(contributions, key=lambda place: bool(contributions[place].bindings))
    found: dict[str, tuple[Channel, str]] = {}
    for place, channel in ((p, c) for p in in_order for c in contributions[p].channels):
        known, known_place = found.setdefault(channel.name, (channel, place))
        if known_place != place and (known != channel or not contributions[place].bindings):
            raise DefinitionError(
                f"two components define the channel {channel.name!r}",
                found=f"{known_place} and {place}",
                expected="one definition" if known == channel else "equal definitions, or one",
            )
    return [channel for channel, _ in found.values()]


def _common_prefix(contributions: Mapping[str, Contribution]) -> tuple[str, ...] | None:
    """The key prefix that components name. None if none of them names one.

    Raises:
        DefinitionError: two components name different prefixes.
    """
    place_by_prefix = {c.key_prefix: place for place, c in contributions.items() if c.key_prefix is not None}
    if len(place_by_prefix) > 1:
        raise DefinitionError(
            "two components name different key prefixes",
            found=" and ".join(f"{'/'.join(prefix)!r} in {place}" for prefix, place in place_by_prefix.items()),
            expected="one key_prefix, because all components form one project",
        )
    return next(iter(place_by_prefix), None)


def _share(whole: Definitions, contributions: Mapping[str, Contribution], place: str) -> Definitions:
    """The definitions that a component has contributed. The first component has those that no component contributed."""
    nova = next(r for r in (whole.resources or {}).values() if isinstance(r, NovaResource))
    project, names = nova.defined_project, nova.names
    assert project is not None
    owner_of_asset, owner_of_binding = _owners(project, contributions, names)
    first = next(iter(contributions))

    def is_own_asset(key: AssetKey) -> bool:
        return owner_of_asset.get(key, first) == place

    def is_own_job(name: str) -> bool:
        return owner_of_binding.get(name, first) == place

    return Definitions(
        assets=[a for a in whole.assets or () if is_own_asset(_asset_key(a))],
        asset_checks=[c for c in whole.asset_checks or () if is_own_asset(_checked_key(c))],
        jobs=[j for j in whole.jobs or () if is_own_job(j.name)],
        sensors=[s for s in whole.sensors or () if is_own_job(_job_name(s))],
        resources=whole.resources,
        executor=whole.executor,
    )


def _owners(
    project: Project, contributions: Mapping[str, Contribution], names: DagsterNames
) -> tuple[dict[AssetKey, str], dict[str, str]]:
    """Asset -> place of the component that contributed it, and the same for the jobs of bindings."""
    queries = dataset_queries_by_name(project)
    assets: dict[AssetKey, str] = {}
    bindings: dict[str, str] = {}
    for place, contribution in contributions.items():
        for channel in contribution.channels:
            assets.setdefault(names.key(channel.name), place)
            assets.setdefault(names.key(quarantine_channel(channel).name), place)
    for place, contribution in contributions.items():
        own_keys = {names.add_prefix(key) for a in contribution.assets for key in a.keys}
        own_names = {b.name for b in contribution.bindings}
        own_names |= {q.name for q in queries.values() if any(f.contains(q.source_file) for f in contribution.folders)}
        for binding in project.bindings:
            written = [names.key(c.name) for c in binding.writes]
            if binding.name in own_names or own_keys & set(written):
                bindings[names.name(binding.name)] = place
                assets |= dict.fromkeys(written, place)
        assets |= dict.fromkeys(own_keys, place)
    return assets, bindings


def _asset_key(asset: object) -> AssetKey:
    assert isinstance(asset, AssetsDefinition | AssetSpec)  # build_definitions makes no others
    return asset.key if isinstance(asset, AssetSpec) else next(iter(asset.keys))


def _checked_key(checks: AssetsDefinition) -> AssetKey:
    return next(iter(checks.check_keys)).asset_key


def _job_name(sensor: SensorDefinition) -> str:
    return next((job.name for job in sensor.jobs), "") if sensor.has_jobs else ""
