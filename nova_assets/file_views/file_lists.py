"""File lists for user code: the files of a channel, for tasks, Spark workers and other programs that read files."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nova_assets.catalog.catalog import Catalog
from nova_assets.file_views.client import ClientCounts, ViewServiceClient
from nova_assets.file_views.query_handler import ViewQueryHandler
from nova_assets.file_views.responses import TimelineProof, decode_proof
from nova_assets.file_views.storage import MemoryStorage
from nova_assets.file_views.timeline_follower import TimelineFollower
from nova_assets.file_views.view_entries import decode_json
from nova_assets.model.partitions import WHOLE
from nova_assets.model.timeline import TimelinePosition


@dataclass(frozen=True, slots=True)
class FileView:
    """A file of a channel, in the file list of one partition.

    Args:
        path: full address of the file.
        rows: number of rows.
        bytes: size of the file in bytes.
        partition: partition of the rows.
        format: file format.
        block: id of the block.
        kind, lo, hi: kind and sequence numbers of the block: a base at ``hi``, or a delta from ``lo`` to ``hi``.
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
    """Pinned version of a channel: its head and its timeline position at the time of the pin."""

    head: int
    position: TimelinePosition = field(default_factory=TimelinePosition)


class Views:
    """Lists the files of channels at pinned versions. Can be pickled and sent to other processes.

    If a view service is configured, the file lists come from the service. If the service fails or gives a wrong answer,
    this process builds the view of the partition from the catalog. So no job fails because of the service. ``counts``
    reports such cases. A little later, this process asks the service again.

    Args:
        warehouse: address of the warehouse. The catalog stores file paths relative to this address.
        opener: function that opens the catalog in the current process. The function must be picklable.
        client: client of the view service. None if no service is configured.
        pins: channel -> pinned version. The files of a channel are listed as of this version.
    """

    def __init__(
        self,
        warehouse: str,
        opener: Callable[[], Catalog],
        client: ViewServiceClient | None = None,
        pins: Mapping[str, Pinned] | None = None,
    ) -> None:
        self.warehouse = warehouse
        self._opener = opener
        self._client = client
        self._pins = dict(pins or {})
        self._lock = threading.Lock()
        self._local_handler: ViewQueryHandler | None = None
        self._is_unpickled = False
        self._local_counts = ClientCounts()

    def __getstate__(self) -> dict[str, Any]:
        state = {"warehouse": self.warehouse, "opener": self._opener, "client": self._client, "pins": self._pins}
        return state

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]
        self._is_unpickled = True

    @property
    def counts(self) -> ClientCounts:
        """Number of questions answered by the service, and from the catalog, in this process."""
        return self._local_counts if self._client is None else self._client.counts

    def files(self, channel: str, partition: str = WHOLE, at: int | None = None) -> list[FileView]:
        """Files of a snapshot. For each partition, these are the files of the newest base and of the deltas after this
        base, in order.

        Args:
            partition: name of a partition, such as ``"dt=2024-01-01"``. By default, the whole channel (``""``).
            at: sequence number of the snapshot. By default, the pinned head.

        Raises:
            ChannelNotFound: no such channel.
            VersionNotFound: the channel has no such number.
            BlockCollected: blocks of that version were collected (R15).
        """
        pin = self._pinned_channel(channel)
        number = pin.head if at is None else at

        def decode_answer(text: bytes) -> tuple[TimelineProof, list[FileView]]:
            answer = decode_json(text)
            is_same_partition = set(answer["partition"].split("/")) == set(partition.split("/"))
            if answer["at"] != number or answer["channel"] != channel or not is_same_partition:
                raise ValueError("it answers something else")
            return decode_proof(answer), [v for b in answer["blocks"] for v in self._files_of_block(b)]

        def list_from_catalog() -> list[FileView]:
            handler = self._handler()
            self._refresh_pinned_position(channel, handler.catalog)
            return decode_answer(handler.files_answer(channel, partition, number, None))[1]

        if self._client is None:
            self._local_counts.count_fallback("no service")
            return list_from_catalog()
        parameters = {"partition": partition, "at": number}
        return self._client.query_or_fall_back(
            channel, "files", parameters, pin.position, decode_answer, list_from_catalog
        )

    def _files_of_block(self, encoded_block: Mapping[str, Any]) -> list[FileView]:
        header = encoded_block["block"]
        block_fields = (header["partition"], header["format"], header["id"], header["kind"], header["lo"], header["hi"])
        return [
            FileView(self._file_address(f["path"]), f["rows"], f["bytes"], *block_fields)
            for f in encoded_block["files"]
        ]

    def _file_address(self, path: str) -> str:
        return path if "://" in path or path.startswith("/") else f"{self.warehouse.rstrip('/')}/{path}"

    def _pinned_channel(self, channel: str) -> Pinned:
        with self._lock:
            if channel not in self._pins:
                channel_standing = self._local_handler_opened_once().catalog.timelines.head(channel)
                self._pins[channel] = Pinned(channel_standing.head, channel_standing.position)
            return self._pins[channel]

    def _refresh_pinned_position(self, channel: str, catalog: Catalog) -> None:
        """Update the pinned timeline position. From a position that is too old, a service cannot prove its answers."""
        pin, channel_standing = self._pins[channel], catalog.timelines.head(channel)
        if catalog.timelines.steps_without_blocks(channel, pin.position, 0) is not None:
            self._pins[channel] = Pinned(pin.head, channel_standing.position)

    def close(self) -> None:
        """Close the catalog, if this object has opened the catalog. After unpickling, also close the connections to the
        service.
        """
        with self._lock:
            if self._client is not None and self._is_unpickled:
                self._client.close()
            if self._local_handler is not None:
                self._local_handler.catalog.close()
                self._local_handler = None

    def _handler(self) -> ViewQueryHandler:
        with self._lock:
            return self._local_handler_opened_once()

    def _local_handler_opened_once(self) -> ViewQueryHandler:
        if self._local_handler is None:
            self._local_handler = ViewQueryHandler(TimelineFollower(self._opener(), MemoryStorage()))
        return self._local_handler
