"""Rows of small channels, on which depends which partitions of other channels a task reads."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from threading import Lock

from nova_assets.execution.input_view import count_rows
from nova_assets.masking import get_logger
from nova_assets.model.catalog import Catalog
from nova_assets.model.engine import Engine
from nova_assets.model.merge import Append, Multiset, Upsert
from nova_assets.model.partition_rule import FewRows
from nova_assets.nova_error import NovaError
from nova_assets.plan import modes

MAX_FEW_ROWS = 10_000

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

    def lookup(self, head_by_channel: Mapping[str, int]) -> Callable[[str], FewRows | None]:
        """Function from a channel to its rows at the given head; None if they are many, or cannot be read."""
        return lambda channel: self._rows_at(channel, head_by_channel.get(channel, 0))

    def _rows_at(self, channel: str, head: int) -> FewRows | None:
        if not head:
            return None
        with self._lock:
            version = (channel, head)
            rows = self._rows_by_version.pop(version) if version in self._rows_by_version else self._read(channel, head)
            self._rows_by_version[version] = rows
            if len(self._rows_by_version) > _MAX_VERSIONS:
                self._rows_by_version.popitem(last=False)
            return rows

    def _read(self, channel: str, head: int) -> FewRows | None:
        try:
            read = modes.snapshot(self._catalog.history(channel, head, back_to=head), head)
            if not isinstance(read.merge, Append | Upsert | Multiset) or count_rows(read) > MAX_FEW_ROWS:
                return None
            with self._engine.computation_scope():
                return self._engine.to_arrow(self._engine.fetch(read)).to_pylist()  # type: ignore[no-any-return]
        except NovaError as error:  # the task that reads the channel reports it
            log.warning("the rows of channel %s do not limit what tasks read: %s", channel, error)
            return None
