"""Steps: each thing that happens to a channel is counted, and sealed by a hash of all before it.

Written in the transaction of what happens, which holds the channel's row: so there is one order of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import Connection, RowMapping, insert, select, update

from nova_assets.catalog.tables import channels, steps
from nova_assets.model.timeline import Action, TimelinePosition


def append_steps(
    c: Connection, commit_id: str, actions: Mapping[str, Action], channel_rows: Mapping[str, RowMapping], now: datetime
) -> None:
    """One step of each of these channels, by one commit.

    Args:
        channel_rows: of the channels, as they were locked.
    """
    for channel, action in actions.items():
        position = TimelinePosition(channel_rows[channel]["step"], channel_rows[channel]["prefix"])
        _append_step_after(c, channel, position, action, commit_id, now)


def append_step(c: Connection, channel: str, action: Action, commit_id: str, now: datetime) -> None:
    """One step of a channel whose row this transaction holds."""
    step, prefix = c.execute(select(channels.c.step, channels.c.prefix).where(channels.c.name == channel)).one()
    _append_step_after(c, channel, TimelinePosition(step, prefix), action, commit_id, now)


def _append_step_after(
    c: Connection, channel: str, position: TimelinePosition, action: Action, commit_id: str, now: datetime
) -> None:
    next_position = position.with_instant(action, commit_id)
    c.execute(
        update(channels).where(channels.c.name == channel).values(step=next_position.step, prefix=next_position.prefix)
    )
    c.execute(
        insert(steps).values(
            channel=channel,
            n=next_position.step,
            prefix=next_position.prefix,
            action=action,
            commit_id=commit_id,
            at=now,
        )
    )
