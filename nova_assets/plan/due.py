"""Whether a binding is due (Nova 2.3). Pure: facts in, a decision and the new positions out.

A trigger keeps, for each of its leaves, the position up to which it has fired: a head, a moment, an execution. A leaf
has fired when its fact has moved past that. The positions are written with the firing, in one compare-and-set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from nova_assets.model.trigger import After, AllOf, AnyOf, Cron, Every, OnData, Trigger

Positions = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Facts:
    """What a decision rests on.

    Args:
        now: the moment, with a zone.
        heads: channel -> head.
        cursors: channel -> the binding's own cursor, where it keeps one: what it has read needs no firing.
        finished: (binding, status) -> how many executions have reached that status.
        since: when the binding was registered; schedules count from there.
    """

    now: datetime
    since: datetime
    heads: Mapping[str, int] = field(default_factory=dict)
    cursors: Mapping[str, int] = field(default_factory=dict)
    finished: Mapping[tuple[str, str], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether to fire, why, and the positions to keep if so."""

    due: bool
    positions: Positions
    why: str


def decide(trigger: Trigger, positions: Positions, facts: Facts) -> Decision:
    """Judge a trigger.

    Args:
        trigger: of the binding.
        positions: those kept with its last firing; empty before the first.
        facts: as read from the catalog in one go.
    """
    due, moved, why = _judge(trigger, positions, facts)
    return Decision(due, {**positions, **moved}, why)


def _judge(trigger: Trigger, positions: Positions, facts: Facts) -> tuple[bool, dict[str, Any], str]:
    if isinstance(trigger, AllOf | AnyOf):
        parts = [_judge(p, positions, facts) for p in trigger.parts]
        due = all(p[0] for p in parts) if isinstance(trigger, AllOf) else any(p[0] for p in parts)
        moved = {k: v for fired, m, _ in parts if fired for k, v in m.items()}
        return (
            due,
            moved,
            (" and " if isinstance(trigger, AllOf) else " or ").join(w for fired, _, w in parts if fired or not due),
        )
    if isinstance(trigger, OnData):
        return _on_data(trigger, positions, facts)
    if isinstance(trigger, Every | Cron):
        return _on_time(trigger, positions, facts)
    if isinstance(trigger, After):
        return _after(trigger, positions, facts)
    return False, {}, f"unknown trigger {trigger!r}"


def _on_data(trigger: OnData, positions: Positions, facts: Facts) -> tuple[bool, dict[str, Any], str]:
    moved, unread = {}, []
    for channel in trigger.channels:
        key, head = f"on_data({channel})", facts.heads.get(channel, 0)
        if head > max(positions.get(key, 0), facts.cursors.get(channel, 0)):
            unread.append(f"{channel} is at {head}")
            moved[key] = head
    return bool(unread), moved, ", ".join(unread) or f"nothing new on {', '.join(trigger.channels)}"


def _on_time(trigger: Every | Cron, positions: Positions, facts: Facts) -> tuple[bool, dict[str, Any], str]:
    key, now = str(trigger), facts.now
    last = datetime.fromisoformat(positions[key]) if key in positions else None
    if isinstance(trigger, Every):
        due = last is None or (now - last).total_seconds() >= trigger.seconds
    else:
        due = last_tick(trigger, now) > (last or facts.since)
    return due, {key: now.isoformat()} if due else {}, f"{key} {'has come' if due else 'has not come'}"


def last_tick(trigger: Cron, now: datetime) -> datetime:
    """The latest time of a cron expression up to ``now``."""
    from croniter import croniter

    local = now.astimezone(ZoneInfo(trigger.tz))
    if croniter.match(trigger.expression, local) and local.second == 0 and local.microsecond == 0:
        return local
    moment: datetime = croniter(trigger.expression, local).get_prev(datetime)
    return moment


def _after(trigger: After, positions: Positions, facts: Facts) -> tuple[bool, dict[str, Any], str]:
    key, count = str(trigger), facts.finished.get((trigger.binding, trigger.status), 0)
    due = count > positions.get(key, 0)
    return due, {key: count} if due else {}, f"{trigger.binding} {'has' if due else 'has not'} {trigger.status}"
