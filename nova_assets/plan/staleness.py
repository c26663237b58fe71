"""Which partitions of datasets are not as they should be, and why (BigDataFlow, part 2). Pure.

What was judged once stays so until something of it changes: another number on its own channel or on one that it reads,
or other partitions that there should be. Then only what that concerns is judged again.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from nova_assets.model.partition_state import Made

Why = Literal["missing", "dirty", "late data"]

Needs: TypeAlias = Callable[[str, str], Sequence[tuple[str, Collection[str]]]]
"""(dataset, partition) -> what its task reads: (dataset or channel, partitions)."""

There: TypeAlias = Mapping[str, Mapping[str, Made]]
"""Dataset or channel -> its partitions that are there."""


class Asked(Mapping[str, Made]):
    """The partitions of a channel that are there, to be asked for some of them at once.

    Args:
        head: the number at which one of them was given something last, at most; None where that is not known.
    """

    def __init__(self, head: int | None) -> None:
        self.head = head

    @abstractmethod
    def some(self, partitions: Collection[str]) -> Iterable[Made]:
        """Those of some that are there."""


@dataclass(frozen=True, slots=True)
class Amiss:
    """Why a task has to run.

    Args:
        seq: the number at which its partition stands; 0 where it is not there.
    """

    why: Why
    seq: int = 0


@dataclass(frozen=True)
class Verdict:
    """How the partitions of a dataset were found to be.

    Args:
        amiss: those whose tasks have to run. All other tasks' partitions are as they should be.
        gone: those that are there, and that no task writes any more.
    """

    amiss: Mapping[str, Amiss] = field(default_factory=dict)
    gone: tuple[str, ...] = ()


def judged(dataset: str, tasks: Collection[str], needs: Needs, made: There, *, late: bool = True) -> Verdict:
    """How all partitions of a dataset are.

    Args:
        tasks: the partitions that its tasks write, oldest first.
        late: whether data that came to an input after it was read makes what was made of it stale.
    """
    there = made.get(dataset, {})
    judge = Judge(dataset, needs, made, late=late)
    amiss = {p: found for p in tasks if (found := judge.of(p)) is not None}
    known = tasks if isinstance(tasks, Mapping | set | frozenset) else frozenset(tasks)
    return Verdict(amiss, tuple(p for p in there if p not in known))


def rejudged(
    before: Verdict,
    dataset: str,
    tasks: Collection[str],
    concerned: Iterable[str],
    needs: Needs,
    made: There,
    *,
    late: bool = True,
) -> Verdict:
    """The same, where only some partitions can be otherwise than before.

    Args:
        before: what was found then.
        tasks: all that there are now; asked for single ones only.
        concerned: of the tasks and partitions that there are or were.
    """
    judge = Judge(dataset, needs, made, late=late)
    amiss, gone = dict(before.amiss), dict.fromkeys(before.gone)
    for partition in concerned:
        amiss.pop(partition, None)
        gone.pop(partition, None)
        if partition in tasks:
            found = judge.of(partition)
            if found is not None:
                amiss[partition] = found
        elif partition in made.get(dataset, {}):
            gone[partition] = None
    return Verdict(amiss, tuple(gone))


class Judge:
    """Judges single partitions of a dataset."""

    def __init__(self, dataset: str, needs: Needs, made: There, *, late: bool = True) -> None:
        self.dataset = dataset
        self.needs = needs
        self.made = made
        self.late = late
        self._newest: dict[str, int] = {}

    def of(self, partition: str) -> Amiss | None:
        """Why its task has to run; None where it is as it should be."""
        made = self.made.get(self.dataset, {}).get(partition)
        if made is None:
            return Amiss("missing")
        return Amiss("late data", made.seq) if self.late and self._is_stale(partition, made) else None

    def _is_stale(self, partition: str, made: Made) -> bool:
        """Whether something that it was made of was given something since."""
        if not any(self._last(read) > seen for read, seen in made.read.items()):
            return False  # whatever of it was read
        for read, partitions in self.needs(self.dataset, partition):
            seen = made.read.get(read)
            if seen is not None and any(m.has_more_than(seen) for m in some_of(self.made.get(read, {}), partitions)):
                return True
        return False

    def _last(self, name: str) -> int:
        """The last number at which something of a dataset or channel was given something, at most."""
        if name not in self._newest:
            self._newest[name] = last_of(self.made.get(name, {}))
        return self._newest[name]


def some_of(there: Mapping[str, Made], partitions: Collection[str]) -> Iterable[Made]:
    """Of some partitions those that are there."""
    return there.some(partitions) if isinstance(there, Asked) else (there[p] for p in partitions if p in there)


def last_of(there: Mapping[str, Made]) -> int:
    """The last number at which one of some partitions was given something, at most."""
    if isinstance(there, Asked) and there.head is not None:
        return there.head
    return max((m.last_given for m in there.values()), default=0)
