"""The channel of the example: actions of users by day and action, from files that arrive in a folder."""

from __future__ import annotations

from pathlib import Path

import nova_assets as nova


def actions(landing: Path) -> nova.Channel:
    """The channel ``actions``.

    The channel drops the further columns of the files, and derives the day of each row from its time.
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
