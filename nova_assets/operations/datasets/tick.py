"""A tick of the scheduler, over the catalog: facts are read, ``plan/tick`` decides, and what it says is carried out.

What there is, what is marked, what runs and what fails is in the catalog, and everything else follows from definitions.
So it may be stopped at any moment, and any process may go on: what it remembers of earlier looks (``watching``) only
spares it to look at everything again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, partial

from nova_assets.errors import ExecutionInProgress, NovaError
from nova_assets.execution.runtime import Runtime
from nova_assets.masking import get_logger
from nova_assets.model.catalog import Catalog
from nova_assets.model.channel import Channel
from nova_assets.model.execution import Execution
from nova_assets.model.partition_state import Made, Mark
from nova_assets.model.partitions import partition_values
from nova_assets.operations.datasets.snapshot import Watch
from nova_assets.operations.maintenance import Upkeep
from nova_assets.plan.tick import Batch, Facts, Policy, Tick, decided

log = get_logger("nova_assets.scheduler")


@dataclass(frozen=True, slots=True)
class Ran:
    """A task that a tick has run.

    Args:
        error: why it failed; None where it did not.
    """

    dataset: str
    partition: str
    execution: Execution | None = None
    error: Exception | None = None


class Scheduling:
    """Ticks.

    Args:
        runtime: carries out the tasks.
        upkeep: drops partitions.
    """

    def __init__(self, runtime: Runtime, upkeep: Upkeep) -> None:
        self.runtime = runtime
        self.catalog = runtime.catalog
        self.upkeep = upkeep
        self.watch = Watch(runtime)

    def decide(self, policy: Policy | None = None) -> Tick:
        """What is to be done now. Changes nothing."""
        said = {name: q.follows_late for name, q in self.watch.queries.items()}
        policy = policy or Policy()
        policy = replace(policy, late={**said, **policy.late})
        seen = self.watch.look(policy.late)
        facts = Facts(
            seen.now,
            seen.made,
            _Complete(self.catalog, self.runtime, seen.now, seen.made),
            _by_channel(self.catalog.marks()),
            frozenset(self.catalog.running()),
            self.catalog.failing(),
        )
        return decided(seen.tasks, seen.verdicts, seen.needs, facts, policy)

    def carry_out(
        self, found: Tick, tell: Callable[[Ran], None] = lambda ran: None, run_id: str | None = None
    ) -> Iterator[Ran]:
        """Run what a tick says, here and one after the other, and drop what it says. A task that fails stops no other.

        Args:
            tell: told of each task when it has ended.
            run_id: of the run, of another orchestrator, that does this.
        """
        for dataset, partitions in found.drop.items():
            self.upkeep.drop(dataset, partitions)
            log.info("dropped %d partitions of %s that no task writes any more", len(partitions), dataset)
        for batch in found.run:
            for ran in self._run(batch, run_id):
                try:
                    tell(ran)
                except Exception:  # whoever listens stops nothing
                    log.exception("%s %s cannot be told of", ran.dataset, ran.partition)
                yield ran

    def _run(self, batch: Batch, run_id: str | None) -> Iterator[Ran]:
        """What another process makes, or has made meanwhile, is left to it."""
        for partition, was in zip(batch.partitions, batch.was, strict=True):
            wanted = partial(self._is_as_it_was, batch.dataset, partition, was)
            if not wanted():
                continue
            try:
                done = self.runtime.run(batch.dataset, partition, run_id=run_id, wanted=wanted)
                if done.state == "committed":
                    yield Ran(batch.dataset, partition, done)
            except ExecutionInProgress:
                continue
            except NovaError as error:
                log.warning("%s %s failed: %s", batch.dataset, partition, error.what)
                yield Ran(batch.dataset, partition, error=error)

    def _is_as_it_was(self, dataset: str, partition: str, was: int) -> bool:
        there = self.catalog.made(dataset, [partition]).get(partition)
        return (0 if there is None else there.seq) == was


class _Complete:
    """Whether all has come to a partition of a channel that is fed from outside: it is sealed; or, where nothing says
    so, its time is over; or, where it has none, something is there."""

    def __init__(
        self, catalog: Catalog, runtime: Runtime, now: datetime, made: Mapping[str, Mapping[str, Made]]
    ) -> None:
        self.catalog = catalog
        self.channels = {c.name: c for c in runtime.project.channels}
        self.now = now
        self.made = made
        self.sealed = cache(self._sealed)

    def __call__(self, name: str, partition: str) -> bool:
        channel = self.channels[name]
        if channel.external is not None:
            return partition in self.made[name]
        if channel.seal is not None:
            return str(partition_values(partition).get(channel.seal.by)) in self.sealed(name)
        ends = list(_ends(channel, partition))
        return all(end <= self.now for end in ends) if ends else partition in self.made[name]

    def _sealed(self, name: str) -> frozenset[str]:
        return frozenset(group for group, seal in self.catalog.latest_seals(name).items() if seal.state == "sealed")


def _ends(channel: Channel, partition: str) -> Iterator[datetime]:
    """When the days and hours of a partition are over."""
    values = partition_values(partition)
    for dimension in channel.partitions:
        end = dimension.ends(values.get(dimension.column))
        if end is not None:
            yield end


def _by_channel(marks: Iterable[Mark]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for mark in marks:
        found.setdefault(mark.channel, {})[mark.partition] = mark.priority
    return found
