"""Catalog that reads channel histories through views of a service or of this process.

If the views cannot answer, the catalog itself does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

from nova_assets.errors import StorageFailed
from nova_assets.file_views.client import ViewServiceClient
from nova_assets.file_views.query_handler import ViewQueryHandler
from nova_assets.file_views.responses import TimelineProof, decode_history
from nova_assets.file_views.view_entries import ViewDamaged
from nova_assets.model.catalog import Catalog
from nova_assets.model.commit import Commit, CommitRequest
from nova_assets.model.partitions import WHOLE
from nova_assets.model.retention import CollectedGarbage
from nova_assets.model.timeline import History
from nova_assets.nova_error import NovaError


class ViewedCatalog:
    """A catalog that reads the histories of channels through views where possible.

    All other methods behave as in the catalog. An answer is as new as the call: the catalog gives the current position
    of the channel in one row. Commits are checked by the catalog as usual, so views affect only speed, never
    correctness.

    Args:
        source: client of a view service, or handler of this process's own views.
    """

    def __init__(self, catalog: Catalog, source: ViewServiceClient | ViewQueryHandler) -> None:
        self._catalog = catalog
        self._source = source
        self._reported_counts = {"served": 0}

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
        """As ``Catalog.history``. Raises ChannelNotFound, VersionNotFound."""

        def from_catalog() -> History:
            return self._catalog.history(channel, at, scope, since, back_to=back_to)

        # The current position is read first. Whoever retains the requested version pinned it earlier, so it is not
        # collected at that position.
        state = self._catalog.channel(channel)
        number, known_position = state.head if at is None else at, state.position
        if not 0 <= number <= state.head:
            return from_catalog()
        if isinstance(self._source, ViewServiceClient):
            parameters = {"partition": scope, "at": number, "since": since, "back_to": back_to}
            first_number = since or min(back_to or 0, number)

            def decode_answer(text: bytes) -> tuple[TimelineProof, History]:
                proof, answered_history = decode_history(text)
                if (
                    answered_history.channel,
                    answered_history.scope,
                    answered_history.head,
                    answered_history.first_answerable_version,
                ) != (channel, scope, number, first_number):
                    raise ValueError("it answers something else")
                return proof, answered_history

            return self._source.query_or_fall_back(
                channel, "history", parameters, known_position, decode_answer, from_catalog
            )
        return self._history_from_own_views(
            self._source, (channel, scope, number, since or 0, back_to or 0, known_position), from_catalog
        )

    def commit(self, request: CommitRequest) -> Commit:
        """As ``Catalog.commit``.

        The details of the commit include the service's answer counts since the last commit.
        """
        if isinstance(self._source, ViewServiceClient) and (new_counts := self._counts_since_last_call()):
            request = replace(request, details={**request.details, "views": new_counts})
        return self._catalog.commit(request)

    def collect_garbage(
        self, channel: str, retain_seconds: float = 0.0, partitions: Sequence[str] | None = None
    ) -> CollectedGarbage:
        """As ``Catalog.collect_garbage``. A view of this process finds the partitions with blocks to collect."""
        if partitions is None and isinstance(self._source, ViewQueryHandler):
            with suppress(StorageFailed, ViewDamaged):
                return self._source.collect(channel, retain_seconds)
        return self._catalog.collect_garbage(channel, retain_seconds, partitions)

    def close(self) -> None:
        try:
            if isinstance(self._source, ViewServiceClient):
                self._source.close()
            else:
                self._source.follower.close()
        finally:
            self._catalog.close()

    @property
    def views(self) -> ViewServiceClient | ViewQueryHandler:
        return self._source

    def _history_from_own_views(
        self, handler: ViewQueryHandler, arguments: tuple[Any, ...], fallback: Callable[[], History]
    ) -> History:
        try:
            return decode_history(handler.history_answer(*arguments, allow_stale=True))[1]
        except (NovaError, ViewDamaged):
            return fallback()  # the catalog answers or raises the right error

    def _counts_since_last_call(self) -> dict[str, int]:
        """Answer counts since the last call."""
        assert isinstance(self._source, ViewServiceClient)
        current_counts = {"served": self._source.counts.served, **self._source.counts.fell_back}
        new_counts = {
            reason: n - self._reported_counts.get(reason, 0)
            for reason, n in current_counts.items()
            if n != self._reported_counts.get(reason, 0)
        }
        self._reported_counts = current_counts
        return new_counts


def catalog_through_views(catalog: Catalog, source: ViewServiceClient | ViewQueryHandler) -> Catalog:
    """Wrap a catalog so that histories are read through views."""
    return cast(Catalog, ViewedCatalog(catalog, source))
