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
from nova_assets.dagster_bridge.asset_consumers import settle_all
from nova_assets.dagster_bridge.ops import FIRING_TAG
from nova_assets.dagster_bridge.publisher import own_channels, publish
from nova_assets.dagster_bridge.recorded_events import Event, commit_of, told
from nova_assets.errors import NotSupported
from nova_assets.model.damage import Damage, Examination, Outcome
from nova_assets.operations.repair import Tell
from nova_assets.plan.repair import differing, unheard, waiting
from nova_assets.store.store import Store

Told = tuple[str, str, str | None]
"""Channel, commit and Dagster's partition: what tells one event from another."""

_ALL = 1_000_000
_BATCH = 5000


class DagsterRepair:
    """Examines and mends what Dagster knows of a project's channels.

    Args:
        tell: hears how far it has come.
    """

    def __init__(self, store: Store, instance: DagsterInstance, tell: Tell = lambda text: None) -> None:
        self.store = store
        self.catalog = store.catalog
        self.instance = instance
        self.tell = tell

    def examine(self) -> Examination:
        """Find everything. Changes nothing."""
        own = own_channels(self.store)
        looked = [self._differing(c.name) for c in self.store.project.channels if c.name in own]
        damages = [
            *unheard(self.catalog.unpublished(_ALL, own), self.catalog.now()),
            *(damage for found, _ in looked for damage in found),
            *self._firings(),
        ]
        return Examination(tuple(damages), {"events": sum(events for _, events in looked)})

    def _differing(self, channel: str) -> tuple[list[Damage], int]:
        """Where Dagster and the catalog disagree about a channel, and how many events were looked at.

        The catalog is asked before and after: what was committed, or told, in between is no damage.
        """
        before = self.catalog.commits_on(channel)
        events = self._told(channel)
        commits = {c: heard and before.get(c, False) for c, heard in self.catalog.commits_on(channel).items()}
        return differing(channel, frozenset(e[1] for e in events), commits), len(events)

    def settle(self) -> None:
        """Move the cursors of users' assets whose runs have ended: before a sweep, which ends what they have pinned."""
        settle_all(self.store, self.instance)

    def mend(self, damages: Iterable[Damage]) -> list[Outcome]:
        """Tell Dagster what it lacks, and of some channels everything again."""
        found = [d for d in damages if d.cure in ("publish", "rebuild")]
        for channel in dict.fromkeys(d.subject for d in found if d.cure == "rebuild"):
            if self._differing(channel)[0]:  # still
                self._wipe(channel)
        if found:
            self._tell_all()
        left = {(d.kind, d.subject) for d in self.examine().damages if d.wrong} if found else set()
        return [Outcome(d, (d.kind, d.subject) not in left) for d in found]

    def _told(self, channel: str) -> set[Told]:
        """What Dagster has of the channel, by whichever catalog's commits."""
        found: set[Told] = set()
        for n, event in enumerate(told(self.instance, AssetKey(channel), (AssetMaterialization, AssetObservation))):
            if n and n % _BATCH == 0:
                self.tell(f"{channel}: {n} of Dagster's events looked at")
            found.add(_told(event))
        return found

    def _firings(self) -> Iterator[Damage]:
        for binding in self.store.project.bindings:
            for partition in sorted(self.catalog.requested(binding.name)):
                firing = self.catalog.last_firing(binding.name, partition)
                if firing is None or firing.state != "requested":
                    continue
                its = RunsFilter(tags={FIRING_TAG: firing.id, RUN_KEY_TAG: firing.run_key})
                told = waiting(firing, self.catalog.now())
                if told is not None and not self.instance.get_run_records(its, limit=1):
                    yield told

    def _wipe(self, channel: str) -> None:
        """Unmarked before, so that a crash in between loses nothing; and after, since the sensor ``nova_publish`` may
        meanwhile have seen what was about to go."""
        self.catalog.unmark_published(channel)
        crash_point("repair.unmarked")
        self.instance.wipe_assets([AssetKey(channel)])
        crash_point("repair.wiped")
        self.catalog.unmark_published(channel)

    def _tell_all(self) -> None:
        """Report events until there is nothing more to report."""
        own = own_channels(self.store)
        told = {event for channel in own for event in self._told(channel)}
        while True:
            before = [c.id for c in self.catalog.unpublished(channels=own)]
            events = publish(self.store, self.instance, lambda event, commit: _told(event) in told)
            for event in events:
                self.instance.report_runless_asset_event(event)
                told.add(_told(event))
            if events:
                self.tell(f"Dagster was told of {len(events)} blocks more")
            elif before == [c.id for c in self.catalog.unpublished(channels=own)]:
                return


def _told(event: Event) -> Told:
    return event.asset_key.to_user_string(), commit_of(event), event.partition


@contextmanager
def opened() -> Iterator[DagsterInstance]:
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
