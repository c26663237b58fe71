"""Jobs over random graphs of bindings and plain assets (DESIGN §5): after a run that succeeded, nothing that it ran has
unread data.

Random inserts, selections, failures, retries from failure, and outputs that are often empty. The judges are the
cursors in the catalog, Dagster's own record of materializations, and a recompute in plain Python.
"""

from __future__ import annotations

import inspect
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

import nova_assets as nova
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.dagster_bridge import build_definitions, resources
from nova_assets.store.store import Store
from nova_assets_tests.effort import examples
from nova_assets_tests.stub_engine import StubEngine
from nova_assets_tests.stub_merge import Row

pytestmark = [pytest.mark.slow, pytest.mark.dagster, pytest.mark.filterwarnings("ignore")]

STEPS = examples(12, 24)
SEEDS = range(int(os.environ.get("NOVA_FUZZ_SEEDS", "3")))
DDL = "k bigint, p string"
PARTS = ("x", "y")


class Graph:
    """Random bindings and plain assets: each reads one to three channels, and writes rows of its inputs to one or
    two of its own.

    Args:
        partitioned: all channels by one column; each run is then of one partition.
        share_of_assets: how many of the writers are plain assets; the others are bindings.
    """

    def __init__(self, rng: random.Random, partitioned: bool, share_of_assets: float) -> None:
        self.rng = rng
        self.failing: dict[str, int] = {}
        self.reads: dict[str, list[str]] = {}
        self.writes: dict[str, dict[str, int]] = {}  # binding -> channel -> it gets keys that this divides
        dims = [nova.static("p", PARTS)] if partitioned else []
        self.keys = PARTS if partitioned else ("",)
        channels = {n: nova.Channel(n, schema=DDL, partitions=dims) for n in ("s1", "s2", "s3")}
        self.sources = list(channels)
        self.assets: list[dg.AssetsDefinition] = []
        bindings = []
        for n in range(rng.randint(3, 5)):
            name = f"b{n}"
            new = rng.sample(list(channels), min(len(channels), rng.choice((1, 1, 2))))
            also = [c for c in channels if c not in new and rng.random() < 0.1]
            self.reads[name] = new
            self.writes[name] = {f"c{n}{i}": rng.choice((1, 2, 3)) for i in range(rng.choice((1, 1, 2)))}
            mine = {c: nova.Channel(c, schema=DDL, partitions=dims) for c in self.writes[name]}
            if rng.random() < share_of_assets:
                self.assets.append(self.asset(name, {**dict.fromkeys(new, "new"), **dict.fromkeys(also, "all")}))
            else:
                edges = [*(nova.new(channels[c]) for c in new), *(nova.all(channels[c]) for c in also)]
                bindings.append(self.binding(name, edges, list(mine.values()), lazy=rng.random() < 0.4))
            channels |= mine
        self.project = nova.Project(bindings, channels=list(channels.values()))

    def binding(self, name: str, edges: Sequence[Any], written: Sequence[nova.Channel], *, lazy: bool) -> nova.Binding:
        outputs = [nova.delta(c) for c in written]
        step = nova.task(name="step", consumes=edges, produces=outputs, skip_if_no_new=lazy)(self.function(name))
        return nova.bind(nova.Workflowette(name, [step]))

    def asset(self, name: str, mode_by_channel: dict[str, str]) -> dg.AssetsDefinition:
        make_rows = self.function(name)

        def step(**frames: list[Row]) -> Iterator[Any]:
            made = make_rows(**frames)
            for channel in self.writes[name]:
                yield dg.Output(made[channel] if len(self.writes[name]) > 1 else made, channel)

        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        step.__signature__ = inspect.Signature([inspect.Parameter(c, kind) for c in mode_by_channel])  # type: ignore[attr-defined]
        return dg.multi_asset(
            name=name,
            outs={c: dg.AssetOut(metadata={"nova/produces": "delta"}) for c in self.writes[name]},
            ins={c: dg.AssetIn(c, metadata={"nova/mode": mode}) for c, mode in mode_by_channel.items()},
            partitions_def=dg.StaticPartitionsDefinition(list(PARTS)) if self.keys != ("",) else None,
        )(step)

    def function(self, binding: str) -> Callable[..., Any]:
        def step(**frames: list[Row]) -> Any:
            if self.failing.get(binding, 0):
                self.failing[binding] -= 1
                raise ValueError("as the test wants it")
            rows = [r for c in self.reads[binding] for r in frames[c]]
            made = {c: [r for r in rows if r["k"] % by == 0] for c, by in self.writes[binding].items()}
            return made if len(made) > 1 else next(iter(made.values()))

        return step

    def recompute(self, channel: str, sources: dict[str, Counter[int]]) -> Counter[int]:
        """What a channel holds once everything has run."""
        if channel in sources:
            return sources[channel]
        name = next(b for b, written in self.writes.items() if channel in written)
        rows = sum((self.recompute(c, sources) for c in self.reads[name]), Counter[int]())
        return Counter({k: n for k, n in rows.items() if k % self.writes[name][channel] == 0})


class World:
    current: World

    def __init__(self, root: Path, graph: Graph, instance: dg.DagsterInstance) -> None:
        self.graph, self.instance = graph, instance
        self.bindings = {b.name for b in graph.project.bindings}
        bound = build_definitions(
            graph.project, assets=graph.assets, catalog=f"sqlite:///{root}/c.db", warehouse=str(root / "wh")
        )
        written = dg.AssetSelection.assets(*(c for of in graph.writes.values() for c in of))
        self.defs = dg.Definitions.merge(bound, dg.Definitions(jobs=[dg.define_asset_job("everything", written)]))
        self.store: Store = bound.resources["nova"].store()
        self.store.register(self.store.project)
        self.failed: str | None = None
        self.next = 1
        World.current = self

    def insert(self) -> None:
        rng = self.graph.rng
        rows = [{"k": self.next + n, "p": rng.choice(PARTS)} for n in range(rng.choice((1, 1, 3)))]
        self.next += len(rows)
        self.store.insert(rng.choice(self.graph.sources), rows)

    def run(self, bindings: list[str], key: str, **how: Any) -> dg.JobExecutionResult:
        selection = [dg.AssetKey(c) for b in bindings for c in self.graph.writes[b]]
        tags = {"dagster/partition": key} if key else {}
        job = dg.reconstructable(the_job)
        how = how or {"asset_selection": selection}
        with dg.execute_job(job, self.instance, tags=tags, **how) as result:
            self.failed = None if result.success else result.run_id
            if result.success:
                self.check(result, bindings, key, is_continued="reexecution_options" in how)
            return result

    def check(self, result: dg.JobExecutionResult, bindings: list[str], key: str, *, is_continued: bool) -> None:
        """No step was skipped. A binding that began in this run has read all there is; a binding that the run resumed
        has read what it had pinned (R4)."""
        assert not [e for e in result.all_events if e.is_step_skipped]
        begun = {e.step_key for e in result.all_events if e.is_step_success}
        partition = f"p={key}" if key else ""
        for name in bindings:
            execution = self.store.catalog.executions.find(name, 1, partition)[0]
            assert execution.state == "committed"
            for c in self.graph.reads[name]:
                first_step = f"{name}__steps.begin" if name in self.bindings else name
                is_new = first_step in begun and (name in self.bindings or not is_continued)
                needed = self.newest(c, partition) if is_new else execution.pins[c].head
                assert self.cursor(name, c, partition) >= needed, f"{name} has not read {c}"

    def cursor(self, binding: str, channel: str, partition: str) -> int:
        cursors = self.store.catalog.cursors.find(binding)
        return max((c.seq for c in cursors if c.channel == channel and c.partition == partition), default=0)

    def newest(self, channel: str, partition: str) -> int:
        return max((p.seq for p in self.store.catalog.histories.partitions(channel, partition)), default=0)

    def check_whole(self) -> None:
        """Everything runs, in every partition. Then channels equal a recompute, and Dagster shows each commit once."""
        self.graph.failing.clear()
        for key in self.graph.keys:
            assert self.run(list(self.graph.writes), key).success
        read = {
            c.name: Counter(r["k"] for r in self.store.read(c.name).to_spark()) for c in self.store.project.channels
        }
        sources = {c: read.get(c, Counter()) for c in self.graph.sources}
        for written in self.graph.writes.values():
            for channel in written:
                assert read[channel] == self.graph.recompute(channel, sources), channel
                records = self.instance.fetch_materializations(dg.AssetKey(channel), limit=1000).records
                shown = sorted(r.asset_materialization.metadata["nova/seq"].value for r in records)
                assert shown == list(range(1, self.store.catalog.definitions.channel(channel).head + 1)), channel


def the_job() -> dg.JobDefinition:
    """Of the graph that is tested now; Dagster finds it again by this function's name."""
    return World.current.defs.resolve_job_def("everything")


@pytest.fixture(params=[False, True], ids=["", "partitioned"])
def partitioned(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(params=[0.0, 0.7], ids=["bindings", "assets"])
def share_of_assets(request: pytest.FixtureRequest) -> float:
    return float(request.param)


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    def opener(project: Any = None, spark: Any = None, settings: Any = None) -> Store:
        return Store(settings, project, open_catalog(settings.catalog), StubEngine(settings.warehouse, DDL))

    monkeypatch.setattr(resources, "open_store", opener)
    with dg.DagsterInstance.ephemeral(str(tmp_path / "home")) as made:
        yield made


@pytest.mark.parametrize("seed", SEEDS)
def test_after_a_run_that_succeeded_nothing_it_ran_has_unread_data(
    instance: dg.DagsterInstance, tmp_path: Path, seed: int, partitioned: bool, share_of_assets: float
) -> None:
    rng = random.Random(seed)
    world = World(tmp_path, Graph(rng, partitioned, share_of_assets), instance)
    graph = world.graph
    for _ in range(max(1, STEPS // (2 * len(SEEDS)))):
        for _ in range(rng.choice((0, 1, 1, 2))):
            world.insert()
        for name in graph.writes:
            if rng.random() < 0.15:
                graph.failing[name] = 1
        names = list(graph.writes)
        chosen = rng.choice((names, names[rng.randrange(len(names)) :], rng.sample(names, rng.randint(1, len(names)))))
        key = rng.choice(graph.keys)
        failed = world.run(chosen, key)
        while not failed.success and rng.random() < 0.7:
            options = dg.ReexecutionOptions.from_failure(failed.run_id, instance)
            failed = world.run(chosen, key, reexecution_options=options)
    world.check_whole()
