"""Base of all nova components: each contributes to the one nova project of its code location."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from typing import Annotated, Self

from dagster import ComponentLoadContext, Definitions, Model, Resolvable
from pydantic import BaseModel

from nova_assets.dagster_bridge.components.channel_attributes import described
from nova_assets.dagster_bridge.components.contribution import Contributor
from nova_assets.dagster_bridge.components.field_error import in_field, in_yaml
from nova_assets.dagster_bridge.components.whole_project import definitions_of_part
from nova_assets.key_prefix import parse_key_prefix


class ProjectPart(Contributor, Resolvable, Model, ABC):
    """Component that contributes to the one nova project of its code location.

    All nova components of a code location share a catalog, a resource and the sensors that belong to a project. So the
    first of them that Dagster builds builds the definitions of all (``whole_project.py``). Each component returns the
    assets, jobs and sensors that it has contributed.
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
