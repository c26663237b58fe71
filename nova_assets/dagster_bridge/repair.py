"""Dagster's side of repair: what it has not heard, what it has that the catalog has not, and firings without a run.

Dagster's materializations are a projection that can be rebuilt (R17): it is told again what it lacks, and where it has
what never was, all that it has of the asset is wiped and told anew.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dagster import AssetKey, AssetMaterialization, AssetObservation, DagsterInstance, RunsFilter
from dagster._core.storage.tags import RUN_KEY_TAG

from nova_assets.crash_points import crash_point
from nova_assets.dagster_bridge.asset_consumers import commit_or_abort_consumers
from nova_assets.dagster_bridge.ops import FIRING_TAG
from nova_assets.dagster_bridge.publisher import channels_of_this_location, collect_missing_events
from nova_assets.dagster_bridge.recorded_events import AssetEvent, commit_id_of_event, iterate_commit_events
from nova_assets.errors import NotSupported
from nova_assets.model.damage import Damage, DamageReport, RepairOutcome
from nova_assets.operations.repair import ProgressCallback
from nova_assets.plan.repair import dagster_differences, unreported_commit_damage, waiting_firing_damage
from nova_assets.store.store import Store

EventKey = tuple[str, str, str | None]
"""Channel, commit and Dagster's partition: what tells one event from another."""

_UNLIMITED = 1_000_000
_PROGRESS_INTERVAL = 5000


class DagsterRepair:
    """Examines and mends what Dagster knows of a project's channels.

    Args:
        on_progress: hears how far it has come.
    """

    def __init__(
        self, store: Store, instance: DagsterInstance, on_progress: ProgressCallback = lambda text: None
    ) -> None:
        self.store = store
        self.catalog = store.catalog
        self.instance = instance
        self.on_progress = on_progress

    def find_damages(self) -> DamageReport:
        """Find everything. Changes nothing."""
        own = channels_of_this_location(self.store)
        damages_and_event_counts = [
            self._compare_with_catalog(c.name) for c in self.store.project.channels if c.name in own
        ]
        damages = [
            *unreported_commit_damage(self.catalog.unpublished(_UNLIMITED, own), self.catalog.now()),
            *(damage for found, _ in damages_and_event_counts for damage in found),
            *self._find_firings_without_run(),
        ]
        return DamageReport(tuple(damages), {"events": sum(events for _, events in damages_and_event_counts)})

    def _compare_with_catalog(self, channel: str) -> tuple[list[Damage], int]:
        """Where Dagster and the catalog disagree about a channel, and how many events were looked at.

        The catalog is asked before and after: what was committed, or told, in between is no damage.
        """
        before = self.catalog.reported_by_commit(channel)
        events = self._recorded_event_keys(channel)
        commits = {c: heard and before.get(c, False) for c, heard in self.catalog.reported_by_commit(channel).items()}
        return dagster_differences(channel, frozenset(e[1] for e in events), commits), len(events)

    def settle_consumers(self) -> None:
        """Move the cursors of users' assets whose runs have ended: before a sweep, which ends what they have pinned."""
        commit_or_abort_consumers(self.store, self.instance)

    def repair_damages(self, damages: Iterable[Damage]) -> list[RepairOutcome]:
        """Tell Dagster what it lacks, and of some channels everything again."""
        repairable = [d for d in damages if d.cure in ("publish", "rebuild")]
        for channel in dict.fromkeys(d.subject for d in repairable if d.cure == "rebuild"):
            if self._compare_with_catalog(channel)[0]:  # still
                self._wipe_asset_events(channel)
        if repairable:
            self._report_missing_events()
        remaining = {(d.kind, d.subject) for d in self.find_damages().damages if d.wrong} if repairable else set()
        return [RepairOutcome(d, (d.kind, d.subject) not in remaining) for d in repairable]

    def _recorded_event_keys(self, channel: str) -> set[EventKey]:
        """What Dagster has of the channel, by whichever catalog's commits."""
        event_keys: set[EventKey] = set()
        for n, event in enumerate(
            iterate_commit_events(self.instance, AssetKey(channel), (AssetMaterialization, AssetObservation))
        ):
            if n and n % _PROGRESS_INTERVAL == 0:
                self.on_progress(f"{channel}: {n} of Dagster's events looked at")
            event_keys.add(_event_key(event))
        return event_keys

    def _find_firings_without_run(self) -> Iterator[Damage]:
        for binding in self.store.project.bindings:
            for partition in sorted(self.catalog.partitions_with_open_firing(binding.name)):
                firing = self.catalog.last_firing(binding.name, partition)
                if firing is None or firing.state != "requested":
                    continue
                run_filter = RunsFilter(tags={FIRING_TAG: firing.id, RUN_KEY_TAG: firing.run_key})
                damage = waiting_firing_damage(firing, self.catalog.now())
                if damage is not None and not self.instance.get_run_records(run_filter, limit=1):
                    yield damage

    def _wipe_asset_events(self, channel: str) -> None:
        """Unmarked before, so that a crash in between loses nothing; and after, since the sensor ``nova_publish`` may
        meanwhile have seen what was about to go."""
        self.catalog.unmark_published(channel)
        crash_point("repair.unmarked")
        self.instance.wipe_assets([AssetKey(channel)])
        crash_point("repair.wiped")
        self.catalog.unmark_published(channel)

    def _report_missing_events(self) -> None:
        """Report events until there is nothing more to report."""
        own = channels_of_this_location(self.store)
        recorded_keys = {event for channel in own for event in self._recorded_event_keys(channel)}
        while True:
            before = [c.id for c in self.catalog.unpublished(channels=own)]
            events = collect_missing_events(
                self.store, self.instance, lambda event, commit: _event_key(event) in recorded_keys
            )
            for event in events:
                self.instance.report_runless_asset_event(event)
                recorded_keys.add(_event_key(event))
            if events:
                self.on_progress(f"Dagster was told of {len(events)} blocks more")
            elif before == [c.id for c in self.catalog.unpublished(channels=own)]:
                return


def _event_key(event: AssetEvent) -> EventKey:
    return event.asset_key.to_user_string(), commit_id_of_event(event), event.partition


@contextmanager
def open_existing_instance() -> Iterator[DagsterInstance]:
    """The instance of DAGSTER_HOME. One that has never been used is not made by looking at it.

    Raises:
        NotSupported: there is none, or it cannot be read.
    """
    home = os.environ.get("DAGSTER_HOME", "")
    if not home or not Path(home).is_dir() or not any(Path(home).iterdir()):
        raise NotSupported(f"nothing has run in DAGSTER_HOME ({home or 'not set'}) yet")
    try:
        instance = DagsterInstance.get()
    except Exception as error:  # whatever its storage, or its configuration, raises
        said = " ".join(str(error).split())
        raise NotSupported(f"the instance in DAGSTER_HOME ({home}) cannot be opened: {said}") from error
    with instance:
        yield instance
