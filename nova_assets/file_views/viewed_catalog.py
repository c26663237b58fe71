"""Catalog that reads channel histories through views of a service or of this process.

If the views cannot answer, the catalog itself does. Commits are checked by the catalog as usual, so views affect only
speed, never correctness.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

from nova_assets.catalog.catalog import Catalog
from nova_assets.errors import StorageFailed
from nova_assets.file_views.client import ViewServiceClient
from nova_assets.file_views.query_handler import ViewQueryHandler
from nova_assets.file_views.responses import TimelineProof, decode_history
from nova_assets.file_views.view_entries import ViewDamaged
from nova_assets.model.channel_state import CollectedGarbage
from nova_assets.model.commit import Commit, CommitRequest
from nova_assets.model.partitions import WHOLE
from nova_assets.model.timeline import History
from nova_assets.nova_error import NovaError


def catalog_through_views(catalog: Catalog, source: ViewServiceClient | ViewQueryHandler) -> Catalog:
    """The catalog, with histories that are read through views.

    Args:
        source: client of a view service, or handler of this process's own views. It is closed with the catalog.
    """
    if isinstance(source, ViewServiceClient):
        parts: dict[str, Any] = {"commits": _CommitsWithAnswerCounts(catalog, source)}
    else:
        parts = {"garbage": _GarbageOfViews(catalog, source)}
    return replace(catalog, views=source, histories=cast(Any, _ViewedHistories(catalog, source)), **parts)


class _ViewedHistories:
    """Histories through views. An answer is as new as the call: the catalog gives the current position of the channel
    in one row.
    """

    def __init__(self, catalog: Catalog, source: ViewServiceClient | ViewQueryHandler) -> None:
        self._catalog = catalog
        self._source = source

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog.histories, name)

    def of(
        self,
        channel: str,
        at: int | None = None,
        scope: str = WHOLE,
        since: int | None = None,
        *,
        back_to: int | None = None,
    ) -> History:
        """As ``Histories.of``. Raises ChannelNotFound, VersionNotFound."""

        def from_catalog() -> History:
            return self._catalog.histories.of(channel, at, scope, since, back_to=back_to)

        # A view answers of another moment than the transaction, and waits for connections that it may have to give.
        if self._catalog.database.is_reading_together:
            return from_catalog()
        # The current position is read first. Whoever retains the requested version pinned it earlier, so it is not
        # collected at that position.
        state = self._catalog.definitions.channel(channel)
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

    def _history_from_own_views(
        self, handler: ViewQueryHandler, arguments: tuple[Any, ...], fallback: Callable[[], History]
    ) -> History:
        try:
            return decode_history(handler.history_answer(*arguments, allow_stale=True))[1]
        except (NovaError, ViewDamaged):
            return fallback()  # the catalog answers or raises the right error


class _CommitsWithAnswerCounts:
    """Commits whose details say how often the service of views has answered."""

    def __init__(self, catalog: Catalog, source: ViewServiceClient) -> None:
        self._catalog = catalog
        self._source = source
        self._reported_counts = {"served": 0}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog.commits, name)

    def commit(self, request: CommitRequest) -> Commit:
        """As ``Commits.commit``.

        The details of the commit include the service's answer counts since the last commit.
        """
        if new_counts := self._counts_since_last_call():
            request = replace(request, details={**request.details, "views": new_counts})
        return self._catalog.commits.commit(request)

    def _counts_since_last_call(self) -> dict[str, int]:
        """Answer counts since the last call."""
        current_counts = {"served": self._source.counts.served, **self._source.counts.fell_back}
        new_counts = {
            reason: n - self._reported_counts.get(reason, 0)
            for reason, n in current_counts.items()
            if n != self._reported_counts.get(reason, 0)
        }
        self._reported_counts = current_counts
        return new_counts


class _GarbageOfViews:
    """Garbage collection that asks the views of this process."""

    def __init__(self, catalog: Catalog, source: ViewQueryHandler) -> None:
        self._catalog = catalog
        self._source = source

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog.garbage, name)

    def collect(
        self, channel: str, retain_seconds: float = 0.0, partitions: Sequence[str] | None = None
    ) -> CollectedGarbage:
        """As ``GarbageCollection.collect``. A view of this process finds the partitions with blocks to collect."""
        if partitions is None:
            with suppress(StorageFailed, ViewDamaged):
                return self._source.collect(channel, retain_seconds)
        return self._catalog.garbage.collect(channel, retain_seconds, partitions)
