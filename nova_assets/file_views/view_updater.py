"""Updater of views: it loads missing partitions, and applies the instants since (R17).

An instant is applied as a whole or not at all. A round is repeated if another process has written the view meanwhile.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from nova_assets.catalog.catalog import Catalog
from nova_assets.errors import StorageFailed
from nova_assets.file_views.channel_view import ChannelView
from nova_assets.file_views.storage import Storage, StorageSnapshot
from nova_assets.file_views.view_edit import LoadedPartitions, ViewEdit
from nova_assets.file_views.view_entries import HEADER_KEY, ViewDamaged, channel_keyspace
from nova_assets.masking import get_logger
from nova_assets.model.partitions import single_partition_in_scope
from nova_assets.model.timeline import ChannelHead, TimelineStep

log = get_logger("nova_assets.views")

PARTITIONS_PER_LOAD = 200
"""Maximum number of partitions that one transaction loads. It bounds the memory used while a channel is loaded."""

_MAX_FAILED_ROUNDS = 20
"""Maximum number of rounds that may fail because another process wrote meanwhile."""


@dataclass
class FollowerCounts:
    """Counters of a timeline follower since its start.

    Args:
        asked: questions.
        met: questions answered by the view as it was, without asking the catalog.
        applied: applied instants.
        loaded: partitions loaded from the catalog.
        rebuilt: partitions and views that were loaded again, since an instant could not be applied or data was damaged.
        restarted: views restarted, since the timeline was another one or the view was too far behind.
        failed: failures of the storage.
    """

    asked: int = 0
    met: int = 0
    applied: int = 0
    loaded: int = 0
    rebuilt: int = 0
    restarted: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class _RoundResult:
    """Result of one round of catching up.

    Args:
        complete: everything that was requested is loaded.
        absent_scopes: scopes that are single partitions unknown to the catalog.
    """

    complete: bool
    absent_scopes: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _LoadPlan:
    """Partitions that one round loads.

    Args:
        partitions: names of the partitions.
        completed_scopes: scopes that are loaded in full with these partitions, and the head at which they were listed.
        is_last: no further round is needed for the requested scopes.
    """

    partitions: tuple[str, ...]
    completed_scopes: tuple[tuple[str, ChannelHead], ...]
    is_last: bool


class ViewUpdater:
    """Keeps the views of one storage current.

    Args:
        catalog: source of truth.
        storage: storage of the views.
        counts: counters to increment.
        clock: returns monotonic seconds.
    """

    def __init__(self, catalog: Catalog, storage: Storage, counts: FollowerCounts, clock: Callable[[], float]) -> None:
        self._catalog = catalog
        self._storage = storage
        self._counts = counts
        self._clock = clock
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._caught_up_at: dict[str, float] = {}

    def forget_channel(self, channel: str) -> None:
        """Drop the lock of a channel that does not exist."""
        self._locks.pop(channel, None)

    def load_view(self, snapshot: StorageSnapshot, channel: str) -> ChannelView | None:
        """View of a channel; None if nothing of the channel is loaded. A damaged view is dropped."""
        try:
            return ChannelView.load(snapshot, channel)
        except ViewDamaged as error:
            self.drop_damaged_view(channel, error)
            return None

    def drop_damaged_view(self, channel: str, error: Exception) -> None:
        """Delete a damaged view, so that it is loaded again."""
        log.warning("the view of channel %s is damaged, and loaded again: %s: %s", channel, type(error).__name__, error)
        self._counts.rebuilt += 1
        self._storage.write({channel_keyspace(channel): None})

    def catch_up(self, channel: str, scopes: Sequence[str], asked_at: float) -> frozenset[str]:
        """Bring the view to the state of the channel at some time, or later. One thread does it, and the others wait.

        Returns:
            Scopes that are single partitions unknown to the catalog. Asking for such a partition loads nothing.
        """
        with self._locks[channel]:
            with self._storage.open_snapshot() as snapshot:
                view = self.load_view(snapshot, channel)
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
        raise StorageFailed(f"the view of channel {channel!r} is written by another process again and again")

    def write_collected_until(self, channel: str, step: int) -> None:
        """Record in the view that garbage collection is complete up to a step."""
        with self._locks[channel], self._storage.open_snapshot() as snapshot:
            view = self.load_view(snapshot, channel)
            if view is None or view.header.cleaned >= step:
                return
            before = view.header.encode()
            after = replace(view.header, cleaned=step).encode()
            self._storage.write(
                {channel_keyspace(channel): {HEADER_KEY: after}}, (channel_keyspace(channel), HEADER_KEY, before)
            )

    def _run_catch_up_round(self, channel: str, scopes: Sequence[str]) -> _RoundResult | None:
        """One transaction of catching up; None if another process wrote meanwhile."""
        with self._storage.open_snapshot() as snapshot:
            view = self.load_view(snapshot, channel)
            edit, channel_head, result = self._plan_round(snapshot, channel, view, scopes, ())
            if edit.partitions_to_reload:
                log.warning(
                    "partitions of channel %s are loaded again: %s",
                    channel,
                    ", ".join(sorted(edit.partitions_to_reload)),
                )
                self._counts.rebuilt += len(edit.partitions_to_reload)
                edit, channel_head, result = self._plan_round(
                    snapshot, channel, view, scopes, sorted(edit.partitions_to_reload)
                )
            if edit.is_empty:
                return result
            changes, expected = edit.to_changes(channel_head)
        if not self._storage.write(changes, expected):
            return None
        self._counts.applied += edit.applied_count
        return result

    def _plan_round(
        self,
        snapshot: StorageSnapshot,
        channel: str,
        view: ChannelView | None,
        scopes: Sequence[str],
        partitions_to_reload: Sequence[str],
    ) -> tuple[ViewEdit, ChannelHead, _RoundResult]:
        """Changes of one round, the head of the channel to which they lead, and the round's result."""
        edit = ViewEdit(snapshot, channel, view)
        load_plan = self._plan_load(channel, view, scopes)
        is_complete = load_plan.is_last
        partitions_to_load = list(dict.fromkeys((*partitions_to_reload, *load_plan.partitions)))
        loaded = self._load_partitions(channel, partitions_to_load) if partitions_to_load or view is None else None
        unknown_partitions = frozenset(partitions_to_load) - frozenset(loaded.partitions if loaded is not None else ())
        columns = view.header.columns if view is not None else () if loaded is None else loaded.channel_head.columns
        absent_scopes = frozenset(
            scope
            for scope in scopes
            if unknown_partitions and single_partition_in_scope(columns, scope) in unknown_partitions
        )
        if view is None:
            assert loaded is not None
            edit.restart_view(loaded.channel_head)
            edit.put_partitions(loaded)
            for scope, listed_head in load_plan.completed_scopes:
                if listed_head.position == loaded.channel_head.position:
                    edit.add_loaded_scope(scope, listed_head)
                else:
                    is_complete = False
            return edit, loaded.channel_head, _RoundResult(is_complete, absent_scopes)
        channel_head, steps = self._catalog.timelines.steps(channel, view.position)
        if steps is None or not _has_all_numbered_steps(view, channel_head, steps):
            self._counts.restarted += 1
            edit.restart_view(channel_head)
            return edit, channel_head, _RoundResult(False)
        if loaded is not None:
            edit.put_partitions(loaded)
        for scope, listed_head in load_plan.completed_scopes:
            edit.add_loaded_scope(scope, listed_head)
        for step in steps:
            edit.apply_step(step)
        # A partition that was unknown when it was requested may exist by now. The next round then loads it.
        new_partitions = {b.partition for s in steps for b in s.added} & unknown_partitions
        return edit, channel_head, _RoundResult(is_complete and not new_partitions, absent_scopes)

    def _plan_load(self, channel: str, view: ChannelView | None, scopes: Sequence[str]) -> _LoadPlan:
        """Partitions to load in this round, so that the requested scopes are loaded in the end."""
        partitions: list[str] = []
        completed_scopes: list[tuple[str, ChannelHead]] = []
        for scope in scopes:
            if view is not None and view.is_scope_loaded(scope):
                continue
            if (
                view is not None
                and view.header.columns
                and (single_partition := view.header.single_partition(scope)) is not None
            ):
                partitions += [single_partition] if single_partition not in partitions else []
                continue
            channel_head, partition_names = self._catalog.timelines.partition_names(channel, scope)
            single_partition = single_partition_in_scope(channel_head.columns, scope)
            missing = (
                [single_partition]
                if single_partition is not None
                else [n for n in partition_names if view is None or not view.is_partition_loaded(n)]
            )
            partitions += [n for n in missing if n not in partitions]
            if len(partitions) > PARTITIONS_PER_LOAD:
                return _LoadPlan(tuple(partitions[:PARTITIONS_PER_LOAD]), tuple(completed_scopes), False)
            if single_partition is None or not channel_head.columns:
                completed_scopes.append((scope, channel_head))
        return _LoadPlan(tuple(partitions), tuple(completed_scopes), True)

    def _load_partitions(self, channel: str, partitions: Sequence[str]) -> LoadedPartitions:
        channel_head, history = self._catalog.timelines.head_and_full_history(channel, partitions)
        partitions_with_blocks = {b.partition for b in history.blocks} | history.collected_numbers.keys()
        existing = tuple(n for n in partitions if n in partitions_with_blocks or not channel_head.columns)
        self._counts.loaded += len(existing)
        return LoadedPartitions(channel_head, existing, history)


def _has_all_numbered_steps(view: ChannelView, channel_head: ChannelHead, steps: Sequence[TimelineStep]) -> bool:
    """Whether every sequence number has its step.

    A process of an older version, which writes no steps, may have committed.
    """
    number_count = sum(any(b.origin != "compact" for b in s.added) for s in steps)
    return view.header.head + number_count == channel_head.head
