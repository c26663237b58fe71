"""What a tick of the scheduler does: the tasks that there are are compared with the partitions that there are
(BigDataFlow, part 2). Pure, and without a state of its own: facts in, decisions out.

A task whose partition is missing, marked dirty, or older than what it was made of is run once everything that it reads
is there and in order; a partition that no task writes any more is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from nova_assets.model.partition_state import Failure, Made
from nova_assets.plan.staleness import Needs, Verdict, Why, judged


@dataclass(frozen=True)
class Facts:
    """What a tick rests on; all of it is in the catalog, or follows from definitions.

    Args:
        now: the moment.
        made: dataset or channel -> its partitions that are there.
        complete: (channel, partition) of a channel that no task writes -> whether all of its data has come.
        dirty: dataset -> its partitions that somebody has marked to be made again, and how soon: the higher first.
            What is missing or stale has 0.
        running: (dataset, partition) that are being made.
        failed: of tasks whose last run has failed.
    """

    now: datetime
    made: Mapping[str, Mapping[str, Made]]
    complete: Callable[[str, str], bool] = lambda channel, partition: True
    dirty: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    running: Collection[tuple[str, str]] = ()
    failed: Mapping[tuple[str, str], Failure] = field(default_factory=dict)


@dataclass(frozen=True)
class Policy:
    """How much a tick does at once.

    Args:
        at_once: tasks that run at the same time, those that run already included.
        batch: neighbouring partitions of a dataset that are made by one run.
        attempts: how often a task is tried before a person has to look at it.
        backoff: seconds before the second try; each further one waits twice as long.
        late: whether data that came to an input after it was read makes what was made of it stale.
        drops: partitions of a dataset that one tick may drop by itself, as a share of all, and at least ``few``.
        few: so many may always be dropped.
    """

    at_once: int = 8
    batch: int = 8
    attempts: int = 3
    backoff: float = 30.0
    late: Mapping[str, bool] = field(default_factory=dict)
    drops: float = 0.25
    few: int = 10


@dataclass(frozen=True, slots=True)
class Batch:
    """Partitions of a dataset that are made by one run, one after the other, and why.

    Args:
        was: the numbers at which they stood; 0 for those that were not there.
    """

    dataset: str
    partitions: tuple[str, ...]
    why: tuple[Why, ...]
    was: tuple[int, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Waits:
    """A task that is to run, but not yet."""

    dataset: str
    partition: str
    why: Why
    waits_for: str


@dataclass(frozen=True)
class Tick:
    """What is to be done.

    Args:
        run: in the order in which it is to be requested.
        waits: what has to wait, and for what.
        drop: dataset -> partitions that no task writes any more.
        held: dataset -> such partitions that are so many that a person has to say so.
    """

    run: tuple[Batch, ...] = ()
    waits: tuple[Waits, ...] = ()
    drop: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    held: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def tick(tasks: Mapping[str, Collection[str]], needs: Needs, facts: Facts, policy: Policy | None = None) -> Tick:
    """Decide what is to be done now, by all that there is.

    Args:
        tasks: dataset -> the partitions that its tasks write, oldest first; each dataset after those that it reads.
        needs: what a task reads.
    """
    policy = policy or Policy()
    verdicts = {d: judged(d, tasks[d], needs, facts.made, late=policy.late.get(d, True)) for d in tasks}
    return decided(tasks, verdicts, needs, facts, policy)


def decided(
    tasks: Mapping[str, Collection[str]],
    verdicts: Mapping[str, Verdict],
    needs: Needs,
    facts: Facts,
    policy: Policy,
) -> Tick:
    """Decide what is to be done now, where it is known which partitions are not as they should be."""
    return _Ticking(tasks, verdicts, needs, facts, policy).decided()


class _Ticking:
    def __init__(
        self,
        tasks: Mapping[str, Collection[str]],
        verdicts: Mapping[str, Verdict],
        needs: Needs,
        facts: Facts,
        policy: Policy,
    ) -> None:
        self.tasks = tasks
        self.verdicts = verdicts
        self.needs = needs
        self.facts = facts
        self.policy = policy
        self.being_read = self._being_read()

    def decided(self) -> Tick:
        ready: list[tuple[str, str, Why]] = []
        waits: list[Waits] = []
        for dataset, partition in self._to_make():
            why = self.to_make(dataset, partition)
            if why is None or (dataset, partition) in self.facts.running:
                continue
            obstacle = self._obstacle(dataset, partition)
            if obstacle is None:
                ready.append((dataset, partition, why))
            else:
                waits.append(Waits(dataset, partition, why, obstacle))
        ready.sort(key=lambda one: -self._priority(*one))  # else in order
        room = max(0, self.policy.at_once - len(self.facts.running))
        run = tuple(self._batches(ready[:room]))
        waits += [Waits(d, p, why, "others that come first") for d, p, why in ready[room:]]
        drop, held = self._drops()
        return Tick(run, tuple(waits), drop, held)

    def _to_make(self) -> Iterator[tuple[str, str]]:
        """All tasks that have to run, in order."""
        for dataset, partitions in self.tasks.items():
            amiss, dirty = self.verdicts[dataset].amiss, self.facts.dirty.get(dataset, {})
            if not amiss and not dirty:
                continue
            for partition in partitions:
                if partition in amiss or partition in dirty:
                    yield dataset, partition

    def _priority(self, dataset: str, partition: str, why: Why) -> int:
        """What is missing, or stale, waits for nobody's sake: a mark makes it sooner, never later."""
        marked = self.facts.dirty.get(dataset, {}).get(partition, 0)
        return marked if why == "dirty" else max(0, marked)

    def to_make(self, dataset: str, partition: str) -> Why | None:
        """Why a task has to run; None where its partition is as it should be."""
        amiss = self.verdicts[dataset].amiss.get(partition)
        if amiss is not None and amiss.why == "missing":
            return "missing"
        if partition in self.facts.dirty.get(dataset, ()):
            return "dirty"
        return None if amiss is None else amiss.why

    def _obstacle(self, dataset: str, partition: str) -> str | None:
        """What a task has to wait for; None where it can run."""
        failure = self.facts.failed.get((dataset, partition))
        if failure is not None and failure.times >= self.policy.attempts:
            return f"a person: it has failed {failure.times} times"
        if failure is not None:
            again = failure.at + timedelta(seconds=self.policy.backoff * 2 ** (failure.times - 1))
            if again > self.facts.now:
                return f"{again:%Y-%m-%d %H:%M:%S}: it has failed"
        if (dataset, partition) in self.being_read:
            return "a task that reads what is there now"
        for read, partitions in self.needs(dataset, partition):
            for p in partitions:
                if not self._is_in_order(read, p):
                    return f"{read}/{p}" if p else read
        return None

    def _is_in_order(self, name: str, partition: str) -> bool:
        """Whether something that is read is there, and will not be made anew first."""
        if name not in self.tasks:
            return self.facts.complete(name, partition)
        if (name, partition) in self.facts.running:
            return False
        if partition in self.tasks[name]:
            return self.to_make(name, partition) is None
        return partition in self.facts.made.get(name, {})

    def _being_read(self) -> frozenset[tuple[str, str]]:
        """What running tasks read: nothing of it is written meanwhile."""
        return frozenset(
            (read, p)
            for dataset, partition in self.facts.running
            if partition in self.tasks.get(dataset, ())
            for read, partitions in self.needs(dataset, partition)
            for p in partitions
        )

    def _batches(self, ready: Sequence[tuple[str, str, Why]]) -> Iterator[Batch]:
        """Neighbours of a dataset together."""
        together: dict[tuple[str, int], list[tuple[str, Why]]] = {}
        for dataset, partition, why in ready:
            together.setdefault((dataset, self._priority(dataset, partition, why)), []).append((partition, why))
        for (dataset, _), some in together.items():
            for n in range(0, len(some), self.policy.batch):
                part = some[n : n + self.policy.batch]
                was = tuple(self._stands_at(dataset, p) for p, _ in part)
                yield Batch(dataset, tuple(p for p, _ in part), tuple(w for _, w in part), was)

    def _stands_at(self, dataset: str, partition: str) -> int:
        amiss = self.verdicts[dataset].amiss.get(partition)
        if amiss is not None:
            return amiss.seq
        there = self.facts.made.get(dataset, {}).get(partition)
        return 0 if there is None else there.seq

    def _drops(self) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
        drop: dict[str, tuple[str, ...]] = {}
        held: dict[str, tuple[str, ...]] = {}
        busy = {*self.being_read, *self.facts.running}
        for dataset in self.tasks:
            gone = tuple(p for p in self.verdicts[dataset].gone if (dataset, p) not in busy)
            if gone:
                there = len(self.facts.made.get(dataset, {}))
                many = len(gone) > max(self.policy.few, self.policy.drops * there)
                (held if many else drop)[dataset] = gone
        return drop, held
