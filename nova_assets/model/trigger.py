"""Triggers: what makes a binding due (Nova 2.3). They only describe; ``plan/due.py`` decides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from nova_assets.errors import DefinitionError
from nova_assets.model.channel import Channel
from nova_assets.model.period import EXPECTED, seconds_of

Status = Literal["launched", "succeeded", "failed"]


class Trigger:
    """A condition that fires. ``a & b`` fires once both have fired since it last did; ``a | b`` when either does."""

    def __and__(self, other: Trigger) -> Trigger:
        return AllOf(_flat(AllOf, self, other))

    def __or__(self, other: Trigger) -> Trigger:
        return AnyOf(_flat(AnyOf, self, other))

    def leaves(self) -> Iterator[Trigger]:
        """The simple triggers that this one is made of, left to right."""
        yield self


@dataclass(frozen=True, slots=True)
class OnData(Trigger):
    """Fires when one of these channels takes a number."""

    channels: tuple[str, ...]

    def __str__(self) -> str:
        return f"on_data({', '.join(self.channels)})"


@dataclass(frozen=True, slots=True)
class Every(Trigger):
    """Fires at once, and then whenever this many seconds have passed since it last did."""

    seconds: int
    text: str

    def __str__(self) -> str:
        return f"every({self.text})"


@dataclass(frozen=True, slots=True)
class Cron(Trigger):
    """Fires at the times of a cron expression in a zone."""

    expression: str
    tz: str = "UTC"

    def __str__(self) -> str:
        return f"cron({self.expression}, {self.tz})"


@dataclass(frozen=True, slots=True)
class After(Trigger):
    """Fires when an execution of another binding reaches a status (a cascade)."""

    binding: str
    status: Status = "succeeded"

    def __str__(self) -> str:
        return f"after({self.binding}, {self.status})"


@dataclass(frozen=True, slots=True)
class AllOf(Trigger):
    """Fires once when every part has fired since the last firing."""

    parts: tuple[Trigger, ...]

    def leaves(self) -> Iterator[Trigger]:
        for p in self.parts:
            yield from p.leaves()

    def __str__(self) -> str:
        return " & ".join(map(str, self.parts))


@dataclass(frozen=True, slots=True)
class AnyOf(Trigger):
    """Fires when any part does."""

    parts: tuple[Trigger, ...]

    def leaves(self) -> Iterator[Trigger]:
        for p in self.parts:
            yield from p.leaves()

    def __str__(self) -> str:
        return "(" + " | ".join(map(str, self.parts)) + ")"


def on_data(*channels: Channel | str) -> Trigger:
    """Fires when new data arrives on one of the channels."""
    if not channels:
        raise DefinitionError("on_data names no channel", next='on_data("articles")')
    return OnData(tuple(c.name if isinstance(c, Channel) else c for c in channels))


def every(period: str) -> Trigger:
    """Fires at once and then every ``30s``, ``5m``, ``6h``, ``7d`` or ``2w``."""
    seconds = seconds_of(period)
    if seconds is None:
        raise DefinitionError("every has an unreadable period", found=repr(period), expected=EXPECTED)
    return Every(seconds, period)


def cron(expression: str, tz: str = "UTC") -> Trigger:
    """Fires at the times of a cron expression: ``cron("0 6 * * *", tz="Europe/Paris")``."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    from croniter import croniter

    if not croniter.is_valid(expression):
        raise DefinitionError(
            "cron has an unreadable expression", found=repr(expression), expected='five fields: "0 6 * * *"'
        )
    try:
        ZoneInfo(tz)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise DefinitionError(
            "cron has an unknown zone", found=tz, expected='a name such as "UTC" or "Europe/Paris"'
        ) from error
    return Cron(expression, tz)


def after(binding: str, status: Status = "succeeded") -> Trigger:
    """Fires when an execution of another binding is launched, succeeded or failed."""
    if status not in ("launched", "succeeded", "failed"):
        raise DefinitionError(
            "after has an unknown status", found=repr(status), expected='"launched", "succeeded" or "failed"'
        )
    return After(binding, status)


def _flat(kind: type[AllOf] | type[AnyOf], *triggers: Trigger) -> tuple[Trigger, ...]:
    return tuple(p for t in triggers for p in (t.parts if isinstance(t, kind) else (t,)))
