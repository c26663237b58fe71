"""Rows of small channels, on which depends which partitions of other channels a task reads."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from threading import Lock

from nova_assets.catalog.catalog import Catalog
from nova_assets.errors import NotSupported
from nova_assets.execution.input_view import count_rows
from nova_assets.masking import get_logger
from nova_assets.model.engine import Engine
from nova_assets.model.execution import Pin
from nova_assets.model.merge import Append, Multiset, Upsert
from nova_assets.model.partition_rule import FewRows
from nova_assets.plan import modes

MAX_FEW_ROWS = 2_000
"""Rows up to which a channel counts as small. They are read in this process, because a tick has no time for Spark."""

_MAX_VERSIONS = 64
"""Versions of channels whose rows are kept in memory, most recently used."""

log = get_logger("nova_assets.execution")


class FewRowsReader:
    """Reads small channels, each version once."""

    def __init__(self, catalog: Catalog, engine: Engine) -> None:
        self._catalog = catalog
        self._engine = engine
        self._lock = Lock()
        self._rows_by_version: OrderedDict[tuple[str, int], FewRows | None] = OrderedDict()

    def at_pins(self, pins: Iterable[Pin]) -> FewRowsAtHeads:
        """The rows at the heads that an execution has pinned."""
        heads = {pin.channel: pin.head for pin in pins}
        return FewRowsAtHeads(self, lambda: heads)

    def at_newest_heads(self) -> FewRowsAtHeads:
        """The rows at the heads at the time of the first question."""
        return FewRowsAtHeads(self, self._catalog.scheduler.heads)

    def rows_at(self, channel: str, head: int) -> FewRows | None:
        """Rows of a channel at a head; None if they are many, or Python cannot represent a value.

        Raises: whatever prevents the rows from being read.
        """
        version = (channel, head)
        with self._lock:
            rows = self._rows_by_version.pop(version) if version in self._rows_by_version else self._read(channel, head)
            self._rows_by_version[version] = rows
            if len(self._rows_by_version) > _MAX_VERSIONS:
                self._rows_by_version.popitem(last=False)
            return rows

    def _read(self, channel: str, head: int) -> FewRows | None:
        read = modes.snapshot(self._catalog.histories.of(channel, head, back_to=head), head)
        if not isinstance(read.merge, Append | Upsert | Multiset) or count_rows(read) > MAX_FEW_ROWS:
            return None
        with self._engine.computation_scope():
            rows = self._engine.frames.to_arrow(self._engine.reader.fetch(read))
        from nova_assets.formats.python_values import to_python_rows

        try:
            return to_python_rows(rows)
        except NotSupported:
            return None


class FewRowsAtHeads:
    """Function from a channel to its rows at a certain head; None if they are many, or cannot be read now.

    Args:
        load_heads: function that returns the heads of the channels.

    Attributes:
        used: channel whose rows were asked for -> head. For a channel without data, the head is 0.
    """

    def __init__(self, reader: FewRowsReader, load_heads: Callable[[], Mapping[str, int]]) -> None:
        self._reader = reader
        self._load_heads = load_heads
        self._unreadable = set[str]()
        self.used: dict[str, int] = {}

    @cached_property
    def _heads(self) -> Mapping[str, int]:
        return self._load_heads()

    def __call__(self, channel: str) -> FewRows | None:
        head = self.used[channel] = self._heads.get(channel, 0)
        if not head or channel in self._unreadable:
            return None
        try:
            return self._reader.rows_at(channel, head)
        except Exception as error:  # a value that Python lacks, a damaged file: the task that reads the channel tells
            self._unreadable.add(channel)
            log.warning("the rows of channel %s do not limit what tasks read: %s", channel, error)
            return None
