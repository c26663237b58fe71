"""What a soak does and when: from a seed and a number of seconds, the same list every time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

CHANNELS = ("articles", "customers", "orders")
"""Fed from outside."""

ROLES = ("run worker", "spark", "run worker", "code server", "spark", "run worker", "daemon")
"""Who is killed, as often as it is named: what dies most easily, most often."""

BETWEEN_BATCHES = 1.5  # seconds, on average
BETWEEN_KILLS = (6.0, 16.0)  # seconds
WARM_UP = 15.0  # seconds without a kill: so long it takes until something is under way


@dataclass(frozen=True, slots=True)
class Insert:
    """The ``nth`` batch of a channel is inserted, from 0."""

    at: float
    channel: str
    nth: int


@dataclass(frozen=True, slots=True)
class Kill:
    """One process of a role is killed.

    Args:
        pick: of several, the one at this place, counted round.
        until: when to give up waiting for one: the next action is due.
    """

    at: float
    role: str
    pick: int
    until: float


@dataclass(frozen=True, slots=True)
class Plan:
    """All of it, in the order of time.

    Args:
        last: a batch of each channel, once no more is killed: every binding runs again, in peace.
    """

    seed: int
    seconds: float
    inserts: tuple[Insert, ...]
    kills: tuple[Kill, ...]
    last: tuple[Insert, ...]

    def batches(self, channel: str) -> int:
        """How many batches of a channel there are."""
        return sum(i.channel == channel for i in (*self.inserts, *self.last))


def plan(seed: int, seconds: float) -> Plan:
    """The plan of a soak. A longer one with the same seed begins alike."""
    inserts = tuple(_inserts(Random(f"{seed}/inserts"), seconds))
    later = {c: sum(i.channel == c for i in inserts) for c in CHANNELS}
    last = tuple(Insert(seconds, channel, later[channel]) for channel in CHANNELS)
    return Plan(seed, seconds, inserts, tuple(_kills(Random(f"{seed}/kills"), seconds)), last)


def _inserts(chance: Random, seconds: float) -> Iterator[Insert]:
    """Each channel's first batch comes at once, so that there is something to do."""
    counts = dict.fromkeys(CHANNELS, 0)
    at, channels = 0.0, list(CHANNELS)
    while at < seconds:
        channel = channels.pop(0) if channels else chance.choice(CHANNELS)
        yield Insert(round(at, 1), channel, counts[channel])
        counts[channel] += 1
        at += 0.0 if channels else chance.expovariate(1 / BETWEEN_BATCHES)


def _kills(chance: Random, seconds: float) -> Iterator[Kill]:
    """The roles come in rounds, each in an order of its own."""
    at = WARM_UP
    round_: list[str] = []
    while at < seconds:
        if not round_:
            round_ = chance.sample(ROLES, len(ROLES))
        after = at + chance.uniform(*BETWEEN_KILLS)
        yield Kill(round(at, 1), round_.pop(0), chance.randrange(100), round(min(after, seconds), 1))
        at = after
