"""Follower of timelines: views are loaded on demand and kept current by applying the instants since.

    ask ─► is the view where the asker is, or further? ─► answer
             └ no ─► instants since ─► edit ─► written at once ─► answer

An instant is applied as a whole or not at all, and each answer reads one state. If the storage fails (a full disk),
answers come from memory. Damaged views are loaded again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from nova_assets.catalog.catalog import Catalog
from nova_assets.errors import ChannelNotFound, StorageFailed, TimelineDiffers
from nova_assets.file_views.channel_view import ChannelView
from nova_assets.file_views.storage import BoundedSnapshot, MemoryStorage, ScanLimitExceeded, Storage
from nova_assets.file_views.view_entries import ViewDamaged
from nova_assets.file_views.view_updater import FollowerCounts, ViewUpdater
from nova_assets.masking import get_logger
from nova_assets.model.partitions import WHOLE, single_partition_in_scope
from nova_assets.model.timeline import TimelinePosition

log = get_logger("nova_assets.views")

T = TypeVar("T")

STORAGE_RETRY_SECONDS = 30.0
"""Seconds after which a failed storage is tried again."""

SAVE_INTERVAL = 300.0
"""Seconds between saves of views that are kept in memory."""


class TimelineFollower:
    """Answers from views, and keeps the views current.

    Args:
        catalog: source of truth.
        storage: storage of the views.
        clock: returns monotonic seconds.
    """

    def __init__(self, catalog: Catalog, storage: Storage, clock: Callable[[], float] = time.monotonic) -> None:
        self.catalog = catalog
        self.storage = storage
        self.counts = FollowerCounts()
        self._clock = clock
        self._updater = ViewUpdater(catalog, storage, self.counts, clock)
        self._memory_follower: TimelineFollower | None = None
        self._retry_storage_at = 0.0
        self._last_saved_at = clock()

    def ask(
        self,
        channel: str,
        read_view: Callable[[ChannelView], T],
        scopes: Sequence[str] = (WHOLE,),
        known_position: TimelinePosition | None = None,
        *,
        allow_stale: bool = False,
    ) -> T:
        """Result of ``read_view`` for a view of some scopes, as they are now.

        Args:
            read_view: reads the view. It may be called several times.
            scopes: scopes that must be loaded.
            known_position: the asker's position in the timeline.
            allow_stale: accept a view that is at the asker's position or further without checking for newer instants.

        Raises:
            ChannelNotFound.
            TimelineDiffers: the asker's position belongs to another timeline.
        """
        self.counts.asked += 1
        memory_follower = self._memory_follower
        if memory_follower is not None and self._clock() < self._retry_storage_at:
            return memory_follower.ask(channel, read_view, scopes, known_position, allow_stale=allow_stale)
        try:
            answer = self._answer_from_view(channel, read_view, scopes, known_position, allow_stale)
            self._memory_follower = None
            self._save_if_due()
            return answer
        except ChannelNotFound:
            self._updater.forget_channel(channel)
            raise
        except (StorageFailed, ViewDamaged) as error:
            self.counts.failed += 1
            log.error("views are answered from memory: %s", error)
            self._memory_follower = memory_follower = TimelineFollower(self.catalog, MemoryStorage(), self._clock)
            self._retry_storage_at = self._clock() + STORAGE_RETRY_SECONDS
            return memory_follower.ask(channel, read_view, scopes, known_position, allow_stale=allow_stale)

    def answer_if_current(
        self, channel: str, read_view: Callable[[ChannelView], T], scope: str, known_position: TimelinePosition
    ) -> T | None:
        """Result of ``read_view`` for a view at the asker's position or further. Fast, and never waits.

        Returns:
            None if there is no such view, or if reading it would take long.
        """
        if self._memory_follower is not None:
            return None
        try:
            with self.storage.open_snapshot() as snapshot:
                view = ChannelView.load(BoundedSnapshot(snapshot), channel)
                if view is None or not view.has_reached_position(known_position) or not view.is_scope_loaded(scope):
                    return None
                answer = read_view(view)
        except (ViewDamaged, StorageFailed, ScanLimitExceeded):
            return None
        self.counts.asked += answer is not None
        self.counts.met += answer is not None
        return answer

    def catch_up(self, seconds: float) -> int:
        """Apply all newer instants to the views that exist, within a time limit.

        Views that are loaded later are current from the start. If the storage has failed, there are no views to update.

        Returns:
            Number of views that are still behind.
        """
        deadline, remaining = self._clock() + seconds, 0
        try:
            for channel in self._outdated_channels() if self._memory_follower is None else ():
                if self._clock() > deadline:
                    remaining += 1
                    continue
                try:
                    self._updater.catch_up(channel, (), self._clock())
                except ChannelNotFound:
                    self._updater.forget_channel(channel)
        except (StorageFailed, ViewDamaged) as error:
            log.warning("views could not be updated: %s", error)
        return remaining

    def _outdated_channels(self) -> list[str]:
        """Channels whose views are not at the newest instant."""
        positions = self.catalog.timelines.positions()
        with self.storage.open_snapshot() as snapshot:
            views = {channel: self._updater.load_view(snapshot, channel) for channel in positions}
        return [c for c, view in views.items() if view is not None and view.position != positions[c]]

    def must_load_many_partitions(self, channel: str, scope: str, since: int) -> bool:
        """Whether finding the changes after a number requires loading or scanning many partitions.

        Raises:
            ChannelNotFound.
        """
        try:
            with self.storage.open_snapshot() as snapshot:
                view = self._updater.load_view(snapshot, channel)
                if view is not None:
                    columns = view.header.columns
                    return _may_span_partitions(columns, scope) and (
                        not view.is_scope_loaded(scope) or view.partitions_touched_since(since) is None
                    )
        except (StorageFailed, ViewDamaged):
            return True
        return _may_span_partitions(self.catalog.definitions.channel(channel).channel.partition_columns, scope)

    def mark_collection_complete(self, channel: str, collected_up_to_step: int) -> None:
        """Record that garbage collection is complete for partitions that no later instant touched."""
        try:
            self._updater.write_collected_until(channel, collected_up_to_step)
        except StorageFailed as error:
            log.warning("the next collection looks at the same partitions again: %s", error)

    def _answer_from_view(
        self,
        channel: str,
        read_view: Callable[[ChannelView], T],
        scopes: Sequence[str],
        known_position: TimelinePosition | None,
        allow_stale: bool,
    ) -> T:
        asked_at = self._clock()
        if known_position is not None and allow_stale:
            with self.storage.open_snapshot() as snapshot:
                view = self._updater.load_view(snapshot, channel)
                if (
                    view is not None
                    and view.has_reached_position(known_position)
                    and all(map(view.is_scope_loaded, scopes))
                ):
                    try:
                        answer = read_view(view)
                        self.counts.met += 1
                        return answer
                    except ViewDamaged as error:
                        self._updater.drop_damaged_view(channel, error)
        for attempt in (1, 2):
            absent = self._updater.catch_up(channel, scopes, asked_at)
            with self.storage.open_snapshot() as snapshot:
                view = self._updater.load_view(snapshot, channel)
                if view is None or not all(scope in absent or view.is_scope_loaded(scope) for scope in scopes):
                    continue  # the view was discarded meanwhile
                if known_position is not None and not self._is_earlier_position(view, known_position):
                    raise _timeline_differs_error(channel, known_position, view.position)
                try:
                    return read_view(view)
                except ViewDamaged as error:
                    if attempt == 2:
                        raise
                    self._updater.drop_damaged_view(channel, error)
                    asked_at = self._clock()
        raise StorageFailed(
            f"the view of channel {channel!r} was deleted again while it was loaded", next="nova serve --views FOLDER"
        )

    def _is_earlier_position(self, view: ChannelView, known_position: TimelinePosition) -> bool:
        """Whether a position is part of the view's timeline.

        The catalog decides for positions before the view began.
        """
        if view.has_reached_position(known_position):
            return True
        return (
            known_position.step < view.position.step
            and self.catalog.timelines.steps_without_blocks(view.header.channel, known_position, 0) is not None
        )

    def _save_if_due(self) -> None:
        now = self._clock()
        if now < self._last_saved_at + SAVE_INTERVAL:
            return
        self._last_saved_at = now
        threading.Thread(target=self.save, name="nova-views", daemon=True).start()

    def save(self) -> None:
        """Save the views for the next process."""
        try:
            self.storage.save()
        except StorageFailed as error:
            log.warning("views could not be saved: %s", error)

    def size(self) -> int:
        """Bytes that the views take; 0 if unknown."""
        try:
            return self.storage.size()
        except StorageFailed:
            return 0

    def close(self) -> None:
        """Save the views, and close the storage."""
        self.storage.close()


def _may_span_partitions(columns: Sequence[str], scope: str) -> bool:
    """Whether a scope may contain more than one partition."""
    return bool(columns) and single_partition_in_scope(columns, scope) is None


def _timeline_differs_error(
    channel: str, known_position: TimelinePosition, actual: TimelinePosition
) -> TimelineDiffers:
    return TimelineDiffers(
        f"the timeline of channel {channel!r} was replaced",
        found=f"instant {actual.step}, {actual.prefix[:12] or 'the beginning'}",
        expected=f"a timeline that continues from instant {known_position.step}, "
        f"{known_position.prefix[:12] or 'the beginning'}",
        next="ask again without a position: the earlier answers about this channel no longer hold",
        channel=channel,
    )
