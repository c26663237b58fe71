"""What ``dg scaffold defs`` writes for each component: a YAML file that loads, and a file to start with."""

from __future__ import annotations

import re
from collections.abc import Mapping
from textwrap import dedent
from typing import Any

from dagster import Scaffolder, ScaffoldRequest
from dagster.components.component_scaffolding import scaffold_component


class ChannelScaffolder(Scaffolder[Any]):
    """Writes a channel with the name of the folder."""

    def scaffold(self, request: ScaffoldRequest[Any]) -> None:
        scaffold_component(request, {"name": _name(request), "schema": "id bigint, text string"})


class DatasetsScaffolder(Scaffolder[Any]):
    """Writes a folder with one dataset."""

    def scaffold(self, request: ScaffoldRequest[Any]) -> None:
        name = _name(request)
        sql = f"-- Replace this query by your own.\nINSERT OVERWRITE {name}\nSELECT 1 AS id, 'example' AS text\n"
        _scaffold_with_file(request, {"folder": "."}, f"{name}.sql", sql)


class ProjectScaffolder(Scaffolder[Any]):
    """Writes a Python module with one asset, which writes a channel."""

    def scaffold(self, request: ScaffoldRequest[Any]) -> None:
        name = _name(request)
        code = f'''
            import nova_assets as nova
            from nova_assets.dagster_bridge import nova_asset


            @nova_asset(writes=nova.base(nova.Channel("{name}", schema="id bigint, text string")))
            def {name}():
                return [{{"id": 1, "text": "example"}}]
        '''
        _scaffold_with_file(request, {"assets": [".assets"]}, "assets.py", dedent(code).lstrip())


def _scaffold_with_file(request: ScaffoldRequest[Any], attributes: Mapping[str, Any], file: str, text: str) -> None:
    scaffold_component(request, attributes)
    folder = request.target_path.parent if request.append else request.target_path
    if request.scaffold_format == "yaml" and not (folder / file).exists():
        (folder / file).write_text(text, encoding="utf-8")


def _name(request: ScaffoldRequest[Any]) -> str:
    """Name of a channel from the name of the folder."""
    folder = request.target_path.parent if request.append else request.target_path
    name = re.sub(r"\W+", "_", folder.name).strip("_").lower() or "example"
    return name if name[0].isalpha() else f"c_{name}"
