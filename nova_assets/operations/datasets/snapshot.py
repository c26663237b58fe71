"""How the datasets of a project stand, look by look.

The first look of a process judges every task. Later ones ask the catalog for the heads of all channels, and judge
again only what changes of these concern: the partitions that were given something, and the tasks that read one of them.
All of that can be forgotten at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from graphlib import CycleError, TopologicalSorter

from nova_assets.execution.runtime import Runtime
from nova_assets.model.catalog import Catalog
from nova_assets.model.partition_state import Made
from nova_assets.plan.staleness import Asked, Needs, Verdict, judged, rejudged
from nova_assets.sql.datasets.datasets import queries_of
from nova_assets.sql.datasets.graph import Partitions
from nova_assets.sql.datasets.task import InScope

SLOT = timedelta(minutes=15)
"""Days and hours begin, in every zone, at multiples of it: in between no task comes or goes."""

HALF = 0.5
"""Where more of a dataset's tasks are concerned, all are judged."""

MANY = 300
"""Where more of a channel's partitions are asked for, all are."""

WHOLE = 256
"""Channels all of whose partitions are kept in mind during a look, those that were asked for last. Datasets are looked
at each after those that it reads, so that what is forgotten is seldom asked for again."""


@dataclass(frozen=True)
class Standing:
    """The tasks that there are, and the partitions that there are, at a moment.

    Args:
        tasks: dataset -> the partitions that its tasks write; each dataset after those that it reads.
        made: dataset or channel -> its partitions that are there.
        needs: what a task reads.
        verdicts: dataset -> which of its partitions are not as they should be.
    """

    now: datetime
    tasks: Mapping[str, Mapping[str, int]]
    made: Mapping[str, Mapping[str, Made]]
    needs: Needs
    verdicts: Mapping[str, Verdict]


@dataclass(frozen=True)
class _Known:
    """What was found out of a dataset.

    Args:
        late: whether it followed late data then.
        listed: the partitions that there should be, of itself and of what it reads.
        heads: of these channels, the numbers up to which it is known.
    """

    verdict: Verdict
    late: bool
    listed: Mapping[str, Partitions]
    heads: Mapping[str, int]


class Watch:
    """Looks at the datasets of a project, and remembers what it has seen."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.catalog = runtime.catalog
        self.judged = 0
        self._known: dict[str, _Known] = {}
        self._heads: Mapping[str, int] = {}
        self._late: Mapping[str, bool] = {}
        self._seen: Mapping[str, Mapping[str, int]] | None = None  # the tasks that all were judged by
        self._tasks: tuple[datetime, Mapping[str, Mapping[str, int]]] | None = None

    @cached_property
    def queries(self) -> Mapping[str, InScope]:
        """The datasets of the project, each after those that it reads."""
        found = queries_of(self.runtime.project)
        return {name: found[name] for name in _in_order(found)}

    @cached_property
    def _chains(self) -> Sequence[str]:
        """All datasets, each after those that it reads, and soon after: what is known of these is still in mind."""
        found: dict[str, None] = {}
        opened: set[str] = set()
        waiting = list(self.queries)
        while waiting:  # the last ones first, each of which waits for those that it reads
            name = waiting[-1]
            new = [] if name in opened else [r for r in self.queries[name].reads if r in self.queries]
            new = [r for r in new if r not in opened]
            opened.add(name)
            if new:
                waiting += new
            else:
                found.setdefault(waiting.pop())
        return tuple(found)

    @cached_property
    def _concerns(self) -> Mapping[str, tuple[str, ...]]:
        """Channel -> the datasets that it is of, or that read it."""
        found: dict[str, dict[str, None]] = {}
        for name, query in self.queries.items():
            for channel in (name, *query.reads):
                found.setdefault(channel, {})[name] = None
        return {channel: tuple(names) for channel, names in found.items()}

    def standing(self) -> Standing:
        """The tasks and the partitions that there are now, without a verdict on any."""
        now, made = self.catalog.now(), _There(self.catalog, {})
        return Standing(now, self._tasks_at(now), made, self._needs(now, made), {})

    def look(self, late: Mapping[str, bool]) -> Standing:
        """How the datasets stand now.

        Args:
            late: dataset -> whether data that comes to an input after it was read makes what was made of it stale.
        """
        heads = self.catalog.heads()  # before anything else: what comes later is seen the next time
        now = self.catalog.now()
        tasks, made = self._tasks_at(now), _There(self.catalog, heads)
        needs = self._needs(now, made)
        moved = [c for c, head in heads.items() if self._heads.get(c, 0) != head]
        everything = self._seen is not tasks or late != self._late or not self._known
        concerned = self._chains if everything else dict.fromkeys(d for c in moved for d in self._concerns.get(c, ()))
        for name in concerned:
            self._known[name] = self._judged(name, now, tasks, made, needs, late.get(name, True), heads)
            made.forget()
        self._seen, self._heads, self._late = tasks, heads, dict(late)
        return Standing(now, tasks, made, needs, {n: self._known[n].verdict for n in self.queries})

    def _tasks_at(self, now: datetime) -> Mapping[str, Mapping[str, int]]:
        slot = datetime.min + (now.replace(tzinfo=None) - datetime.min) // SLOT * SLOT
        if self._tasks is None or self._tasks[0] != slot:
            self._tasks = slot, {n: q.graph.partitions(n, now).positions for n, q in self.queries.items()}
        return self._tasks[1]

    def _needs(self, now: datetime, made: _There) -> Needs:
        def needs(dataset: str, partition: str) -> Sequence[tuple[str, Sequence[str]]]:
            found = self.queries[dataset].needs(partition, now, made.existing)
            return tuple((n.dataset, n.partitions) for n in found)

        return needs

    def _judged(
        self,
        name: str,
        now: datetime,
        tasks: Mapping[str, Mapping[str, int]],
        made: _There,
        needs: Needs,
        late: bool,
        heads: Mapping[str, int],
    ) -> _Known:
        graph, reads = self.queries[name].graph, self.queries[name].reads
        listed = {n: graph.partitions(n, now, made.existing) for n in (name, *reads)}
        at = {n: heads.get(n, 0) for n in listed}
        known = self._known.get(name)
        concerned = None if known is None or known.late != late else self._concerned(name, known, listed, at, now, made)
        if known is not None and concerned is not None and len(concerned) <= HALF * len(tasks[name]):
            self.judged += len(concerned)
            made[name].some(concerned)
            verdict = rejudged(known.verdict, name, tasks[name], concerned, needs, made, late=late)
        else:
            self.judged += len(tasks[name])
            for channel in listed:
                made[channel].load()
            verdict = judged(name, tasks[name], needs, made, late=late)
        return _Known(verdict, late, listed, at)

    def _concerned(
        self,
        name: str,
        known: _Known,
        listed: Mapping[str, Partitions],
        heads: Mapping[str, int],
        now: datetime,
        made: _There,
    ) -> set[str]:
        """The partitions of a dataset that can be otherwise than they were known to be."""
        graph, found = self.queries[name].graph, set[str]()
        for channel, partitions in listed.items():
            since, before = known.heads[channel], known.listed[channel]
            changed = set() if heads[channel] == since else set(made.given_since(channel, since))
            if before is not partitions:
                changed |= partitions.positions.keys() ^ before.positions.keys()
                found |= known.verdict.amiss.keys()  # what is not asked for any more is no reason any more
            if channel == name:
                found |= changed
            elif changed:
                found |= set(graph.read_by(name, channel, changed, now, made.existing))
        return found


class _Channel(Asked):
    """The partitions of a channel that are there: some, or all, asked for when they are wanted."""

    def __init__(self, catalog: Catalog, name: str, head: int | None, loaded: Callable[[str], None]) -> None:
        self._catalog = catalog
        self._name = name
        self._loaded = loaded
        self._some: dict[str, Made | None] = {}
        self._all: Mapping[str, Made] | None = None
        super().__init__(head)

    def load(self) -> Mapping[str, Made]:
        """All of them."""
        found = self._all
        if found is None:
            found = self._all = self._catalog.made(self._name)
        self._loaded(self._name)
        return found

    def forget(self) -> None:
        self._all = None

    def some(self, partitions: Collection[str]) -> Iterable[Made]:
        """Those of some that are there."""
        known = self._all
        if known is not None:
            return [known[p] for p in partitions if p in known]
        new = [p for p in partitions if p not in self._some]
        if len(self._some) + len(new) > MANY:
            self.load()
            return self.some(partitions)
        if new:
            found = self._catalog.made(self._name, new)
            self._some |= {p: found.get(p) for p in new}
        return [made for p in partitions if (made := self._some[p]) is not None]

    def __getitem__(self, partition: str) -> Made:
        for found in self.some((partition,)):
            return found
        raise KeyError(partition)

    def __iter__(self) -> Iterator[str]:
        return iter(self.load())

    def __len__(self) -> int:
        return len(self.load())


class _There(Mapping[str, _Channel]):
    """What there is, channel by channel, as it was at one look."""

    def __init__(self, catalog: Catalog, heads: Mapping[str, int]) -> None:
        self._catalog = catalog
        self._heads = heads
        self._known: dict[str, _Channel] = {}
        self._whole: dict[str, None] = {}  # last the one that was asked for last
        self._since: dict[tuple[str, int], list[str]] = {}

    def existing(self, channel: str) -> list[str]:
        return list(self[channel])

    def given_since(self, channel: str, number: int) -> list[str]:
        """The partitions that were given something after a number, or dropped."""
        if (channel, number) not in self._since:
            self._since[channel, number] = self._catalog.given_since(channel, number)
        return self._since[channel, number]

    def __getitem__(self, name: str) -> _Channel:
        if name not in self._known:
            self._known[name] = _Channel(self._catalog, name, self._heads.get(name), self._loaded)
        return self._known[name]

    def _loaded(self, name: str) -> None:
        self._whole.pop(name, None)
        self._whole[name] = None

    def forget(self) -> None:
        """Between two datasets: what was asked for longest ago."""
        for name in list(self._whole)[: max(0, len(self._whole) - WHOLE)]:
            del self._whole[name]
            self._known[name].forget()

    def __contains__(self, name: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


def _in_order(queries: Mapping[str, InScope]) -> list[str]:
    """All datasets, each after those that it reads, of whichever folder these are."""
    reads = {name: [r for r in q.reads if r in queries] for name, q in queries.items()}
    try:
        return list(TopologicalSorter(reads).static_order())
    except CycleError:  # folders that read each other in a circle: each waits for the others
        return list(reads)
