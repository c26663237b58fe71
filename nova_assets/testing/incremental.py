"""Check that a binding gives the same result in batches as in one run (R12), under several schedules."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from nova_assets.model.binding import Binding
from nova_assets.model.block import Kind
from nova_assets.model.project import Project
from nova_assets.model.schema import DELETED
from nova_assets.testing.shrinking import Lists, shrink
from nova_assets.testing.world import Rows, World, difference, for_tiny_queries, rows_of

_MAX_SINGLE_ROWS = 12
"""Maximum total number of rows that are also tried as single-row batches."""

_MAX_SHRINK_TRIES = 16


@dataclass(frozen=True)
class _Arrival:
    """A batch that arrives on a channel."""

    channel: str
    table: pa.Table

    def with_rows(self, rows: Rows) -> _Arrival:
        return _Arrival(self.channel, pa.Table.from_pylist(rows, self.table.schema))


@dataclass(frozen=True)
class _Schedule:
    """Times at which a binding runs between arrivals.

    Args:
        name: for people.
        arrivals: batches in order of arrival.
        runs: numbers of arrivals after which the binding runs. The last run follows the last arrival.
        compact_and_rerun: after each run, compact the channels and run the binding once more without new data.
    """

    name: str
    arrivals: Sequence[_Arrival]
    runs: frozenset[int]
    compact_and_rerun: bool = False


def check_incremental(
    binding: Binding,
    inputs: Mapping[str, Sequence[Any]],
    spark: Any = None,
    kind: Kind = "delta",
    schedules: int = 2,
    *,
    partition: str | Mapping[str, object] | None = None,
) -> None:
    """Check that a binding is incremental-safe on these inputs (R12): each schedule gives the same result as a single
    run.

    These schedules are checked:

    - a run after each step of arrivals
    - a run after each arrival on a single channel
    - each row as its own batch, for few rows, with deletions first
    - compaction and a run without new data after each run
    - some random schedules

    Args:
        binding: the binding to run.
        inputs: channel -> its batches in order of arrival.
        spark: a session to use. By default, the local session of this process.
        kind: kind of the batches. Bases are not split into rows.
        schedules: number of random schedules. They are the same in every call.
        partition: the partition for which the binding runs; None for an unpartitioned run.

    Raises:
        AssertionError: a schedule gives another result. The error names the schedule, the channel, the rows that
            differ, and the smallest failing input.
    """
    project = Project([binding])
    with World(project, spark) as store:
        schemas = {c: store.catalog.definitions.channel(c).schema for c in inputs}
        tables = {
            c: [store.engine.frames.to_arrow(store.engine.inputs.convert(b, schemas[c])) for b in given]
            for c, given in inputs.items()
        }
        with for_tiny_queries(store):
            steps = max(len(b) for b in inputs.values())
            arrivals = [_Arrival(c, given[n]) for n in range(steps) for c, given in tables.items() if n < len(given)]
            ends = [sum(min(n, len(given)) for given in tables.values()) for n in range(1, steps + 1)]
            runner = _ScheduleRunner(project, binding, kind, spark, partition)
            expected = runner.run(_single_run_schedule(arrivals))
            for schedule in _schedules(arrivals, ends, kind, schedules):
                actual = runner.run(schedule)
                channel = next((c for c in expected if actual[c] != expected[c]), None)
                if channel is not None:
                    raise AssertionError(_CounterExampleSearch(runner, schedule, channel).counter_example())


def _single_run_schedule(arrivals: Sequence[_Arrival]) -> _Schedule:
    return _Schedule("all at once", arrivals, frozenset({len(arrivals)}))


def _schedules(
    arrivals: Sequence[_Arrival], step_ends: Sequence[int], kind: Kind, random_count: int
) -> Iterator[_Schedule]:
    tried = {frozenset({len(arrivals)})}
    each = frozenset(range(1, len(arrivals) + 1))
    for name, runs in (("batch by batch", frozenset(step_ends)), ("a run after each arrival of one channel", each)):
        if runs not in tried:
            tried.add(runs)
            yield _Schedule(name, arrivals, runs)
    name = "batch by batch, with compaction and a run without anything new after each run"
    yield _Schedule(name, arrivals, frozenset(step_ends), compact_and_rerun=True)
    rows = list(_single_rows(arrivals))
    if kind == "delta" and len(arrivals) < len(rows) <= _MAX_SINGLE_ROWS:
        yield _Schedule("row by row", rows, frozenset(range(1, len(rows) + 1)))
    rng = random.Random(12)
    for _ in range(random_count):
        some = frozenset({n for n in range(1, len(arrivals)) if rng.random() < 0.5} | {len(arrivals)})
        if some not in tried:
            tried.add(some)
            yield _Schedule(f"runs after arrivals {', '.join(map(str, sorted(some)))}", arrivals, some)


def _single_rows(arrivals: Sequence[_Arrival]) -> Iterator[_Arrival]:
    """Each row as an arrival of its own. The deletion of a key comes before its new row, as in a delta (R11)."""
    for arrival in arrivals:
        rows: Rows = sorted(arrival.table.to_pylist(), key=lambda r: not r.get(DELETED))
        for row in rows:
            yield arrival.with_rows([row])


@dataclass(frozen=True)
class _ScheduleRunner:
    """Runs schedules, each in a store of its own.

    Args:
        kind: kind of the batches.
        partition: the partition for which the binding runs.
    """

    project: Project
    binding: Binding
    kind: Kind
    spark: Any
    partition: str | Mapping[str, object] | None

    def run(self, schedule: _Schedule) -> dict[str, Rows]:
        """Final rows of the channels that the binding writes."""
        with World(self.project, self.spark) as store:
            for number, arrival in enumerate(schedule.arrivals, start=1):
                if arrival.table.num_rows or self.kind == "base":
                    store.insert(arrival.channel, arrival.table, kind=self.kind)
                if number not in schedule.runs:
                    continue
                store.run(self.binding.name, self.partition)
                if schedule.compact_and_rerun:
                    for state in store.channels():
                        store.compact(state.channel.name)
                    store.run(self.binding.name, self.partition)
            return {c.name: rows_of(store, c.name) for c in self.binding.writes}


@dataclass
class _CounterExampleSearch:
    """Search for the smallest arrivals for which a schedule and a single run differ on a channel."""

    runner: _ScheduleRunner
    schedule: _Schedule
    channel: str
    _results: dict[str, tuple[Rows, Rows]] = field(default_factory=dict)

    def counter_example(self) -> str:
        smallest = shrink([a.table.to_pylist() for a in self.schedule.arrivals], self._fails, _MAX_SHRINK_TRIES)
        self._drop_unneeded_runs(smallest)
        actual, expected = self._actual_and_expected(smallest)
        law = f"channel {self.channel!r}: {self.schedule.name} = all at once does not hold (R12)"
        lines = [f"{law}. The smallest input that shows it:"]
        for number, (arrival, rows) in enumerate(zip(self.schedule.arrivals, smallest, strict=True), start=1):
            lines += [f"  {arrival.channel} <- {rows}"] if rows else []
            lines += [f"  run {self.runner.binding.name}"] if number in self.schedule.runs else []
        lines += [f"  gives {actual}", f"  all at once gives {expected}", f"  {difference(actual, expected)}"]
        return "\n".join(lines)

    def _drop_unneeded_runs(self, lists: Sequence[Rows]) -> None:
        """Remove each run that is not needed to reproduce the failure. The last run stays."""
        *earlier, last = sorted(self.schedule.runs)
        tables = [a.with_rows(rows) for a, rows in zip(self.schedule.arrivals, lists, strict=True)]
        expected = self._output_rows(_single_run_schedule(tables))

        def with_runs(runs: Sequence[int]) -> _Schedule:
            return replace(self.schedule, runs=frozenset([*runs, last]))

        def fails(runs: Lists) -> bool:
            return self._output_rows(replace(with_runs(runs[0]), arrivals=tables)) != expected

        self.schedule = with_runs(shrink([earlier], fails, _MAX_SHRINK_TRIES)[0])
        self._results.clear()

    def _fails(self, lists: Sequence[Rows]) -> bool:
        actual, expected = self._actual_and_expected(lists)
        return actual != expected

    def _actual_and_expected(self, lists: Sequence[Rows]) -> tuple[Rows, Rows]:
        """Result of the schedule, and result of a single run."""
        key = repr(lists)
        if key not in self._results:
            arrivals = [a.with_rows(rows) for a, rows in zip(self.schedule.arrivals, lists, strict=True)]
            smaller = replace(self.schedule, arrivals=arrivals)
            self._results[key] = self._output_rows(smaller), self._output_rows(_single_run_schedule(arrivals))
        return self._results[key]

    def _output_rows(self, schedule: _Schedule) -> Rows:
        return self.runner.run(schedule)[self.channel]
