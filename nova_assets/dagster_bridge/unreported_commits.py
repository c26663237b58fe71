"""Sensor that reports commits to Dagster that no step has reported (R17).

Such commits are inserts from outside Dagster, and commits whose report was cut off by a crash. Dagster writes the
sensor's events before the tick completes, so a commit counts as published only once Dagster is seen to have its events.
A commit over thousands of partitions is reported in several ticks. The sensor's cursor says how many of its events
earlier ticks have reported. If Dagster loses the cursor, the commit is reported from its first event on, and events
that Dagster has are not repeated.
Each tick also deletes staged files of dead executions and moves the cursors of users' assets whose runs have ended.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from functools import partial

from dagster import (
    AssetCheckEvaluation,
    DagsterInstance,
    DefaultSensorStatus,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
)

from nova_assets.dagster_bridge.asset_checks import build_check_evaluations
from nova_assets.dagster_bridge.asset_consumers import commit_or_abort_consumers
from nova_assets.dagster_bridge.code_locations import (
    channels_not_written_elsewhere,
    claim_channels_for_location,
    code_location_of_sensor,
)
from nova_assets.dagster_bridge.dagster_names import DagsterNames
from nova_assets.dagster_bridge.grouped_triggers import MAX_SECONDS_PER_TICK
from nova_assets.dagster_bridge.materializations import build_commit_events, count_commit_events
from nova_assets.dagster_bridge.partitions import add_partitions_of_blocks
from nova_assets.dagster_bridge.recorded_events import (
    AssetEvent,
    has_channel_event,
    is_event_in_dagster,
)
from nova_assets.dagster_bridge.resources import NovaResource
from nova_assets.dagster_bridge.timeline_metadata import timeline_metadata_by_channel
from nova_assets.model.channel import Channel
from nova_assets.model.commit import Commit
from nova_assets.store.store import Store

LEAVE_TO_RUN = timedelta(seconds=60)
"""Time during which a commit is left to its own run to report."""

IsEventRecorded = Callable[[AssetEvent, Commit], bool]


MAX_EVENTS_OF_COMMIT = 250
"""Number of events of one commit after which a tick goes on with other commits. The next tick reports the rest."""

MAX_EVENTS_PER_TICK = 500
"""Number of events after which a tick leaves the remaining commits to the next tick."""


MAX_BLOCKS_PER_TICK = 40_000
"""Number of blocks after which a tick reads no further commit."""


class TickLimits:
    """Limits of one tick of ``nova_publish``. Dagster cancels a tick after a minute.

    Args:
        cursor: cursor that the previous tick has left. Dagster stores it once it has the events of that tick.
    """

    def __init__(self, cursor: str | None) -> None:
        self._reported: dict[str, list[int]] = json.loads(cursor or "{}")
        self._still_open: dict[str, list[int]] = {}
        self._deadline = time.monotonic() + MAX_SECONDS_PER_TICK
        self._event_count = 0

    @property
    def is_reached(self) -> bool:
        return self._event_count >= MAX_EVENTS_PER_TICK or time.monotonic() > self._deadline

    @property
    def cursor(self) -> str:
        """Commit -> number of its events that Dagster has with the end of this tick, and number of all its events."""
        return json.dumps(self._still_open)

    def first_event(self, commit: Commit, event_count: int) -> int:
        """Number of the commit's first event that no earlier tick has reported."""
        reported, of = self._reported.get(commit.id, [0, event_count])
        return reported if of == event_count else 0  # the definition of the partitions has changed

    def record(self, commit: Commit, reported: int, event_count: int) -> None:
        """Record how many events of a commit are reported, unless these are all of them."""
        if 0 < reported < event_count:
            self._still_open[commit.id] = [reported, event_count]

    def count(self, events: int) -> None:
        self._event_count += events

    def leave(self, commits: Sequence[Commit]) -> None:
        """Keep what is known of commits that this tick does not reach."""
        self._still_open |= {c.id: self._reported[c.id] for c in commits if c.id in self._reported}


def build_unreported_commits_sensor(nova: NovaResource) -> SensorDefinition:
    """Sensor ``nova_publish``: reports missing commits, settles users' assets and deletes dead staging."""

    def on_tick(context: SensorEvaluationContext) -> SensorResult:
        store = nova.store()
        commit_or_abort_consumers(store, context.instance)  # before the sweep, which ends expired leases
        store.runtime.delete_dead_staging()
        limits = TickLimits(context.cursor)
        events = collect_missing_events(
            store,
            context.instance,
            channels=claim_channels_for_location(store, code_location_of_sensor(context)),
            limits=limits,
        )
        why = None if events else "every commit is published"
        return SensorResult(asset_events=events, skip_reason=why, cursor=limits.cursor)

    return SensorDefinition(
        name=nova.names.name("nova_publish"),
        evaluation_fn=on_tick,
        minimum_interval_seconds=10,
        default_status=DefaultSensorStatus.RUNNING,
        description="Reports commits that no run has reported: from outside Dagster, or after a crash.",
    )


def collect_missing_events(
    store: Store,
    instance: DagsterInstance,
    is_recorded: IsEventRecorded | None = None,
    *,
    channels: Collection[str] | None = None,
    limits: TickLimits | None = None,
) -> list[AssetEvent | AssetCheckEvaluation]:
    """Events of commits that Dagster lacks. Commits whose events Dagster has are marked as published in the catalog.

    Args:
        is_recorded: tells whether Dagster has an event of a commit. The default asks the instance.
        channels: report only commits to these channels; by default ``channels_not_written_elsewhere``.
        limits: limits of a tick. Without them, all events are collected.
    """
    events: list[AssetEvent | AssetCheckEvaluation] = []
    is_recorded = is_recorded or partial(is_event_in_dagster, instance)
    channel_filter = channels_not_written_elsewhere(store) if channels is None else frozenset(channels)
    max_blocks = None if limits is None else MAX_BLOCKS_PER_TICK
    unreported = store.catalog.commits.unreported(channels=channel_filter, max_blocks=max_blocks)
    commits = [c for c in unreported if not _is_left_to_its_run(store, c)]
    if not commits:
        return []
    definitions: dict[str, Channel] = {s.channel.name: s.channel for s in store.channels()}
    timeline_metadata = timeline_metadata_by_channel(
        store, {b.channel for c in commits for b in c.blocks} & channel_filter
    )
    names, claims = DagsterNames.of(store), store.catalog.dagster_publishers.all()
    ready, later = (commits, []) if limits is None else _in_order_of_size(commits)
    for n, commit in enumerate(ready):
        if limits is not None and limits.is_reached:
            later += ready[n:]
            break
        event_count = count_commit_events(store, commit, definitions)
        start = 0 if limits is None else limits.first_event(commit, event_count)
        stop = event_count if limits is None else min(start + MAX_EVENTS_OF_COMMIT, event_count)
        if start == 0:
            add_partitions_of_blocks(instance, definitions, commit.blocks, store.project)
        own_events = [
            e
            for e in build_commit_events(store, commit, definitions, timeline_metadata, start, stop)
            if names.channel(e.asset_key) in channel_filter
        ]
        missing = [e for e in own_events if not is_recorded(e, commit)]
        if limits is not None:
            limits.count(len(own_events))
            # The last events are looked for once more: only then the commit counts as published.
            limits.record(commit, start if stop == event_count else stop, event_count)
        other_channels = {b.channel for b in commit.blocks if b.channel in claims} - channel_filter
        other_keys = [DagsterNames.of_publisher(claims[channel][0]).key(channel) for channel in other_channels]
        is_complete = stop == event_count and not missing
        if is_complete and all(has_channel_event(instance, key, commit) for key in other_keys):
            store.catalog.commits.mark_reported(commit.id)
        events += missing
        if missing and start == 0:
            evaluations = build_check_evaluations(commit, names)
            events += [e for e in evaluations if names.channel(e.asset_key) in channel_filter]
    if limits is not None:
        limits.leave(later)
    return events


def _in_order_of_size(commits: Sequence[Commit]) -> tuple[list[Commit], list[Commit]]:
    """Commits that can be reported now, those of many partitions last, so that no other commit waits for them; and
    commits that wait, because an earlier commit on one of their channels needs several ticks.

    Both lists are oldest first. Dagster takes the event that comes last for the newest one of its asset.
    """
    small: list[Commit] = []
    large: list[Commit] = []
    waiting: list[Commit] = []
    busy_channels: set[str] = set()
    for commit in commits:
        channels = {b.channel for b in commit.blocks}
        if channels & busy_channels:
            waiting.append(commit)
        elif len(commit.blocks) > MAX_EVENTS_OF_COMMIT:
            large.append(commit)
        else:
            small.append(commit)
            continue
        busy_channels |= channels
    return [*small, *large], waiting


def _is_left_to_its_run(store: Store, commit: Commit) -> bool:
    by_dagster = store.catalog.executions.get(commit.execution_id).run_id is not None
    return by_dagster and store.catalog.now() - commit.at < LEAVE_TO_RUN
