"""What a changed definition requires: whether the next block of a channel has to be a base, and which stored rows are
the result of another query. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nova_assets.errors import ModelChanged
from nova_assets.model.block import Kind
from nova_assets.model.merge import Append, Multiset
from nova_assets.model.timeline import History


def has_new_merge_model(history: History) -> bool:
    """Whether the merge model of a channel has changed since its newest block (R18)."""
    return history.last_merge is not None and history.last_merge.as_json() != history.merge.as_json()


def reason_for_base(history: History, *, is_computed_per_partition: bool) -> str:
    """Why the next block has to be a base (R18); empty if a delta is accepted, too.

    Args:
        history: the scope in which an execution writes.
        is_computed_per_partition: whether the first block of each partition is a base, so that a partition without rows
            exists, too.
    """
    if history.next_schema is not None:
        return f"the columns of channel {history.channel} have changed"
    is_other_model = has_new_merge_model(history)
    if is_computed_per_partition and not is_other_model:
        newest_blocks = [b for b in history.blocks if b.hi == history.blocks[-1].hi]
        if not newest_blocks or any(b.origin == "drop" for b in newest_blocks):
            return f"partition {history.scope} does not exist"
        is_other_model = any(b.model_of_channel.as_json() != history.merge.as_json() for b in newest_blocks)
    return f"the merge model of channel {history.channel} has changed" if is_other_model else ""


def check_merge_model_accepts(history: History, kind: Kind) -> None:
    """Check that a channel accepts a block. After a change of its merge model, or of its columns, a base of the whole
    channel must come first (R18, R23). After a change of the model, a base of one partition is enough for a
    ``Multiset``, because any rows are a multiset.

    Raises:
        ModelChanged: no base was committed since the change.
    """
    if kind == "base" and not history.scope:
        return
    if history.next_schema is not None:
        raise ModelChanged(
            f"the columns of channel {history.channel!r} were changed after version {history.head}",
            found="a delta",
            expected="a base, with which the new columns take effect (R23)",
            next="nova tick, which computes the dataset with its new columns",
            channel=history.channel,
        )
    takes_any_rows = isinstance(history.last_merge, Append) and isinstance(history.merge, Multiset)
    if has_new_merge_model(history) and not (kind == "base" and takes_any_rows):
        raise ModelChanged(
            f"the merge model of channel {history.channel!r} was changed after version {history.head}",
            found="a delta" if not history.scope else f"a block for {history.scope} alone",
            expected="a base of the whole channel, with which the new model takes effect (R18)",
            next=f"nova restore {history.channel} --at {history.head}, which writes such a base of the same rows",
            channel=history.channel,
        )


# queries that mean something else than their registered definition


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
