"""Steps: each thing that happens to a channel is counted, and sealed by a hash of all before it.

Written in the transaction of what happens, which holds the channel's row: so there is one order of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import Connection, RowMapping, insert, select, update

from nova_assets.catalog.tables import channels, steps
from nova_assets.model.timeline import Action, Position


def put_steps(
    c: Connection, commit_id: str, actions: Mapping[str, Action], rows: Mapping[str, RowMapping], now: datetime
) -> None:
    """One step of each of these channels, by one commit.

    Args:
        rows: of the channels, as they were locked.
    """
    for channel, action in actions.items():
        before = Position(rows[channel]["step"], rows[channel]["prefix"])
        _put(c, channel, before, action, commit_id, now)


def put_step(c: Connection, channel: str, action: Action, commit_id: str, now: datetime) -> None:
    """One step of a channel whose row this transaction holds."""
    step, prefix = c.execute(select(channels.c.step, channels.c.prefix).where(channels.c.name == channel)).one()
    _put(c, channel, Position(step, prefix), action, commit_id, now)


def _put(c: Connection, channel: str, before: Position, action: Action, commit_id: str, now: datetime) -> None:
    after = before.after(action, commit_id)
    c.execute(update(channels).where(channels.c.name == channel).values(step=after.step, prefix=after.prefix))
    c.execute(
        insert(steps).values(
            channel=channel, n=after.step, prefix=after.prefix, action=action, commit_id=commit_id, at=now
        )
    )
