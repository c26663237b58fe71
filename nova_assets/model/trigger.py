"""Triggers: conditions under which a binding becomes due (Nova 2.3).

Triggers only describe a condition. ``plan/due.py`` evaluates it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from nova_assets.errors import DefinitionError
from nova_assets.model.argument_checks import check_argument_types
from nova_assets.model.channel import Channel
from nova_assets.model.period import EXPECTED_PERIOD, period_seconds
from nova_assets.short_repr import short_repr

Status = Literal["launched", "succeeded", "failed"]


class Trigger:
    """A condition that fires. ``a & b`` fires once both have fired since its last firing; ``a | b`` when
    either fires.
    """

    def __and__(self, other: Trigger) -> Trigger:
        return AllOf(_flatten_parts(AllOf, self, other))

    def __or__(self, other: Trigger) -> Trigger:
        return AnyOf(_flatten_parts(AnyOf, self, other))

    def simple_triggers(self) -> Iterator[Trigger]:
        """Simple triggers of which this trigger is composed, left to right."""
        yield self


@dataclass(frozen=True, slots=True)
class OnData(Trigger):
    """Fires when one of its channels has enough unread data: by default a new sequence number, or the given thresholds.

    Args:
        channels: names of the channels. Each of them can fire the trigger.
        rows, bytes, blocks: thresholds. The trigger fires when a channel reaches one of them.
        older_than: fires below the thresholds when the oldest unread data has waited for this period.
        loop: a cycle through this trigger is intended.
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
        """Thresholds that are set, of rows, bytes and blocks."""
        asked = {"rows": self.rows, "bytes": self.bytes, "blocks": self.blocks}
        return {what: n for what, n in asked.items() if n is not None}

    @property
    def has_thresholds(self) -> bool:
        """Whether the trigger waits for more than a new sequence number."""
        return bool(self.thresholds) or self.older_than is not None

    def position_key(self, channel: str) -> str:
        """Key under which the position on a channel is stored. Triggers with different thresholds have separate
        positions.
        """
        return self._format(channel)

    def _format(self, *channels: str) -> str:
        threshold_texts = [f"{what}={n}" for what, n in self.thresholds.items()]
        age_text = [f"older_than={self.older_than}"] if self.older_than is not None else []
        return f"on_data({', '.join([*channels, *threshold_texts, *age_text])})"

    def __str__(self) -> str:
        return self._format(*self.channels)


@dataclass(frozen=True, slots=True)
class Every(Trigger):
    """Fires immediately, and then whenever this many seconds have passed since the last firing."""

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
        loop: a cycle through this trigger is intended.
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
        channel: name of the channel.
    """

    channel: str

    def __str__(self) -> str:
        return f"on_sealed({self.channel})"


@dataclass(frozen=True, slots=True)
class AllOf(Trigger):
    """Fires once when every part has fired since the last firing."""

    __repr__ = short_repr

    parts: tuple[Trigger, ...]

    def simple_triggers(self) -> Iterator[Trigger]:
        for p in self.parts:
            yield from p.simple_triggers()

    def __str__(self) -> str:
        return " & ".join(map(str, self.parts))


@dataclass(frozen=True, slots=True)
class AnyOf(Trigger):
    """Fires when any part fires."""

    __repr__ = short_repr

    parts: tuple[Trigger, ...]

    def simple_triggers(self) -> Iterator[Trigger]:
        for p in self.parts:
            yield from p.simple_triggers()

    def __str__(self) -> str:
        return "(" + " | ".join(map(str, self.parts)) + ")"


def is_supported_trigger(when: object) -> bool:
    """Whether something is composed of triggers of this package. No other trigger would ever fire."""
    if isinstance(when, AllOf | AnyOf):
        return all(map(is_supported_trigger, when.parts))
    return isinstance(when, OnData | Every | Cron | After | OnSealed)


@check_argument_types("nova.on_data")
def on_data(
    *channels: Channel | str,
    rows: int | None = None,
    bytes: int | None = None,
    blocks: int | None = None,
    older_than: str | None = None,
    loop: bool = False,
) -> Trigger:
    """Trigger that fires on new data in one of the channels, or once enough new data has accumulated.

    Data counts only if the binding has not read the data, and the trigger has not fired for the data. Compaction never
    fires a trigger (R14).

    Args:
        channels: the channels to watch, at least one.
        rows: fires when one channel has at least this many unread rows.
        bytes: fires when the unread files of one channel have at least this many bytes.
        blocks: fires when one channel has at least this many unread blocks.
        older_than: fires also when the oldest unread block has waited for this period, such as ``30s``, ``5m``, ``6h``
            or ``7d``.
        loop: true if the binding writes one of these channels, directly or indirectly, and the cycle is intended.

    Raises:
        DefinitionError: there is no channel, a number is below 1, or ``older_than`` is not a period.
    """
    if not channels:
        raise DefinitionError("on_data names no channel", next='on_data("articles")')
    for what, n in {"rows": rows, "bytes": bytes, "blocks": blocks}.items():
        if n is not None and (not isinstance(n, int) or isinstance(n, bool) or n < 1):
            raise DefinitionError(f"on_data has an invalid {what}=", found=repr(n), expected="a whole number, from 1")
    if older_than is not None and period_seconds(older_than) is None:
        raise DefinitionError("on_data has an unreadable older_than=", found=repr(older_than), expected=EXPECTED_PERIOD)
    names = tuple(c.name if isinstance(c, Channel) else c for c in channels)
    return OnData(names, rows, bytes, blocks, older_than, loop)


@check_argument_types("nova.on_sealed")
def on_sealed(channel: Channel | str) -> Trigger:
    """Trigger that fires when a day or an hour of a channel is complete. All data of this day or hour is then readable,
    in its final form.

    A binding with the same partitions is executed only for this day or hour. If late data arrives and the day or hour
    is sealed again, the binding is executed again.

    Args:
        channel: a channel with ``seal=nova.seal(...)``.
    """
    return OnSealed(channel.name if isinstance(channel, Channel) else channel)


@check_argument_types("nova.every")
def every(period: str) -> Trigger:
    """Trigger that fires at once, and then after each period, such as ``30s``, ``5m``, ``6h``, ``7d`` or ``2w``."""
    seconds = period_seconds(period)
    if seconds is None:
        raise DefinitionError("every has an unreadable period", found=repr(period), expected=EXPECTED_PERIOD)
    return Every(seconds, period)


@check_argument_types("nova.cron")
def cron(expression: str, tz: str = "UTC") -> Trigger:
    """Trigger that fires at the times of a cron expression: ``cron("0 6 * * *", tz="Europe/Paris")``."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    from croniter import CroniterBadDateError, croniter

    if not croniter.is_valid(expression):
        raise DefinitionError(
            "cron has an unreadable expression", found=repr(expression), expected='five fields: "0 6 * * *"'
        )
    try:
        croniter(expression, 0.0).get_next()
    except CroniterBadDateError as error:
        raise DefinitionError(
            "cron has an expression without a time", found=repr(expression), expected="a day that its month has"
        ) from error
    try:
        ZoneInfo(tz)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise DefinitionError(
            "cron has an unknown zone", found=tz, expected='a name such as "UTC" or "Europe/Paris"'
        ) from error
    return Cron(expression, tz)


@check_argument_types("nova.after")
def after(binding: str, status: Status = "succeeded", *, loop: bool = False) -> Trigger:
    """Trigger that fires when an execution of another binding is launched, succeeds or fails.

    Args:
        binding: name of the other binding.
        status: the status to wait for: ``launched``, ``succeeded`` or ``failed``. If a conflict aborts an execution and
            nova plans the execution again, the execution has not failed.
        loop: true if this binding also triggers the other binding, directly or indirectly, and the cycle is intended.
    """
    if status not in ("launched", "succeeded", "failed"):
        raise DefinitionError(
            "after has an unknown status", found=repr(status), expected='"launched", "succeeded" or "failed"'
        )
    return After(binding, status, loop)


def _flatten_parts(compound_type: type[AllOf] | type[AnyOf], *triggers: Trigger) -> tuple[Trigger, ...]:
    return tuple(p for t in triggers for p in (t.parts if isinstance(t, compound_type) else (t,)))
