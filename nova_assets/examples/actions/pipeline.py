"""The channel of the example: what users did, by day and action, fed by files that arrive in a folder."""

from __future__ import annotations

from pathlib import Path

import nova_assets as nova


def actions(landing: Path) -> nova.Channel:
    """The channel ``actions``.

    The files say more than is wanted here, and not which day a row is of: that follows from its moment.
    """
    return nova.Channel(
        "actions",
        merge=nova.Append(),
        schema="ts timestamp NOT NULL, action string NOT NULL, dt date",
        partitions=[nova.daily("dt", start="2015-01-01", of="ts"), nova.dynamic("action")],
        source=nova.files(str(landing), format="json", on_extra_columns="drop", min_age="1s"),
        description="What users did, as it was logged.",
    )


def project(landing: Path) -> nova.Project:
    """The channel and its quarantine; no bindings."""
    return nova.Project(channels=[actions(landing)])
