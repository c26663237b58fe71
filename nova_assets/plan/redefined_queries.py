"""Datasets whose query was redefined, so that their stored rows are the result of another query. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_WITHOUT_EFFECT = frozenset({"file", "freshness", "frozen"})
"""Parts of a query's definition on which its rows do not depend, or which its meaning contains."""


def channels_of_other_queries(registered: Mapping[str, Any], declared: Mapping[str, Any]) -> list[str]:
    """Output channels of a binding whose query means something else than the registered query.

    Only channels without partitions, whose rows the query determines. A partition is computed by its new query when its
    inputs change, or when a backfill requests it. A query that adds rows (``INSERT INTO``) never makes rows again.

    Args:
        registered, declared: definitions of the binding, as ``Binding.as_json`` gives them.
    """
    earlier = _computed_channels(registered)
    return [
        channel
        for channel, query in _computed_channels(declared).items()
        if not _mean_the_same(earlier.get(channel, {}), query)
    ]


def maintained_channels(definition: Mapping[str, Any]) -> list[str]:
    """Output channels of a binding that a query without partitions maintains from the changes of its inputs."""
    return [c for c, query in _computed_channels(definition).items() if query.get("refresh") == "incremental"]


def recomputable_channels(definition: Mapping[str, Any]) -> list[str]:
    """Output channels of a binding all of whose rows its next execution can make again, in other columns.

    Frozen rows are never made again.
    """
    return [c for c, query in _computed_channels(definition).items() if not query.get("frozen")]


def _computed_channels(definition: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Output channel without partitions -> query whose result its rows are."""
    return {
        definition["channels"][edge["port"]]: task["query"]
        for task in definition["tasks"]
        if "query" in task and not definition["partitions"]
        for edge in task["produces"]
        if edge["kind"] == "base" or task["query"].get("refresh") == "incremental"
    }


def _mean_the_same(registered: Mapping[str, Any], declared: Mapping[str, Any]) -> bool:
    # Catalogs of earlier versions of nova hold no meaning. Their texts are compared.
    ignored = {*_WITHOUT_EFFECT, "sql" if "meaning" in registered else "meaning"}
    if "refresh" not in declared:  # a query that is not maintained any more: its rows stay the same
        ignored.add("refresh")
    before, after = ({k: v for k, v in query.items() if k not in ignored} for query in (registered, declared))
    return before == after
