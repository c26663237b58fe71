"""Triggers: what makes a binding due (Nova 2.3). They only describe; ``plan/due.py`` decides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from nova_assets.errors import DefinitionError
from nova_assets.model.channel import Channel
from nova_assets.model.period import EXPECTED_PERIOD, period_seconds
from nova_assets.model.type_checks import check_argument_types
from nova_assets.short_repr import short_repr

Status = Literal["launched", "succeeded", "failed"]


class Trigger:
    """A condition that fires. ``a & b`` fires once both have fired since it last did; ``a | b`` when either does."""

    def __and__(self, other: Trigger) -> Trigger:
        return AllOf(_flatten_parts(AllOf, self, other))

    def __or__(self, other: Trigger) -> Trigger:
        return AnyOf(_flatten_parts(AnyOf, self, other))

    def leaves(self) -> Iterator[Trigger]:
        """The simple triggers that this one is made of, left to right."""
        yield self


@dataclass(frozen=True, slots=True)
class OnData(Trigger):
    """Fires when one of these channels has enough that is unread: a new number, or as much as is asked for.

    Args:
        channels: their names; any of them.
        rows, bytes, blocks: fires when a channel has at least so much; with several of them, when one is reached.
        older_than: fires, however little there is, when the oldest of it has waited for so long.
        loop: a cycle through this trigger is meant.
    """

    __repr__ = short_repr

    channels: tuple[str, ...]
    rows: int | None = None
    bytes: int | None = None
    blocks: int | None = None
    older_than: str | None = None
    loop: bool = False

    @property
    def thresholds(self) -> dict[str, int]:
        """What of rows, bytes and blocks is asked for."""
        asked = {"rows": self.rows, "bytes": self.bytes, "blocks": self.blocks}
        return {what: n for what, n in asked.items() if n is not None}

    @property
    def has_thresholds(self) -> bool:
        """Whether it waits for more than a new number."""
        return bool(self.thresholds) or self.older_than is not None

    def position_key(self, channel: str) -> str:
        """Under which the position on a channel is kept: triggers that ask for different things keep their own."""
        return self._format(channel)

    def _format(self, *channels: str) -> str:
        threshold_texts = [f"{what}={n}" for what, n in self.thresholds.items()]
        age_text = [f"older_than={self.older_than}"] if self.older_than is not None else []
        return f"on_data({', '.join([*channels, *threshold_texts, *age_text])})"

    def __str__(self) -> str:
        return self._format(*self.channels)


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
    """Fires when an execution of another binding reaches a status (a cascade).

    Args:
        loop: a cycle through this trigger is meant.
    """

    binding: str
    status: Status = "succeeded"
    loop: bool = False

    def __str__(self) -> str:
        return f"after({self.binding}, {self.status})"


@dataclass(frozen=True, slots=True)
class OnSealed(Trigger):
    """Fires when a day or hour of a channel is sealed, and again when it is sealed anew.

    Args:
        channel: its name.
    """

    channel: str

    def __str__(self) -> str:
        return f"on_sealed({self.channel})"


@dataclass(frozen=True, slots=True)
class AllOf(Trigger):
    """Fires once when every part has fired since the last firing."""

    __repr__ = short_repr

    parts: tuple[Trigger, ...]

    def leaves(self) -> Iterator[Trigger]:
        for p in self.parts:
            yield from p.leaves()

    def __str__(self) -> str:
        return " & ".join(map(str, self.parts))


@dataclass(frozen=True, slots=True)
class AnyOf(Trigger):
    """Fires when any part does."""

    __repr__ = short_repr

    parts: tuple[Trigger, ...]

    def leaves(self) -> Iterator[Trigger]:
        for p in self.parts:
            yield from p.leaves()

    def __str__(self) -> str:
        return "(" + " | ".join(map(str, self.parts)) + ")"


@check_argument_types("nova.on_data")
def on_data(
    *channels: Channel | str,
    rows: int | None = None,
    bytes: int | None = None,
    blocks: int | None = None,
    older_than: str | None = None,
    loop: bool = False,
) -> Trigger:
    """Fires when new data arrives on one of the channels; or, where more is asked for, when enough of it has.

    What counts is what the binding has not read, and has not fired for. Compaction is no news (R14).

    Args:
        channels: at least one.
        rows: at least so many unread rows on one of them.
        bytes: at least so many bytes of files.
        blocks: at least so many blocks.
        older_than: or when the oldest unread block has waited for ``30s``, ``5m``, ``6h``, ``7d``.
        loop: the binding feeds one of these channels itself, or through others, and that is meant.

    Raises:
        DefinitionError: no channel, a number below 1, an unreadable period.
    """
    if not channels:
        raise DefinitionError("on_data names no channel", next='on_data("articles")')
    for what, n in {"rows": rows, "bytes": bytes, "blocks": blocks}.items():
        if n is not None and (not isinstance(n, int) or isinstance(n, bool) or n < 1):
            raise DefinitionError(
                f"on_data waits for no such {what}=", found=repr(n), expected="a whole number, from 1"
            )
    if older_than is not None and period_seconds(older_than) is None:
        raise DefinitionError("on_data has an unreadable older_than=", found=repr(older_than), expected=EXPECTED_PERIOD)
    names = tuple(c.name if isinstance(c, Channel) else c for c in channels)
    return OnData(names, rows, bytes, blocks, older_than, loop)


@check_argument_types("nova.on_sealed")
def on_sealed(channel: Channel | str) -> Trigger:
    """Fires when a day or an hour of a channel is complete: all of its data is readable, in its final form.

    A binding that is partitioned alike is executed for just that day or hour; and again if something came to it later
    and it was sealed anew.

    Args:
        channel: one that says ``seal=nova.seal(...)``.
    """
    return OnSealed(channel.name if isinstance(channel, Channel) else channel)


@check_argument_types("nova.every")
def every(period: str) -> Trigger:
    """Fires at once and then every ``30s``, ``5m``, ``6h``, ``7d`` or ``2w``."""
    seconds = period_seconds(period)
    if seconds is None:
        raise DefinitionError("every has an unreadable period", found=repr(period), expected=EXPECTED_PERIOD)
    return Every(seconds, period)


@check_argument_types("nova.cron")
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


@check_argument_types("nova.after")
def after(binding: str, status: Status = "succeeded", *, loop: bool = False) -> Trigger:
    """Fires when an execution of another binding is launched, succeeded or failed.

    Args:
        binding: its name.
        status: one that was aborted by a conflict and planned again has not failed.
        loop: the other is fired by this one, at once or through others, and that is meant.
    """
    if status not in ("launched", "succeeded", "failed"):
        raise DefinitionError(
            "after has an unknown status", found=repr(status), expected='"launched", "succeeded" or "failed"'
        )
    return After(binding, status, loop)


def _flatten_parts(compound_type: type[AllOf] | type[AnyOf], *triggers: Trigger) -> tuple[Trigger, ...]:
    return tuple(p for t in triggers for p in (t.parts if isinstance(t, compound_type) else (t,)))
