"""Registration of a channel: settings that may change later, and the fingerprint of the definition."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nova_assets.errors import DefinitionConflict
from nova_assets.model.period import period_seconds_or_zero

if TYPE_CHECKING:
    pass


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
