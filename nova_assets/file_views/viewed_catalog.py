"""A catalog whose channels are seen through views: those of a service, or of this process; and by itself where they
do not answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

from nova_assets.errors import NovaError, StorageFailed
from nova_assets.file_views.block_encoding import Damaged
from nova_assets.file_views.client import Client
from nova_assets.file_views.query_handler import Desk
from nova_assets.file_views.responses import Known, history_from
from nova_assets.model.catalog import Catalog
from nova_assets.model.commit import Commit, CommitRequest
from nova_assets.model.maintenance import Collection
from nova_assets.model.partitions import WHOLE
from nova_assets.model.timeline import History


class Served:
    """Everything that a catalog does, but that histories of channels come from views where they can.

    What is answered is as new as the moment when it was asked for: where the channel is then is one look at its row.
    Commits are checked by the catalog as ever, so nothing rests on a view but time.
    """

    def __init__(self, catalog: Catalog, source: Client | Desk) -> None:
        self._catalog = catalog
        self._source = source
        self._told = {"served": 0}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    def history(
        self,
        channel: str,
        at: int | None = None,
        scope: str = WHOLE,
        since: int | None = None,
        *,
        back_to: int | None = None,
    ) -> History:
        """As the catalog's; Raises ChannelNotFound, VersionNotFound."""

        def from_catalog() -> History:
            return self._catalog.history(channel, at, scope, since, back_to=back_to)

        # Where the channel is now: whatever holds what is asked for began before, so nothing of it is gone there.
        state = self._catalog.channel(channel)
        number, known = state.head if at is None else at, state.position
        if not 0 <= number <= state.head:
            return from_catalog()
        if isinstance(self._source, Client):
            asked = {"partition": scope, "at": number, "since": since, "back_to": back_to}
            from_ = since or min(back_to or 0, number)

            def understood(text: bytes) -> tuple[Known, History]:
                said, found = history_from(text)
                if (found.channel, found.scope, found.head, found.since) != (channel, scope, number, from_):
                    raise ValueError("it answers something else")
                return said, found

            return self._source.ask(channel, "history", asked, known, understood, from_catalog)
        return self._here(self._source, (channel, scope, number, since or 0, back_to or 0, known), from_catalog)

    def commit(self, request: CommitRequest) -> Commit:
        """As the catalog's; what was asked of the service since the last one is kept beside it."""
        if isinstance(self._source, Client) and (asked := self._since()):
            request = replace(request, details={**request.details, "views": asked})
        return self._catalog.commit(request)

    def collect(self, channel: str, retain: float = 0.0, partitions: Sequence[str] | None = None) -> Collection:
        """As the catalog's; a view of this process tells in which partitions there may be something."""
        if partitions is None and isinstance(self._source, Desk):
            with suppress(StorageFailed, Damaged):
                return self._source.collect(channel, retain)
        return self._catalog.collect(channel, retain, partitions)

    def close(self) -> None:
        try:
            if isinstance(self._source, Client):
                self._source.close()
            else:
                self._source.follower.close()
        finally:
            self._catalog.close()

    @property
    def views(self) -> Client | Desk:
        return self._source

    def _here(self, desk: Desk, asked: tuple[Any, ...], otherwise: Callable[[], History]) -> History:
        try:
            return history_from(desk.history(*asked, enough=True))[1]
        except (NovaError, Damaged):
            return otherwise()  # it says what there is to say

    def _since(self) -> dict[str, int]:
        """What has been counted since this was asked last."""
        assert isinstance(self._source, Client)
        now = {"served": self._source.counts.served, **self._source.counts.fell_back}
        found = {reason: n - self._told.get(reason, 0) for reason, n in now.items() if n != self._told.get(reason, 0)}
        self._told = now
        return found


def served(catalog: Catalog, source: Client | Desk) -> Catalog:
    """A catalog that is seen through views."""
    return cast(Catalog, Served(catalog, source))
