"""Follower of timelines: views are loaded on demand and kept current by applying the instants since.

    ask ─► is the view where the asker is, or further? ─► answer
             └ no ─► instants since ─► edit ─► written at once ─► answer

An instant is applied as a whole or not at all, and each answer reads one state. If the storage fails (a full disk),
answers come from memory. Damaged views are loaded again.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from nova_assets.errors import ChannelNotFound, StorageFailed, TimelineDiffers
from nova_assets.file_views.block_encoding import ViewDamaged
from nova_assets.file_views.channel_view import HEAD, ChannelView, channel_keyspace
from nova_assets.file_views.follower_counts import FollowerCounts, RoundResult
from nova_assets.file_views.storage import BoundedSnapshot, MemoryStorage, ScanLimitExceeded, Storage, StorageSnapshot
from nova_assets.file_views.view_changes import LoadedPartitions, ViewEdit
from nova_assets.masking import get_logger
from nova_assets.model.catalog import Catalog
from nova_assets.model.partitions import WHOLE, single_partition_in_scope
from nova_assets.model.timeline import ChannelHead, TimelinePosition, TimelineStep

log = get_logger("nova_assets.views")

T = TypeVar("T")

PARTITIONS_PER_LOAD = 200
"""Maximum number of partitions that one transaction loads. It bounds the memory used while a channel is loaded."""

STORAGE_RETRY_SECONDS = 30.0
"""Seconds after which a failed storage is tried again."""

SAVE_INTERVAL = 300.0
"""Seconds between saves of views that are kept in memory."""

_MAX_FAILED_ROUNDS = 20
"""Maximum number of rounds that may fail because another process wrote meanwhile."""


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
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._caught_up_at: dict[str, float] = {}
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
            self._locks.pop(channel, None)
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

    def must_load_many_partitions(self, channel: str, scope: str, since: int) -> bool:
        """Whether finding the changes after a number requires loading or scanning many partitions.

        Raises:
            ChannelNotFound.
        """
        try:
            with self.storage.open_snapshot() as snapshot:
                view = self._load_view(snapshot, channel)
                if view is not None:
                    columns = view.head.columns
                    return _may_span_partitions(columns, scope) and (
                        not view.is_scope_loaded(scope) or view.partitions_touched_since(since) is None
                    )
        except (StorageFailed, ViewDamaged):
            return True
        return _may_span_partitions(self.catalog.channel(channel).channel.partition_columns, scope)

    def mark_collected_until(self, channel: str, step: int) -> None:
        """Record that garbage collection is complete for partitions that no later instant touched."""
        try:
            self._write_collected_until(channel, step)
        except StorageFailed as error:
            log.warning("what was collected is looked at again the next time: %s", error)

    def _write_collected_until(self, channel: str, step: int) -> None:
        with self._locks[channel], self.storage.open_snapshot() as snapshot:
            view = self._load_view(snapshot, channel)
            if view is None or view.head.cleaned >= step:
                return
            before = view.head.encode()
            after = replace(view.head, cleaned=step).encode()
            self.storage.write({channel_keyspace(channel): {HEAD: after}}, (channel_keyspace(channel), HEAD, before))

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
                view = self._load_view(snapshot, channel)
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
                        self._drop_damaged_view(channel, error)
        for attempt in (1, 2):
            absent = self._catch_up(channel, scopes, asked_at)
            with self.storage.open_snapshot() as snapshot:
                view = self._load_view(snapshot, channel)
                if view is None or not all(scope in absent or view.is_scope_loaded(scope) for scope in scopes):
                    continue  # the view was discarded meanwhile
                if known_position is not None and not self._is_earlier_position(view, known_position):
                    raise _timeline_differs_error(channel, known_position, view.position)
                try:
                    return read_view(view)
                except ViewDamaged as error:
                    if attempt == 2:
                        raise
                    self._drop_damaged_view(channel, error)
                    asked_at = self._clock()
        raise StorageFailed(f"the view of channel {channel!r} does not stay", next="nova serve --views FOLDER")

    def _is_earlier_position(self, view: ChannelView, known_position: TimelinePosition) -> bool:
        """Whether a position is part of the view's timeline.

        The catalog decides for positions before the view began.
        """
        if view.has_reached_position(known_position):
            return True
        return (
            known_position.step < view.position.step
            and self.catalog.steps_without_blocks(view.head.channel, known_position, 0) is not None
        )

    def _catch_up(self, channel: str, scopes: Sequence[str], asked_at: float) -> frozenset[str]:
        """Bring the view to the state of the channel at some time, or later. One thread does it, and the others wait.

        Returns:
            Scopes that are single partitions unknown to the catalog. Asking for such a partition loads nothing.
        """
        with self._locks[channel]:
            with self.storage.open_snapshot() as snapshot:
                view = self._load_view(snapshot, channel)
                must_load = view is None or not all(map(view.is_scope_loaded, scopes))
            if not must_load and self._caught_up_at.get(channel, float("-inf")) > asked_at:
                return frozenset()
            started_at, failed_rounds = self._clock(), 0
            while failed_rounds < _MAX_FAILED_ROUNDS:
                result = self._run_catch_up_round(channel, scopes)
                if result is not None and result.complete:
                    self._caught_up_at[channel] = started_at
                    return result.absent_scopes
                failed_rounds += result is None
        raise StorageFailed(f"the view of channel {channel!r} is written to by another process again and again")

    def _run_catch_up_round(self, channel: str, scopes: Sequence[str]) -> RoundResult | None:
        """One transaction of catching up; None if another process wrote meanwhile."""
        with self.storage.open_snapshot() as snapshot:
            view = self._load_view(snapshot, channel)
            edit, standing, result = self._plan_round(snapshot, channel, view, scopes, ())
            if edit.partitions_to_reload:
                log.warning(
                    "partitions of channel %s are loaded again: %s",
                    channel,
                    ", ".join(sorted(edit.partitions_to_reload)),
                )
                self.counts.rebuilt += len(edit.partitions_to_reload)
                edit, standing, result = self._plan_round(
                    snapshot, channel, view, scopes, sorted(edit.partitions_to_reload)
                )
            if edit.is_empty:
                return result
            changes, expected = edit.to_changes(standing)
        if not self.storage.write(changes, expected):
            return None
        self.counts.applied += edit.applied_count
        return result

    def _plan_round(
        self,
        snapshot: StorageSnapshot,
        channel: str,
        view: ChannelView | None,
        scopes: Sequence[str],
        partitions_to_reload: Sequence[str],
    ) -> tuple[ViewEdit, ChannelHead, RoundResult]:
        edit = ViewEdit(snapshot, channel, view)
        partitions_to_load, covered, complete = self._find_partitions_to_load(channel, view, scopes)
        partitions_to_load = [*partitions_to_reload, *(n for n in partitions_to_load if n not in partitions_to_reload)]
        loaded = self._load_partitions(channel, partitions_to_load) if partitions_to_load or view is None else None
        unknown_partitions = frozenset(partitions_to_load) - frozenset(loaded.partitions if loaded is not None else ())
        columns = view.head.columns if view is not None else () if loaded is None else loaded.standing.columns
        absent_scopes = frozenset(
            scope
            for scope in scopes
            if unknown_partitions and single_partition_in_scope(columns, scope) in unknown_partitions
        )
        if view is None:
            assert loaded is not None
            edit.restart_view(loaded.standing)
            edit.put_partitions(loaded)
            for scope, standing in covered:
                if standing.position == loaded.standing.position:
                    edit.add_loaded_scope(scope, standing)
                else:
                    complete = False
            return edit, loaded.standing, RoundResult(complete, absent_scopes)
        standing, steps = self.catalog.timeline_steps(channel, view.position)
        if steps is None or not _has_all_numbered_steps(view, standing, steps):
            self.counts.restarted += 1
            edit.restart_view(standing)
            return edit, standing, RoundResult(False)
        if loaded is not None:
            edit.put_partitions(loaded)
        for scope, scope_standing in covered:
            edit.add_loaded_scope(scope, scope_standing)
        for step in steps:
            edit.apply_step(step)
        # A partition that was unknown when it was requested may exist by now. The next round then loads it.
        new_partitions = {b.partition for s in steps for b in s.added} & unknown_partitions
        return edit, standing, RoundResult(complete and not new_partitions, absent_scopes)

    def _find_partitions_to_load(
        self, channel: str, view: ChannelView | None, scopes: Sequence[str]
    ) -> tuple[list[str], list[tuple[str, ChannelHead]], bool]:
        """Partitions to load in this round.

        Returns:
            The partitions, the scopes that are fully loaded with them, and whether no further round is needed.
        """
        partitions: list[str] = []
        covered: list[tuple[str, ChannelHead]] = []
        for scope in scopes:
            if view is not None and view.is_scope_loaded(scope):
                continue
            if (
                view is not None
                and view.head.columns
                and (single_partition := view.head.single_partition(scope)) is not None
            ):
                partitions += [single_partition] if single_partition not in partitions else []
                continue
            standing, partition_names = self.catalog.partition_names(channel, scope)
            single = single_partition_in_scope(standing.columns, scope)
            missing = (
                [single]
                if single is not None
                else [n for n in partition_names if view is None or not view.is_partition_loaded(n)]
            )
            partitions += [n for n in missing if n not in partitions]
            if len(partitions) > PARTITIONS_PER_LOAD:
                return partitions[:PARTITIONS_PER_LOAD], covered, False
            if single is None or not standing.columns:
                covered.append((scope, standing))
        return partitions, covered, True

    def _load_partitions(self, channel: str, partitions: Sequence[str]) -> LoadedPartitions:
        standing, history = self.catalog.head_and_full_history(channel, partitions)
        known_partitions = {b.partition for b in history.blocks} | history.numbers.keys()
        existing = tuple(n for n in partitions if n in known_partitions or not standing.columns)
        self.counts.loaded += len(existing)
        return LoadedPartitions(standing, existing, history)

    def _load_view(self, snapshot: StorageSnapshot, channel: str) -> ChannelView | None:
        try:
            return ChannelView.load(snapshot, channel)
        except ViewDamaged as error:
            self._drop_damaged_view(channel, error)
            return None

    def _drop_damaged_view(self, channel: str, error: Exception) -> None:
        log.warning("the view of channel %s is damaged, and loaded again: %s: %s", channel, type(error).__name__, error)
        self.counts.rebuilt += 1
        self.storage.write({channel_keyspace(channel): None})

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


def _has_all_numbered_steps(view: ChannelView, standing: ChannelHead, steps: Sequence[TimelineStep]) -> bool:
    """Whether every sequence number has its step.

    A process of an older version, which writes no steps, may have committed.
    """
    number_count = sum(any(b.origin != "compact" for b in s.added) for s in steps)
    return view.head.head + number_count == standing.head


def _timeline_differs_error(
    channel: str, known_position: TimelinePosition, actual: TimelinePosition
) -> TimelineDiffers:
    return TimelineDiffers(
        f"the timeline of channel {channel!r} is another one",
        found=f"instant {actual.step}, {actual.prefix[:12] or 'the beginning'}",
        expected=f"one that goes on from instant {known_position.step}, "
        f"{known_position.prefix[:12] or 'the beginning'}",
        next="ask again without a position: what was known of it is void",
        channel=channel,
    )
