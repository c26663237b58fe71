"""Inboxes: where a source's files are announced, looked for and fetched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from nova_assets.formats.input_file import File
from nova_assets.model.arrival import Arrival
from nova_assets.nova_error import NovaError


class Gone(NovaError):
    """A file that was announced is not there any more."""

    code = "NOVA-FILE-GONE"


class Changed(NovaError):
    """A file is not the version that was announced."""

    code = "NOVA-FILE-CHANGED"


class Outside(NovaError):
    """A file's path leads out of its source's location."""

    code = "NOVA-FILE-OUTSIDE"


@dataclass(frozen=True, slots=True)
class Notice:
    """An announcement. It comes again until it is acknowledged.

    Args:
        arrivals: the files that it tells of; none where it is about something else.
        receipt: by which the inbox knows it.
    """

    arrivals: tuple[Arrival, ...]
    receipt: Any = None


class Inbox(Protocol):
    """Over one source. Whatever it tells of may have been told before.

    Args:
        is_local: it tells this process alone, as the operating system does; a queue tells whoever asks.
    """

    is_local: bool

    def has_news(self) -> bool:
        """Whether something is announced, as far as that can be told without taking note of it.

        Raises:
            SourceUnavailable: it does not answer.
        """

    def poll(self, limit: int) -> list[Notice]:
        """What has been announced and not acknowledged. Does not wait.

        Raises:
            SourceUnavailable: it does not answer.
        """

    def acknowledge(self, notices: Sequence[Notice]) -> None:
        """These need not come again: what they tell of is committed."""

    def look(self, now: datetime, since: datetime | None) -> Iterator[Arrival]:
        """What is there, announced or not: in the folders of the last hours, where the source says how those are
        called, and of all since the last look; otherwise everywhere.

        Args:
            since: when the last look began; None for the first, which is everywhere.

        Raises:
            SourceUnavailable: it does not answer.
        """

    def fetch(self, arrival: Arrival) -> AbstractContextManager[File]:
        """A file, to be read within the block: exactly the version that was announced.

        Raises:
            Gone, Changed, Outside: it cannot be had.
            SourceUnavailable: the source does not answer.
        """

    def close(self) -> None:
        """Let go of what it holds."""
