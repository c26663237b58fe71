"""Timeline steps: each action on a channel is counted and added to a hash over all earlier actions.

A step is written in the transaction of its action, which holds the channel's row. So the steps have one order.
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
    """Append one step to each of some channels, for one commit.

    Args:
        actions: channel -> action of the commit.
        channel_rows: locked rows of the channels.
    """
    for channel, action in actions.items():
        position = TimelinePosition(channel_rows[channel]["step"], channel_rows[channel]["prefix"])
        _append_step_after(c, channel, position, action, commit_id, now)


def append_step(c: Connection, channel: str, action: Action, commit_id: str, now: datetime) -> None:
    """Append one step to a channel whose row this transaction holds."""
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
