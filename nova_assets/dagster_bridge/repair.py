"""Repair of Dagster's records: unreported commits, events of unknown commits, and firings without a run.

Dagster's materializations are a projection that can be rebuilt (R17). Missing events are reported again. If Dagster has
events of commits that the catalog lacks, all events of the asset are wiped and reported anew.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dagster import AssetCheckEvaluation, AssetMaterialization, AssetObservation, DagsterInstance, RunsFilter
from dagster._core.storage.tags import RUN_KEY_TAG

from nova_assets.crash_points import crash_point
from nova_assets.dagster_bridge.asset_consumers import commit_or_abort_consumers
from nova_assets.dagster_bridge.code_locations import channels_not_written_elsewhere
from nova_assets.dagster_bridge.dagster_names import DagsterNames
from nova_assets.dagster_bridge.ops import FIRING_TAG
from nova_assets.dagster_bridge.recorded_events import AssetEvent, commit_id_of_event, iterate_commit_events
from nova_assets.dagster_bridge.unreported_commits import collect_missing_events
from nova_assets.errors import NotSupported
from nova_assets.model.damage import Damage, DamageReport, RepairOutcome
from nova_assets.plan.repair import dagster_mismatch_damage, unreported_commit_damage, waiting_firing_damage
from nova_assets.store.repair import ProgressCallback
from nova_assets.store.store import Store

EventKey = tuple[str, str, str | None]
"""Asset key, commit id and Dagster partition key, which identify an event."""

_UNLIMITED = 1_000_000
_PROGRESS_INTERVAL = 5000


class DagsterRepair:
    """Finds and repairs differences between Dagster's records and the catalog, for a project's channels.

    Args:
        on_progress: callback for progress messages.
    """

    def __init__(
        self, store: Store, instance: DagsterInstance, on_progress: ProgressCallback = lambda text: None
    ) -> None:
        self.store = store
        self.catalog = store.catalog
        self.instance = instance
        self.on_progress = on_progress

    def find_damages(self) -> DamageReport:
        """Find all damage on Dagster's side. Changes nothing."""
        own = channels_not_written_elsewhere(self.store)
        damages_and_event_counts = [
            self._compare_with_catalog(c.name) for c in self.store.project.channels if c.name in own
        ]
        damages = [
            *unreported_commit_damage(self.catalog.commits.unreported(_UNLIMITED, own), self.catalog.now()),
            *(damage for found, _ in damages_and_event_counts for damage in found),
            *self._find_firings_without_run(),
        ]
        return DamageReport(tuple(damages), {"events": sum(events for _, events in damages_and_event_counts)})

    def _compare_with_catalog(self, channel: str) -> tuple[list[Damage], int]:
        """Differences between Dagster and the catalog for a channel, and the number of events compared.

        The catalog is read before and after Dagster's events. A commit or report in between is not damage.
        """
        before = self.catalog.repairs.reported_by_commit(channel)
        events = self._recorded_event_keys(channel)
        commits = {
            c: heard and before.get(c, False) for c, heard in self.catalog.repairs.reported_by_commit(channel).items()
        }
        return dagster_mismatch_damage(channel, frozenset(e[1] for e in events), commits), len(events)

    def settle_consumers(self) -> None:
        """Settle users' assets whose runs have ended. Call this before a sweep, which ends their pins."""
        commit_or_abort_consumers(self.store, self.instance)

    def repair_damages(self, damages: Iterable[Damage]) -> list[RepairOutcome]:
        """Report missing events to Dagster, after wiping the events of channels that need a rebuild.

        Returns:
            Outcome of each damage with the cure ``publish`` or ``rebuild``.
        """
        repairable = [d for d in damages if d.cure in ("publish", "rebuild")]
        for channel in dict.fromkeys(d.subject for d in repairable if d.cure == "rebuild"):
            if self._compare_with_catalog(channel)[0]:  # the damage still exists
                self._wipe_asset_events(channel)
        if repairable:
            self._report_missing_events()
        remaining = {(d.kind, d.subject) for d in self.find_damages().damages if d.wrong} if repairable else set()
        return [RepairOutcome(d, (d.kind, d.subject) not in remaining) for d in repairable]

    def _recorded_event_keys(self, channel: str) -> set[EventKey]:
        """Keys of all events that Dagster has of the channel, whichever catalog the commits belong to."""
        event_keys: set[EventKey] = set()
        for n, event in enumerate(
            iterate_commit_events(
                self.instance, DagsterNames.of(self.store).key(channel), (AssetMaterialization, AssetObservation)
            )
        ):
            if n and n % _PROGRESS_INTERVAL == 0:
                self.on_progress(f"{channel}: {n} events of Dagster checked")
            event_keys.add(_event_key(event))
        return event_keys

    def _find_firings_without_run(self) -> Iterator[Damage]:
        for binding in self.store.project.bindings:
            for partition in sorted(self.catalog.firings.partitions_with_open_firing(binding.name)):
                firing = self.catalog.firings.last(binding.name, partition)
                if firing is None or firing.state != "requested":
                    continue
                run_filter = RunsFilter(tags={FIRING_TAG: firing.id, RUN_KEY_TAG: firing.run_key})
                damage = waiting_firing_damage(firing, self.catalog.now())
                if damage is not None and not self.instance.get_run_records(run_filter, limit=1):
                    yield damage

    def _wipe_asset_events(self, channel: str) -> None:
        """Wipe all events of a channel's asset in Dagster and mark its commits as unpublished.

        The commits are unmarked before the wipe, so that a crash in between loses nothing. They are unmarked again
        after the wipe, because the sensor ``nova_publish`` may have seen events that were about to be wiped.
        """
        self.catalog.repairs.mark_channel_unreported(channel)
        crash_point("repair.unmarked")
        self.instance.wipe_assets([DagsterNames.of(self.store).key(channel)])
        crash_point("repair.wiped")
        self.catalog.repairs.mark_channel_unreported(channel)

    def _report_missing_events(self) -> None:
        """Report missing events until none are left."""
        own = channels_not_written_elsewhere(self.store)
        recorded_keys = {event for channel in own for event in self._recorded_event_keys(channel)}
        while True:
            before = [c.id for c in self.catalog.commits.unreported(channels=own)]
            events = collect_missing_events(
                self.store, self.instance, lambda event, commit: _event_key(event) in recorded_keys
            )
            for event in events:
                self.instance.report_runless_asset_event(event)
                if not isinstance(event, AssetCheckEvaluation):
                    recorded_keys.add(_event_key(event))
            if events:
                self.on_progress(f"{len(events)} more events reported to Dagster")
            elif before == [c.id for c in self.catalog.commits.unreported(channels=own)]:
                return


def _event_key(event: AssetEvent) -> EventKey:
    return event.asset_key.to_user_string(), commit_id_of_event(event), event.partition


@contextmanager
def open_existing_instance() -> Iterator[DagsterInstance]:
    """Open the Dagster instance of DAGSTER_HOME, without creating an instance that does not exist yet.

    Raises:
        NotSupported: DAGSTER_HOME has no instance, or the instance cannot be opened.
    """
    home = os.environ.get("DAGSTER_HOME", "")
    if not home or not Path(home).is_dir() or not any(Path(home).iterdir()):
        raise NotSupported(f"nothing has run in DAGSTER_HOME ({home or 'not set'}) yet")
    try:
        instance = DagsterInstance.get()
    except Exception as error:  # storage and configuration raise errors of any type
        reason = " ".join(str(error).split())
        raise NotSupported(f"the instance in DAGSTER_HOME ({home}) cannot be opened: {reason}") from error
    with instance:
        yield instance
