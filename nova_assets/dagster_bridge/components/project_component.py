"""Component of what a project defines in Python."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Annotated

from dagster import AssetsDefinition, Resolver, load_assets_from_modules, scaffold_with
from dagster.components.resolved.context import ResolutionContext

from nova_assets.dagster_bridge.components.contribution import Contribution
from nova_assets.dagster_bridge.components.field_error import in_field
from nova_assets.dagster_bridge.components.import_path import absolute_import_path, import_attribute, import_module
from nova_assets.dagster_bridge.components.project_part import ProjectPart
from nova_assets.dagster_bridge.components.scaffolders import ProjectScaffolder
from nova_assets.errors import DefinitionError
from nova_assets.model.project import Project


def _resolve_path(context: ResolutionContext, path: str | None) -> str | None:
    return None if path is None else absolute_import_path(context, path)


def _resolve_paths(context: ResolutionContext, paths: Sequence[str]) -> list[str]:
    return [absolute_import_path(context, path) for path in context.resolve_value(list(paths))]


@scaffold_with(ProjectScaffolder)
class ProjectComponent(ProjectPart):
    """What a project defines in Python: a ``nova.Project``, and plain Dagster assets that read or write channels.

    They become parts of the one nova project of the code location. A path that begins with a dot starts in the folder
    of the YAML file.
    """

    project: Annotated[
        str | None,
        Resolver(
            _resolve_path, model_field_type=str, description="The nova.Project to import: package.module:attribute."
        ),
    ] = None
    assets: Annotated[
        Sequence[str],
        Resolver(
            _resolve_paths,
            model_field_type=Sequence[str],
            description="Modules whose Dagster assets read or write channels: package.module of each.",
        ),
    ] = ()

    @cached_property
    def contribution(self) -> Contribution:
        """The bindings, channels and assets. Raises FieldError."""
        if self.project is None and not self.assets:
            with in_field():
                raise DefinitionError("a Python project needs project or assets", found="neither")
        with in_field("project"):
            project = Project() if self.project is None else _import_project(self.project)
        assets: list[AssetsDefinition] = []
        for index, module in enumerate(self.assets):
            with in_field("assets", index):
                assets += _import_assets(module)
        return Contribution(
            project.channels, project.bindings, assets, checks=project.checks, key_prefix=self.parsed_key_prefix
        )


def _import_project(path: str) -> Project:
    project = import_attribute(path)
    if not isinstance(project, Project):
        raise DefinitionError(f"{path} is no project", found=type(project).__name__, expected="a nova.Project")
    return project


def _import_assets(module_name: str) -> list[AssetsDefinition]:
    assets = load_assets_from_modules([import_module(module_name)])
    found = [a for a in assets if isinstance(a, AssetsDefinition)]
    if not found:
        raise DefinitionError(
            f"the module {module_name} defines no asset", expected="assets made with @nova_asset or @dg.asset"
        )
    return found
