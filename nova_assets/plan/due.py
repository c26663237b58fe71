"""Whether a binding is due (Nova 2.3). Pure: facts in, a decision and the new positions out.

A trigger keeps, for each of its leaves, the position up to which it has fired: a head, a moment, an execution. A leaf
has fired when its fact has moved past that. The positions are written with the firing, in one compare-and-set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from nova_assets.model.binding import Binding
from nova_assets.model.channel_state import Unread
from nova_assets.model.firing import Firing
from nova_assets.model.period import seconds_of
from nova_assets.model.trigger import After, AllOf, AnyOf, Cron, Every, OnData, OnSealed, Trigger

Positions = Mapping[str, Any]

LONGEST_BACKOFF = 3600.0  # seconds

MANY = 100
"""Times that have passed are counted up to here."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a decision rests on.

    Args:
        now: the moment, with a zone.
        since: when the binding was registered; times count from there.
        heads: channel -> the newest number at which it was given something; a dropped partition is no news (R19).
        cursors: channel -> the binding's own cursor, where it keeps one: what it has read needs no firing.
        finished: (binding, status) -> how often that was reached; it only grows.
        sealed: channel -> how often something of it was sealed; it only grows.
        unread: (channel, number) -> what came after that number, up to the head. Asked only where a trigger waits for
            more than a new number.
    """

    now: datetime
    since: datetime
    heads: Mapping[str, int] = field(default_factory=dict)
    cursors: Mapping[str, int] = field(default_factory=dict)
    finished: Mapping[tuple[str, str], int] = field(default_factory=dict)
    sealed: Mapping[str, int] = field(default_factory=dict)
    unread: Callable[[str, int], Unread] = lambda channel, after: Unread()


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
    if isinstance(trigger, OnSealed):
        return _on_sealed(trigger, positions, facts)
    return False, {}, f"unknown trigger {trigger!r}"


def _on_data(trigger: OnData, positions: Positions, facts: Facts) -> tuple[bool, dict[str, Any], str]:
    moved: dict[str, Any] = {}
    reached: list[str] = []
    short: list[str] = []
    for channel in trigger.channels:
        key, head = trigger.key(channel), facts.heads.get(channel, 0)
        seen = max(positions.get(key, 0), facts.cursors.get(channel, 0))
        if head <= seen:
            continue
        enough, said = (True, f"{channel} is at {head}")
        if trigger.waits:
            found = facts.unread(channel, seen)
            enough, said = _is_enough(trigger, found, facts.now), f"{channel} has {found.said(facts.now)} unread"
        (reached if enough else short).append(said)
        if enough:
            moved[key] = head
    return bool(reached), moved, ", ".join(reached or short) or f"nothing new on {', '.join(trigger.channels)}"


def _is_enough(trigger: OnData, found: Unread, now: datetime) -> bool:
    if not found.blocks:
        return False
    late = seconds_of(trigger.older_than)
    if late is not None and found.oldest is not None and (now - found.oldest).total_seconds() >= late:
        return True
    return any(getattr(found, what) >= n for what, n in trigger.at_least.items())


def _on_time(trigger: Every | Cron, positions: Positions, facts: Facts) -> tuple[bool, dict[str, Any], str]:
    key, now = str(trigger), facts.now
    last = datetime.fromisoformat(positions[key]) if key in positions else None
    times = _periods(trigger, last, now) if isinstance(trigger, Every) else _ticks(trigger, last or facts.since, now)
    if times <= 0:  # clocks may go back
        return False, {}, f"{key} comes next at {_next(trigger, last or facts.since):%Y-%m-%d %H:%M:%S %Z}"
    often = f"{MANY} times or more" if times >= MANY else f"{times} times"
    why = f"{key} has come" if times == 1 else f"{key} has come {often} since {last or facts.since:%Y-%m-%d %H:%M} UTC"
    return True, {key: now.isoformat()}, why if times == 1 else f"{why}: one firing for all of them"


def _periods(trigger: Every, last: datetime | None, now: datetime) -> int:
    return 1 if last is None else min(int((now - last).total_seconds() // trigger.seconds), MANY)


def _ticks(trigger: Cron, last: datetime, now: datetime) -> int:
    """How many times of a cron expression lie after ``last``, up to ``now``."""
    from croniter import croniter

    times = croniter(trigger.expression, last.astimezone(ZoneInfo(trigger.tz)))
    found = 0
    while found < MANY and times.get_next(datetime) <= now:
        found += 1
    return found


def _next(trigger: Every | Cron, last: datetime) -> datetime:
    from croniter import croniter

    if isinstance(trigger, Every):
        return last + timedelta(seconds=trigger.seconds)
    moment: datetime = croniter(trigger.expression, last.astimezone(ZoneInfo(trigger.tz))).get_next(datetime)
    return moment


def retry_at(binding: Binding, firing: Firing, ended: datetime) -> datetime:
    """When the next run of a firing may be requested, the last of whose runs ended in failure.

    The delay doubles with each run. Runs that never begin are no attempts, and there may be many of them, so the delay
    ends at an hour, or at ``backoff`` where that is longer.
    """
    backoff = seconds_of(binding.backoff) or 0
    delay = min(backoff * 2.0 ** min(firing.attempt - 1, 60), max(backoff, LONGEST_BACKOFF))
    return ended + timedelta(seconds=delay)


def _on_sealed(trigger: OnSealed, positions: Positions, facts: Facts) -> tuple[bool, dict[str, Any], str]:
    key, count = str(trigger), facts.sealed.get(trigger.channel, 0)
    due = count > positions.get(key, 0)
    return due, {key: count} if due else {}, f"{'something' if due else 'nothing'} of {trigger.channel} was sealed"


def _after(trigger: After, positions: Positions, facts: Facts) -> tuple[bool, dict[str, Any], str]:
    key, count = str(trigger), facts.finished.get((trigger.binding, trigger.status), 0)
    due = count > positions.get(key, 0)
    return due, {key: count} if due else {}, f"{trigger.binding} {'has' if due else 'has not'} {trigger.status}"
