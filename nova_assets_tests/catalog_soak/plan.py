"""When the soak sends which signal to which process: the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Kind = Literal["kill", "terminate", "stop"]
Target = Literal["service", "watchdog", "instance", "command"]

_KINDS: tuple[Kind, ...] = ("kill", "terminate", "stop")
_TARGETS: tuple[Target, ...] = ("service", "watchdog", "instance", "command")
_MEAN_PAUSE = 3.0  # seconds
_STOPS = (0.5, 2.0, 8.0, 20.0)  # seconds: the last is longer than the lease, and than the watchdog's patience


@dataclass(frozen=True, slots=True)
class Signal:
    """A signal to one process.

    Args:
        at: seconds since the beginning.
        pick: selects one of the processes that are there.
        pause: seconds after which a stopped process continues.
    """

    at: float
    kind: Kind
    target: Target
    pick: int
    pause: float


def plan_signals(seed: int, seconds: float) -> Iterator[Signal]:
    """Signals, in the order of their time, from the sixth second on."""
    rng = random.Random(seed)
    at = 5.0
    while (at := at + rng.expovariate(1 / _MEAN_PAUSE)) < seconds:
        kind, target = rng.choice(_KINDS), rng.choices(_TARGETS, weights=(2, 1, 3, 3))[0]
        yield Signal(at, kind, target, rng.randrange(1_000), rng.choice(_STOPS))
