"""Prints what users can write, one line each: names and signatures in Python, commands and options of the shell, paths
and bodies over HTTP, fields in YAML, settings.

    python tools/surface.py > after.txt; diff before.txt after.txt

Two outputs are compared with ``diff``. Descriptions are left out.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any, cast

import click

import nova_assets
from nova_assets import components, dagster_bridge, testing
from nova_assets.cli.main import cli
from nova_assets.service.assembly import make_app
from nova_assets.service.http.config import ServiceConfig
from nova_assets.settings import Settings

WORDS = frozenset({"description", "title", "summary", "examples"})


def main() -> None:
    """Print the lines, sorted within each part."""
    for part in (python_lines(), command_lines(cli, "nova"), http_lines(), yaml_lines(), setting_lines()):
        print(re.sub(r" at 0x[0-9a-f]+", "", "\n".join(sorted(part))))


def python_lines() -> Iterator[str]:
    """Public names with their signatures, and those of public classes."""
    for module in (nova_assets, dagster_bridge, testing):
        for name in getattr(module, "__all__", None) or (n for n in dir(module) if n[:1].isalpha()):
            value = getattr(module, name)
            if inspect.ismodule(value):  # loaded by others
                continue
            yield f"python {module.__name__}.{name}{signature(value)}"
            members = inspect.getmembers_static(value) if inspect.isclass(value) else ()
            for member, attribute in members:
                if member[0] != "_" and attribute not in vars(object).values():
                    yield f"python {module.__name__}.{name}.{member}{signature(getattr(value, member, attribute))}"


def signature(value: Any) -> str:
    """Signature of a callable; empty for anything else."""
    try:
        return str(inspect.signature(value))
    except (TypeError, ValueError):
        return ""


def command_lines(command: click.Command, name: str) -> Iterator[str]:
    """Commands with their arguments and options."""
    yield f"command {name}"
    for parameter in command.params:
        options = "/".join((*parameter.opts, *parameter.secondary_opts))
        facts = (parameter.param_type_name, parameter.type, parameter.required, parameter.multiple, parameter.nargs)
        yield f"command {name} {options} {' '.join(map(str, facts))}"
    if isinstance(command, click.Group):
        context = click.Context(command)
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            assert found is not None
            yield from command_lines(found, f"{name} {child}")


def http_lines() -> Iterator[str]:
    """Paths with their parameters and answers, and the fields of bodies."""
    app = make_app(cast(Any, SimpleNamespace(config=ServiceConfig())))
    yield from leaves("http", app.openapi())


def yaml_lines() -> Iterator[str]:
    """Fields of the components for ``dg``."""
    for name in components.__all__:
        model = getattr(components, name).get_model_cls()
        yield from leaves(f"yaml {name}", {} if model is None else model.model_json_schema())


def setting_lines() -> Iterator[str]:
    """Settings with their types and defaults."""
    return (f"setting {name}: {parameter}" for name, parameter in inspect.signature(Settings).parameters.items())


def leaves(path: str, value: Any) -> Iterator[str]:
    """Path and value of each leaf of a JSON value."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            if key not in WORDS or not isinstance(part, str):
                yield from leaves(f"{path}.{key}", part)
    elif isinstance(value, list):
        for part in value:
            yield from leaves(f"{path}[]", part)
    else:
        yield f"{path} = {value}"


if __name__ == "__main__":
    main()
