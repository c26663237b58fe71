"""Seals: records that a group of partitions, such as a day, is complete."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

from nova_assets.errors import DefinitionError
from nova_assets.model.argument_checks import check_argument_types
from nova_assets.model.json_form import JsonForm
from nova_assets.model.period import EXPECTED_PERIOD, period_seconds

LateDataPolicy = Literal["reopen", "quarantine"]

SealState = Literal["sealed", "reopened"]


@dataclass(frozen=True, slots=True)
class Sealing(JsonForm):
    """Rule for when a group of partitions is complete, and for the handling of late data.

    A group is a day or an hour. It consists of all partitions with the same value of a daily or hourly dimension. Nova
    seals a group under three conditions. First, the day or hour is over, and the lateness has passed. Second, all data
    that was announced or found by a final listing is committed. Third, the files of the group are in their final form.
    Groups without data are sealed, too.

    Args:
        by: column of a daily or hourly dimension of the channel.
        lateness: period after the end of a group in which files and rows of the group may still arrive, such as
            ``"15m"``.
        late: handling of rows that arrive after the seal. ``reopen`` accepts the rows, and the group is sealed again
            under a new version. ``quarantine`` moves the rows to the quarantine channel.
    """

    by: str
    lateness: str | None = None
    late: LateDataPolicy = "reopen"

    @property
    def seconds(self) -> int:
        """Lateness in seconds."""
        return period_seconds(self.lateness) or 0

    def problems(self) -> list[str]:
        """Problems of this definition alone."""
        found = []
        if self.lateness is not None and period_seconds(self.lateness) is None:
            found.append(f"seal has lateness={self.lateness!r}; expected {EXPECTED_PERIOD}")
        if self.late not in get_args(LateDataPolicy):
            found.append(f'seal has late={self.late!r}; expected "reopen" or "quarantine"')
        return found


@check_argument_types("nova.seal")
def seal(by: str, *, lateness: str | None = None, late: LateDataPolicy = "reopen") -> Sealing:
    """Declare when the days or hours of a channel are complete. See ``Sealing`` for the arguments.

        nova.Channel("actions", ..., partitions=[nova.daily("dt", start="2024-01-01", of="ts")],
                     seal=nova.seal("dt", lateness="15m"))

    Raises:
        DefinitionError: ``lateness`` is not a period, or ``late`` is unknown.
    """
    found = Sealing(by, lateness, late)
    problems = found.problems()
    if problems:
        raise DefinitionError.of(problems, "a seal")
    return found


@dataclass(frozen=True, slots=True)
class Seal:
    """Record that a group (a day or an hour) was complete at a sequence number.

    Args:
        group: value of the dimension, such as ``2024-01-01``.
        version: number of this seal of the group, counted from 1. If a group is reopened, the next seal has the next
            number.
        state: ``reopened`` if data arrived after the seal, otherwise ``sealed``.
        seq: sequence number of the channel at which the group was sealed.
        at: time of the seal.
        rows, bytes, files: size of the group in its final form.
        ended_at: end of the day or hour; None if the channel has no longer such a dimension.
    """

    channel: str
    group: str
    version: int
    state: SealState
    seq: int
    at: datetime
    rows: int = 0
    bytes: int = 0
    files: int = 0
    ended_at: datetime | None = None

    @property
    def seconds_after_end(self) -> float | None:
        """Seconds from the end of the day or hour to its seal; None if the end is not known."""
        return None if self.ended_at is None else (self.at - self.ended_at).total_seconds()


@dataclass(frozen=True, slots=True)
class AddSeal:
    """Part of a commit that seals a group at the pinned sequence number.

    The commit is rejected if the group is sealed already, or if data has arrived since.

    Args:
        scope: partitions of the group.
        version: version of the new seal.
    """

    channel: str
    group: str
    scope: str
    version: int
    seq: int
    rows: int
    bytes: int
    files: int
