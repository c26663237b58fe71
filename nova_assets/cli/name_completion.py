"""Types of arguments whose values a shell completes from the catalog."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
from click.shell_completion import CompletionItem

from nova_assets.cli.deployment_options import DEPLOYMENT_OPTION_NAMES, option_of_command_line


class CatalogName(click.types.StringParamType):
    """A text that names something in the catalog.

    Args:
        list_names: lists the names, given a store and the values of the other parameters.
    """

    def __init__(self, list_names: Callable[[Any, dict[str, Any]], list[str]]) -> None:
        self.list_names = list_names

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Names that begin with a text. Without a catalog, or if it does not answer, there are none."""
        from nova_assets.cli.deployment import Deployment

        values = {name: option_of_command_line(ctx, name) for name in DEPLOYMENT_OPTION_NAMES}
        try:
            with Deployment(**values, quiet=True).open_read_only() as store:
                names = self.list_names(store, ctx.params)
        except Exception:  # a shell that completes has no place for an error
            return []
        return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]


def _channels(store: Any, params: dict[str, Any]) -> list[str]:
    return [s.channel.name for s in store.channels()]


def _bindings(store: Any, params: dict[str, Any]) -> list[str]:
    return list(store.catalog.definitions.bindings())


def _partitions(store: Any, params: dict[str, Any]) -> list[str]:
    """Partitions of all channels: click does not know yet which channel or binding stands before the option."""
    return list(
        {
            p.partition
            for name in _channels(store, params)
            for p in store.catalog.histories.partitions(name)
            if p.partition
        }
    )


def _definitions(store: Any, params: dict[str, Any]) -> list[str]:
    """Names of the kind that stands before the name."""
    kind = params.get("kind")
    if kind == "channel":
        return _channels(store, params)
    definitions = store.catalog.definitions.bindings()
    if kind == "workflowette":
        return list({d["workflowette"] for d in definitions.values()})
    return [name for name, d in definitions.items() if kind == "binding" or d["when"] is not None]


DEFINITION_NAME = CatalogName(_definitions)
"""Name of a definition, after the argument ``kind``."""

CATALOG_NAMES = {
    **dict.fromkeys(("channel", "channels", "dataset"), CatalogName(_channels)),
    "binding": CatalogName(_bindings),
    **dict.fromkeys(("partition", "partitions"), CatalogName(_partitions)),
}
"""Name of a parameter -> the type that completes its values."""
