"""A catalog whose channels are seen through views: those of a service, or of this process; and by itself where they
do not answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

from nova_assets.errors import NovaError
from nova_assets.model.commit import Commit, CommitRequest
from nova_assets.model.partitions import WHOLE
from nova_assets.model.ports import Catalog, ChannelState
from nova_assets.model.timeline import History, Position
from nova_assets.model.upkeep import Collection
from nova_assets.views.answers import history_from
from nova_assets.views.client import Client
from nova_assets.views.desk import Desk


class Served:
    """Everything that a catalog does, but that histories of channels come from views where they can.

    What is asked for is at least as new as what this process knows: whoever has looked at a channel, or has committed
    to it, sees that. Commits are checked by the catalog as ever, so nothing rests on a view but time.
    """

    def __init__(self, catalog: Catalog, source: Client | Desk) -> None:
        self._catalog = catalog
        self._source = source
        self._known: dict[str, tuple[int, Position]] = {}
        self._told = {"served": 0}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    def channel(self, name: str) -> ChannelState:
        state = self._catalog.channel(name)
        self._known[name] = (state.head, state.position)
        return state

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

        head, known = self._known.get(channel, (-1, Position()))
        if at is None or at > head:  # the newest, or newer than what was seen
            state = self.channel(channel)
            head, known = state.head, state.position
        if at is not None and not 0 <= at <= head:
            return from_catalog()
        if isinstance(self._source, Client):
            asked = {"partition": scope, "at": head if at is None else at, "since": since, "back_to": back_to}
            return self._source.ask(channel, "history", asked, known, history_from, from_catalog)
        return self._here(self._source, (channel, scope, at, since or 0, back_to or 0, known), from_catalog)

    def commit(self, request: CommitRequest) -> Commit:
        """As the catalog's; what was asked of the service since the last one is kept beside it."""
        if isinstance(self._source, Client) and (asked := self._since()):
            request = replace(request, details={**request.details, "views": asked})
        return self._catalog.commit(request)

    def collect(self, channel: str, retain: float = 0.0, partitions: Sequence[str] | None = None) -> Collection:
        """As the catalog's; a view of this process tells in which partitions there may be something."""
        if partitions is None and isinstance(self._source, Desk):
            return self._source.collect(channel, retain)
        return self._catalog.collect(channel, retain, partitions)

    def close(self) -> None:
        if isinstance(self._source, Client):
            self._source.close()
        else:
            self._source.follower.close()
        self._catalog.close()

    @property
    def views(self) -> Client | Desk:
        return self._source

    def _here(self, desk: Desk, asked: tuple[Any, ...], otherwise: Callable[[], History]) -> History:
        try:
            return history_from(desk.history(*asked, enough=True))[1]
        except NovaError:
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
