"""Following timelines: views that are loaded where they are asked for, and go on by what has happened since.

    ask ─► is the view where the asker is, or further? ─► answer
             └ no ─► instants since ─► edit ─► written at once ─► answer

An instant is applied whole or not at all, and an answer is of one state. What cannot be kept (a full disk) is answered
all the same, from memory; what was damaged is loaded again.
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
from nova_assets.file_views.follower_counts import FollowerCounts, _RoundResult
from nova_assets.file_views.storage import BoundedSnapshot, MemoryStorage, ScanLimitExceeded, Storage, StorageSnapshot
from nova_assets.file_views.view_changes import LoadedPartitions, ViewEdit
from nova_assets.masking import get_logger
from nova_assets.model.catalog import Catalog
from nova_assets.model.partitions import WHOLE, single_partition_in_scope
from nova_assets.model.timeline import ChannelHead, TimelinePosition, TimelineStep

log = get_logger("nova_assets.views")

T = TypeVar("T")

PARTITIONS_PER_LOAD = 200
"""Partitions that are loaded by one transaction: what is in memory of a channel while it is loaded."""

STORAGE_RETRY_SECONDS = 30.0
"""Seconds after which a storage that failed is tried again."""

SAVE_INTERVAL = 300.0
"""Seconds after which what is kept in memory is saved once more."""

_MAX_FAILED_ROUNDS = 20
"""So often what was found out may be in vain, since another process has written meanwhile."""


class TimelineFollower:
    """Answers from views, and keeps them current.

    Args:
        catalog: the truth.
        storage: where the views are kept.
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
        """What ``read_view`` makes of a view of these scopes, as they are now.

        Args:
            read_view: reads the view, and may be called again.
            known_position: what the asker knows of the timeline.
            allow_stale: a view that is where the asker is, or further, need not be looked after: more may have
                happened.

        Raises:
            ChannelNotFound.
            TimelineDiffers: what the asker knows is not of the channel's timeline.
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
        """What ``read_view`` makes of a view that is where the asker is, or further; None where there is none, or it
        is much that would have to be looked at. Takes little time, and waits for nothing."""
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
        """Whether many partitions would have to be loaded, or looked through, to tell what changed after a number.

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
        """Of partitions that no later instant has touched, nothing is left to be collected."""
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
                    continue  # forgotten meanwhile
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
        """Whether what an asker knows is part of what the view knows: it may have begun before the view did."""
        if view.has_reached_position(known_position):
            return True
        return (
            known_position.step < view.position.step
            and self.catalog.steps_without_blocks(view.head.channel, known_position, 0) is not None
        )

    def _catch_up(self, channel: str, scopes: Sequence[str], asked_at: float) -> frozenset[str]:
        """Make the view what the channel was at a moment, or later. One thread does, the others wait for it.

        Gives those of the scopes that are partitions of which nothing is known: none is loaded for being asked for.
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

    def _run_catch_up_round(self, channel: str, scopes: Sequence[str]) -> _RoundResult | None:
        """One transaction's worth of it; None where it came to nothing."""
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
    ) -> tuple[ViewEdit, ChannelHead, _RoundResult]:
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
            return edit, loaded.standing, _RoundResult(complete, absent_scopes)
        standing, steps = self.catalog.timeline_steps(channel, view.position)
        if steps is None or not _has_all_numbered_steps(view, standing, steps):
            self.counts.restarted += 1
            edit.restart_view(standing)
            return edit, standing, _RoundResult(False)
        if loaded is not None:
            edit.put_partitions(loaded)
        for scope, scope_standing in covered:
            edit.add_loaded_scope(scope, scope_standing)
        for step in steps:
            edit.apply_step(step)
        # What was not there when it was asked for may be by now: then it is loaded by the next round.
        new_partitions = {b.partition for s in steps for b in s.added} & unknown_partitions
        return edit, standing, _RoundResult(complete and not new_partitions, absent_scopes)

    def _find_partitions_to_load(
        self, channel: str, view: ChannelView | None, scopes: Sequence[str]
    ) -> tuple[list[str], list[tuple[str, ChannelHead]], bool]:
        """What is to be loaded now; scopes that are covered then; and whether that is all."""
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
        standing, history = self.catalog.bootstrap(channel, partitions)
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
        """Have the next process find what is kept here."""
        try:
            self.storage.save()
        except StorageFailed as error:
            log.warning("views could not be saved: %s", error)

    def size(self) -> int:
        """How many bytes the views take; 0 where that cannot be told."""
        try:
            return self.storage.size()
        except StorageFailed:
            return 0

    def close(self) -> None:
        """Save the views, and let go."""
        self.storage.close()


def _may_span_partitions(columns: Sequence[str], scope: str) -> bool:
    """Whether a scope may be more than one partition."""
    return bool(columns) and single_partition_in_scope(columns, scope) is None


def _has_all_numbered_steps(view: ChannelView, standing: ChannelHead, steps: Sequence[TimelineStep]) -> bool:
    """Whether each number that was taken has its instant: a process of a version that knows no instants may have
    written beside this one."""
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
