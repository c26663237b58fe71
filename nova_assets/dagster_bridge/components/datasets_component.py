"""Component of a folder of datasets in SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, cast

from dagster import Resolver, scaffold_with
from dagster.components.resolved.context import ResolutionContext

from nova_assets.dagster_bridge.components.channel_attributes import described
from nova_assets.dagster_bridge.components.contribution import Contribution
from nova_assets.dagster_bridge.components.field_error import in_field
from nova_assets.dagster_bridge.components.import_path import absolute_import_path, import_attribute
from nova_assets.dagster_bridge.components.project_part import ProjectPart
from nova_assets.dagster_bridge.components.scaffolders import DatasetsScaffolder
from nova_assets.errors import DefinitionError
from nova_assets.sql.datasets.dataset_bindings import DatasetFolder
from nova_assets.sql.query.user_functions import SqlFunction


def _resolve_folder(context: ResolutionContext, folder: str) -> Path:
    return context.resolve_source_relative_path(folder)


def _resolve_functions(context: ResolutionContext, functions: Sequence[str]) -> list[str]:
    return [absolute_import_path(context, path) for path in context.resolve_value(list(functions))]


@scaffold_with(DatasetsScaffolder)
class DatasetsComponent(ProjectPart):
    """A folder of datasets in SQL. Each ``.sql`` file in the folder and its subfolders holds one statement.

    The datasets may read all channels and datasets of the code location. Each dataset becomes an asset, and a part of
    the one nova project of the code location.
    """

    folder: Annotated[
        Path,
        Resolver(
            _resolve_folder,
            model_field_type=str,
            description="Folder of the .sql files, relative to this YAML file.",
        ),
    ]
    functions: Annotated[
        Sequence[str],
        Resolver(
            _resolve_functions,
            model_field_type=Sequence[str],
            description="Functions that the queries call: package.module:name of each nova.sql_function. A path that "
            "begins with a dot starts in the folder of this YAML file.",
        ),
    ] = ()
    refresh: Annotated[
        str | Mapping[str, str],
        described("How datasets are brought up to date: auto, incremental or full, for all or by dataset."),
    ] = "auto"
    freshness: Annotated[
        str | Mapping[str, str] | None,
        described("How long changes may wait, such as 10 minutes or downstream, for all or by dataset."),
    ] = None
    late: Annotated[
        Mapping[str, str],
        described("Dataset -> data that arrives after its partition was made: rebuild or ignore."),
    ] = {}
    float: Annotated[
        str | Mapping[str, str],
        described("How sums of floating-point numbers are maintained: exact or fast, for all or by dataset."),
    ] = "exact"

    @cached_property
    def contribution(self) -> Contribution:
        """The folder. Raises FieldError."""
        functions = []
        for index, path in enumerate(self.functions):
            with in_field("functions", index):
                functions.append(_sql_function(path))
        policies = cast("dict[str, Any]", {n: getattr(self, n) for n in ("late", "refresh", "freshness", "float")})
        folder = DatasetFolder(self.folder, functions, **policies)  # the graph checks the policies
        with in_field("folder"):
            folder.read_texts()
        return Contribution(folders=[folder], key_prefix=self.parsed_key_prefix)


def _sql_function(path: str) -> SqlFunction:
    function = import_attribute(path)
    if not isinstance(function, SqlFunction):
        raise DefinitionError(
            f"{path} is no function for SQL", found=type(function).__name__, expected="a nova.sql_function"
        )
    return function
