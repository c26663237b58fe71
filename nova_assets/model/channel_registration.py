"""Registration of a channel: settings that may change later, and the fingerprint of the definition."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nova_assets.errors import DefinitionConflict, DefinitionError
from nova_assets.model.partitions import Dimension
from nova_assets.model.period import period_seconds_or_zero
from nova_assets.model.schema import Field, Schema


@dataclass(frozen=True, slots=True)
class ColumnsByBase:
    """Columns of a channel that change with its next base.

    Args:
        present: the columns until then.
        next: the columns that the base brings.
    """

    present: Schema
    next: Schema

    @property
    def dropped(self) -> tuple[str, ...]:
        """Names of columns that end with the base, also if a new column has the name."""
        return tuple(f.name for f in self.present.fields if self.next.name_of_field(f) is None)

    @property
    def added(self) -> tuple[Field, ...]:
        """New columns. They are null in earlier rows."""
        return tuple(f for f in self.next.fields if self.present.name_of_field(f) is None)


@dataclass(frozen=True, slots=True)
class ReplacementPreview:
    """What ``register`` with ``replace`` would do to channels with data.

    Args:
        refused: channel -> why its new definition would be refused.
        by_base: channel -> its columns, if they would take effect with the next base.
    """

    refused: Mapping[str, DefinitionError]
    by_base: Mapping[str, ColumnsByBase]


def mutable_settings_after_register(
    channel: str, registered: Mapping[str, Any], declared: Mapping[str, Any], replace_definition: bool
) -> dict[str, Any]:
    """Mutable settings of a channel after it is registered again.

    The newest definition wins, and a setting that it leaves out returns to its default. ``retain`` is the exception:
    leaving it out must not delete old versions, so removing a retention has to be explicit.

    Args:
        channel: the channel's name, for the error.
        registered: settings as registered; empty for a new channel.
        declared: settings of the new definition.
        replace_definition: whether a changed definition is accepted.

    Raises:
        DefinitionConflict: a retention is registered, and the definition leaves out ``retain``.
    """
    if declared["retain"] is None and registered.get("retain") and not replace_definition:
        raise DefinitionConflict(
            f"channel {channel!r} is registered with retain={registered['retain']!r}, and "
            "this definition leaves it out",
            found="no retain=",
            expected=f"retain={registered['retain']!r}, as it is registered",
            next='to remove the retention: retain="0s", or accept this definition with register(..., replace=True) or '
            "nova init --replace",
            channel=channel,
            differences=["retain"],
        )
    after = {**declared, "retain": declared["retain"] if period_seconds_or_zero(declared["retain"]) else None}
    return {part: value for part, value in after.items() if value}


def definition_fingerprint(definition: Mapping[str, Any]) -> str:
    """Short hash of a definition, 32 hex digits: equal exactly if the definitions are equal."""
    return hashlib.sha256(json.dumps(definition, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:32]


def check_partitions_keep_names(
    channel: str, registered: Sequence[Dimension], declared: Sequence[Dimension], head: int
) -> None:
    """Check that new partitions of a channel with versions give each stored row the partition that it has.

    Blocks, cursors and provenance name partitions, so no row can move to another partition without a rewrite of all
    of them. Two changes keep every name, and are accepted: more values of a static dimension, and an earlier start of a
    calendar.

    Args:
        channel: the channel's name, for the error.
        registered: dimensions of the registered definition.
        declared: dimensions of the new definition.
        head: head of the channel.

    Raises:
        DefinitionError: the channel has versions, and a dimension was added, removed, moved or changed.
    """
    keeps_names = len(registered) == len(declared) and all(map(_keeps_names, registered, declared))
    if head == 0 or keeps_names:
        return
    raise DefinitionError(
        f"channel {channel!r} has {head} versions, and its partitions cannot change any more",
        found=_describe_dimensions(declared),
        expected=f"{_describe_dimensions(registered)}, as registered. A static dimension may get more values, and a "
        "calendar an earlier start",
        next=f"give the channel with the new partitions another name, and fill it with the rows of {channel}: "
        f"store.insert(NEW, store.read({channel!r}).to_spark())",
        channel=channel,
    )


def _keeps_names(registered: Dimension, declared: Dimension) -> bool:
    """Whether each value of a dimension keeps its name and its meaning under a new declaration."""
    same = ("column", "kind", "tz", "of")
    return (
        all(getattr(registered, name) == getattr(declared, name) for name in same)
        and set(registered.values) <= set(declared.values)
        and (registered.start is None or declared.first_moment <= registered.first_moment)
    )


def _describe_dimensions(dimensions: Sequence[Dimension]) -> str:
    return ", ".join(map(repr, dimensions)) or "no partitions"
