"""Seals: a group of partitions, such as a day, is known to be complete."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, get_args

from nova_assets.errors import DefinitionError
from nova_assets.model.period import EXPECTED_PERIOD, period_seconds
from nova_assets.model.type_checks import check_argument_types

Late = Literal["reopen", "quarantine"]

SealState = Literal["sealed", "reopened"]


@dataclass(frozen=True, slots=True)
class Sealing:
    """When a group of a channel's partitions is done, and what becomes of what comes after.

    A group is a day or an hour: all partitions with one value of a calendar dimension. It is sealed once its time is
    over and the lateness has passed; everything that was announced, or found by looking once more, is committed; and
    its files are in their final form. A group without data is sealed, too.

    Args:
        by: the column of a daily or hourly dimension of the channel.
        lateness: ``"15m"``: for how long after its end files and rows of a group are waited for.
        late: what becomes of rows that come after it is sealed: ``reopen`` takes them, and the group is sealed anew,
            under a new version; ``quarantine`` sets them aside.
    """

    by: str
    lateness: str | None = None
    late: Late = "reopen"

    @property
    def seconds(self) -> int:
        """The lateness."""
        return period_seconds(self.lateness) or 0

    def problems(self) -> list[str]:
        """What is wrong with it by itself."""
        found = []
        if self.lateness is not None and period_seconds(self.lateness) is None:
            found.append(f"seal has lateness={self.lateness!r}; expected {EXPECTED_PERIOD}")
        if self.late not in get_args(Late):
            found.append(f'seal has late={self.late!r}; expected "reopen" or "quarantine"')
        return found

    def as_json(self) -> dict[str, Any]:
        return {"by": self.by, "lateness": self.lateness, "late": self.late}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Sealing:
        return Sealing(data["by"], data["lateness"], data["late"])


@check_argument_types("nova.seal")
def seal(by: str, *, lateness: str | None = None, late: Late = "reopen") -> Sealing:
    """When the days or hours of a channel are complete; see ``Sealing``.

        nova.Channel("actions", ..., partitions=[nova.daily("dt", start="2024-01-01", of="ts")],
                     seal=nova.seal("dt", lateness="15m"))

    Raises:
        DefinitionError: an unreadable lateness, another ``late`` than these.
    """
    found = Sealing(by, lateness, late)
    problems = found.problems()
    if problems:
        raise DefinitionError.of(problems, "a seal")
    return found


@dataclass(frozen=True, slots=True)
class Seal:
    """That a group was complete.

    Args:
        group: the value of the dimension, such as ``2024-01-01``.
        version: counts from 1; a group that was reopened gets the next one.
        state: ``reopened`` when something has come since.
        seq: the channel's number at which it was sealed.
        rows, bytes, files: what it holds, in its final form.
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


@dataclass(frozen=True, slots=True)
class PutSeal:
    """Part of a commit: a group is complete at the number that the commit was pinned to.

    Refused if the group is sealed already, or if something has come to it since.

    Args:
        scope: its partitions.
        version: the one that it gets.
    """

    channel: str
    group: str
    scope: str
    version: int
    seq: int
    rows: int
    bytes: int
    files: int
