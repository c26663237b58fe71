"""A tick of the scheduler, over the catalog: facts are read, ``plan/tick`` decides, and what it says is carried out.

It keeps nothing: what there is, what is marked, what runs and what fails is in the catalog, and everything else follows
from definitions. So it may be stopped at any moment, and any process may go on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, partial
from graphlib import CycleError, TopologicalSorter

from nova_assets.errors import ChannelNotFound, ExecutionInProgress, NovaError
from nova_assets.model.channel import Channel
from nova_assets.model.execution import Execution
from nova_assets.model.mark import Made, Mark
from nova_assets.model.partitions import partition_values
from nova_assets.model.ports import Catalog
from nova_assets.plan.tick import Batch, Facts, Needs, Policy, Tick, tick
from nova_assets.runtime import Runtime
from nova_assets.sql.datasets import queries_of
from nova_assets.sql.graph import Graph
from nova_assets.sql.task import InScope
from nova_assets.upkeep import Upkeep

log = logging.getLogger("nova_assets.scheduler")


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

    def decide(self, policy: Policy | None = None) -> Tick:
        """What is to be done now. Changes nothing."""
        found = standing(self.runtime)
        facts = Facts(
            found.now,
            found.made,
            _Complete(self.catalog, self.runtime, found.now, found.made),
            _by_channel(self.catalog.marks()),
            frozenset(self.catalog.running()),
            self.catalog.failing(),
        )
        said = {name: q.follows_late for name, q in queries_of(self.runtime.project).items()}
        policy = policy or Policy()
        return tick(found.tasks, found.needs, facts, replace(policy, late={**said, **policy.late}))

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
        there = _AsMade(self.catalog)[dataset]
        return (there[partition].seq if partition in there else 0) == was


@dataclass(frozen=True)
class Standing:
    """The tasks that there are, and the partitions that there are, at a moment.

    Args:
        tasks: dataset -> the partitions that its tasks write; each dataset after those that it reads.
        made: dataset or channel -> its partitions that are there.
        needs: what a task reads.
    """

    now: datetime
    tasks: Mapping[str, Sequence[str]]
    made: Mapping[str, Mapping[str, Made]]
    needs: Needs


def standing(runtime: Runtime) -> Standing:
    """How the datasets of a project stand now."""
    queries, now = queries_of(runtime.project), runtime.catalog.now()
    graphs = {id(q.graph): q.graph for q in queries.values()}
    tasks = {name: list(queries[name].graph.tasks(name, now)) for name in _in_order(queries, graphs.values())}
    made = _AsMade(runtime.catalog)
    return Standing(now, tasks, made, _needs(queries, now, made))


def _in_order(queries: Mapping[str, InScope], graphs: Iterable[Graph]) -> list[str]:
    """All datasets, each after those that it reads, of whichever folder these are."""
    names = [name for graph in graphs for name in graph.datasets]
    reads = {name: [r for r in queries[name].query.reads if r in queries] for name in names}
    try:
        return list(TopologicalSorter(reads).static_order())
    except CycleError:  # folders that read each other in a circle: each waits for the others
        return names


class _AsMade(Mapping[str, Mapping[str, Made]]):
    """The partitions that there are, channel by channel, asked for when they are wanted."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._known: dict[str, Mapping[str, Made]] = {}

    def __getitem__(self, name: str) -> Mapping[str, Made]:
        if name not in self._known:
            self._known[name] = {}
            with suppress(ChannelNotFound):
                self._known[name] = self._catalog.made(name)
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


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


def _needs(queries: Mapping[str, InScope], now: datetime, made: Mapping[str, Mapping[str, Made]]) -> Needs:
    @cache
    def needs(dataset: str, partition: str) -> Sequence[tuple[str, Sequence[str]]]:
        found = queries[dataset].needs(partition, now, lambda channel: list(made[channel]))
        return tuple((n.dataset, n.partitions) for n in found)

    return needs


def _by_channel(marks: Iterable[Mark]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for mark in marks:
        found.setdefault(mark.channel, {})[mark.partition] = mark.priority
    return found
