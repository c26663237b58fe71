"""Which files? For code of one's own that reads them: in tasks, in Spark's workers, in other programs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nova_assets.file_views.block_encoding import loads
from nova_assets.file_views.client import Client, Counts
from nova_assets.file_views.query_handler import Desk
from nova_assets.file_views.responses import Known, known_from
from nova_assets.file_views.storage import InMemory
from nova_assets.file_views.timeline_follower import Follower
from nova_assets.model.catalog import Catalog
from nova_assets.model.partitions import WHOLE
from nova_assets.model.timeline import Position


@dataclass(frozen=True, slots=True)
class FileView:
    """A file of a channel, as one of its partitions lists it.

    Args:
        path: where it is.
        block: the id of its block.
        kind, lo, hi: of its block: a base, or a delta from one number to another.
    """

    path: str
    rows: int
    bytes: int
    partition: str
    format: str
    block: str
    kind: str
    lo: int
    hi: int


@dataclass(frozen=True, slots=True)
class Pinned:
    """What is known of a channel: where it stands, and how far its timeline goes."""

    head: int
    position: Position = field(default_factory=Position)


class Views:
    """Answers which files a partition has, at the numbers that are pinned; goes along into other processes.

    A service is asked where there is one. Where it does not answer, or wrongly, the partition's own view is made from
    the catalog, here: no job fails for it, ``counts`` tells of it, and the service is asked again a little later.

    Args:
        warehouse: the address below which files lie.
        opener: opens the catalog, in whatever process this is; it has to go along.
        client: of a service; None where there is none.
        pins: channel -> what is known of it; files are those at its head.
    """

    def __init__(
        self,
        warehouse: str,
        opener: Callable[[], Catalog],
        client: Client | None = None,
        pins: Mapping[str, Pinned] | None = None,
    ) -> None:
        self.warehouse = warehouse
        self._opener = opener
        self._client = client
        self._pins = dict(pins or {})
        self._lock = threading.Lock()
        self._here: Desk | None = None
        self._is_sent = False
        self._alone = Counts()

    def __getstate__(self) -> dict[str, Any]:
        of = {"warehouse": self.warehouse, "opener": self._opener, "client": self._client, "pins": self._pins}
        return of

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]
        self._is_sent = True

    @property
    def counts(self) -> Counts:
        """How questions were answered in this process."""
        return self._alone if self._client is None else self._client.counts

    def files(self, channel: str, partition: str = WHOLE, at: int | None = None) -> list[FileView]:
        """The files of a snapshot: of each partition the newest base, and the deltas that lead on, in their order.

        Args:
            partition: its name, as a block has it; ``""`` for all of the channel.
            at: the version; the one that is pinned by default.

        Raises:
            ChannelNotFound: no such channel.
            VersionNotFound: it has no such number.
            BlockCollected: that version is gone (R15).
        """
        pin = self._pin(channel)
        number = pin.head if at is None else at

        def understood(text: bytes) -> tuple[Known, list[FileView]]:
            said = loads(text)
            same = set(said["partition"].split("/")) == set(partition.split("/"))
            if said["at"] != number or said["channel"] != channel or not same:
                raise ValueError("it answers something else")
            return known_from(said), [v for b in said["blocks"] for v in self._viewed(b)]

        def here() -> list[FileView]:
            desk = self._desk()
            self._renew(channel, desk.catalog)
            return understood(desk.files(channel, partition, number, None))[1]

        if self._client is None:
            self._alone.fall_back("no service")
            return here()
        asked = {"partition": partition, "at": number}
        return self._client.ask(channel, "files", asked, pin.position, understood, here)

    def _viewed(self, said: Mapping[str, Any]) -> list[FileView]:
        b = said["block"]
        of = (b["partition"], b["format"], b["id"], b["kind"], b["lo"], b["hi"])
        return [FileView(self._address(f["path"]), f["rows"], f["bytes"], *of) for f in said["files"]]

    def _address(self, path: str) -> str:
        return path if "://" in path or path.startswith("/") else f"{self.warehouse.rstrip('/')}/{path}"

    def _pin(self, channel: str) -> Pinned:
        with self._lock:
            if channel not in self._pins:
                standing = self._desk_held().catalog.standing(channel)
                self._pins[channel] = Pinned(standing.head, standing.position)
            return self._pins[channel]

    def _renew(self, channel: str, catalog: Catalog) -> None:
        """What is known of a timeline may be too old for a service to tell the way from there; it is made new."""
        pin, standing = self._pins[channel], catalog.standing(channel)
        if catalog.passed(channel, pin.position, 0) is not None:
            self._pins[channel] = Pinned(pin.head, standing.position)

    def close(self) -> None:
        """Let go of connections of its own: of that to the catalog, where it was asked; and in another process than the
        store's, of those to the service."""
        with self._lock:
            if self._client is not None and self._is_sent:
                self._client.close()
            if self._here is not None:
                self._here.catalog.close()
                self._here = None

    def _desk(self) -> Desk:
        with self._lock:
            return self._desk_held()

    def _desk_held(self) -> Desk:
        if self._here is None:
            self._here = Desk(Follower(self._opener(), InMemory()))
        return self._here
