"""Read modes of plain assets: wherever Dagster lets ``nova/mode`` be written, it is read, or refused on loading.

Each case is a form of asset, a place for the metadata and a mode. Rows are added, changed and deleted between three
runs. The judge is a recompute in plain Python of what each run has to read.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

import nova_assets as nova
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.dagster_bridge import build_definitions, resources
from nova_assets.errors import DefinitionError
from nova_assets.store.store import Store
from nova_assets_tests.dagster_bridge.asset_deployment import failure
from nova_assets_tests.effort import EXHAUSTIVE
from nova_assets_tests.stub_engine import StubEngine

pytestmark = [pytest.mark.dagster, pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

DDL = "k bigint, p string, v bigint"
PARTS = ("x", "y")
FORMS = ("asset", "multi_outs", "multi_specs", "reader", "multi_reader", "op", "graph")
PLACES = ("input", "dependency", "both", "asset_itself", "unloaded")
MODES = ("all", "new", "changes", "old", "nwe")
VARIANTS = ("plain", "view", "partitions", "config", "checks", "retries", "prefix", "not_given")

ACCEPTED = {
    *(("asset", p) for p in ("input", "dependency")),
    *(("multi_outs", p) for p in ("input", "dependency")),
    ("multi_specs", "dependency"),
    *(("reader", p) for p in ("input", "dependency")),
    ("multi_reader", "dependency"),
    *(("op", p) for p in ("input", "dependency")),
    ("graph", "input"),
}
"""Forms with the places where they have to accept a mode. Dagster refuses some of the others, and nova the rest."""

State = Mapping[tuple[int, str], int]
HISTORY: tuple[State, ...] = (
    {(1, "x"): 10, (2, "x"): 20, (3, "y"): 30},
    {(1, "x"): 11, (3, "y"): 30, (4, "y"): 40},
    {(1, "x"): 11, (4, "y"): 41, (5, "x"): 50},
)
"""The rows of the input before each run: rows are added, changed and deleted."""


@dataclass(frozen=True)
class Case:
    form: str
    place: str
    mode: str
    variant: str = "plain"

    def __str__(self) -> str:
        return f"{self.form}-{self.place}-{self.mode}-{self.variant}"

    @property
    def has_channel(self) -> bool:
        """Whether the asset writes a channel. The others only read."""
        return self.form in ("asset", "multi_outs", "multi_specs")

    @property
    def must_load(self) -> bool:
        return (self.form, self.place) in ACCEPTED and self.mode in ("all", "new", "changes")


class Sizes(dg.Config):
    size: int = 2


class Recorder:
    """What the runs of an asset have read, as sets of rows by the name of the view."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.reads: list[dict[str, set[Any]]] = []
        self.failures = 0

    def read(self, src: Any) -> list[dict[str, Any]]:
        if self.case.variant == "retries" and not self.failures:
            self.failures = 1
            raise ValueError("the first attempt fails")
        self.failures = 0
        is_view = isinstance(src, nova.View)
        self.reads.append({m: rows(getattr(src, m)) for m in ("all", "new", "old")} if is_view else {"": rows(src)})
        read = src.new if is_view else src
        return [{"k": r["k"], "p": r["p"], "v": -1 if r.get("_deleted") else r["v"]} for r in read]

    def results(self, src: Any) -> Iterator[Any]:
        """What the asset yields."""
        made = self.read(src)
        checks = [dg.AssetCheckResult(check_name="c", passed=True)] if self.case.variant == "checks" else []
        yield dg.MaterializeResult(check_results=checks, **({"value": made} if self.case.has_channel else {}))


def rows(frame: Any) -> set[Any]:
    return {(r["k"], r["p"], "deleted" if r.get("_deleted") else r["v"]) for r in frame}


def expected_reads(mode: str, partition: str) -> list[dict[str, set[Any]]]:
    """What each run has to read."""
    states = [{k: v for k, v in s.items() if partition in ("", k[1])} for s in HISTORY]
    found = []
    for old, new in zip([{}, *states], states, strict=False):
        changes = {(*k, v) for k, v in new.items() if old.get(k) != v} | {(*k, "deleted") for k in old if k not in new}
        views = {"all": {(*k, v) for k, v in new.items()}, "new": changes, "old": {(*k, v) for k, v in old.items()}}
        found.append(views if mode == "changes" else {"": views[mode]})
    return found


def build_asset(case: Case, recorder: Recorder) -> dg.AssetsDefinition:
    """The asset of a case, as a user writes it."""
    mode = {"nova/mode": case.mode}
    ins = {"src": dg.AssetIn("src", metadata=mode if case.place in ("input", "both") else None)}
    upstream = "other" if case.place == "unloaded" else "src"
    named = mode if case.place in ("dependency", "unloaded") else {"nova/mode": "all"} if case.place == "both" else {}
    deps = [*([dg.AssetDep("src")] if upstream != "src" else []), dg.AssetDep(upstream, metadata=named)]
    metadata = mode if case.place == "asset_itself" else {}
    name = "out" if case.has_channel else "seen"
    options: dict[str, Any] = {}
    if case.variant == "partitions":
        options["partitions_def"] = dg.StaticPartitionsDefinition(list(PARTS))
    if case.variant == "checks":
        options["check_specs"] = [dg.AssetCheckSpec("c", asset=name)]
    if case.variant == "retries":
        options["retry_policy"] = dg.RetryPolicy(max_retries=1)
    function = _function(case, recorder)
    if case.has_channel:
        metadata = {**metadata, "nova/produces": "delta"}
    if case.form in ("asset", "reader"):
        needs_deps = case.place in ("dependency", "both", "unloaded")
        return dg.asset(key=name, ins=ins, deps=deps if needs_deps else None, metadata=metadata, **options)(function)
    if case.form == "multi_outs":
        outs = {name: dg.AssetOut(metadata=metadata)}
        needs_deps = case.place in ("dependency", "both", "unloaded")
        return dg.multi_asset(outs=outs, ins=ins, deps=deps if needs_deps else None, **options)(function)
    if case.form in ("multi_specs", "multi_reader"):
        return dg.multi_asset(specs=[dg.AssetSpec(name, metadata=metadata, deps=deps)], ins=ins, **options)(function)
    metadata_of_in = mode if case.place in ("input", "both") else {}
    op = dg.op(name="load", ins={"src": dg.In(metadata=metadata_of_in)}, retry_policy=options.get("retry_policy"))(
        recorder_function(recorder)
    )
    if case.form == "op":
        keys = {"src": dg.AssetKey("src")}
        made = dg.AssetsDefinition.from_op(
            op,
            keys_by_input_name=keys,
            keys_by_output_name={"result": dg.AssetKey("seen")},
            metadata_by_output_name={"result": metadata},
        )
        return made.map_asset_specs(lambda spec: spec.replace_attributes(deps=deps))
    graph_ins = {"src": dg.AssetIn("src", metadata=mode if case.place == "dependency" else None)}
    return dg.graph_asset(name="seen", ins=graph_ins, metadata=metadata)(lambda src: op(src))


def recorder_function(recorder: Recorder) -> Callable[[Any], None]:
    def load(src) -> None:  # type: ignore[no-untyped-def]
        recorder.read(src)

    return load


def _function(case: Case, recorder: Recorder) -> Callable[..., Any]:
    if case.variant == "config":

        def configured(config: Sizes, src):  # type: ignore[no-untyped-def]
            assert config.size == 2
            yield from recorder.results(src)

        configured.__annotations__["config"] = Sizes
        return configured
    if case.variant == "view":

        def viewing(src: nova.View):  # type: ignore[no-untyped-def]
            yield from recorder.results(src)

        viewing.__annotations__["src"] = nova.View
        return viewing

    def plain(src):  # type: ignore[no-untyped-def]
        yield from recorder.results(src)

    return plain


class World:
    """A deployment of the asset of one case."""

    def __init__(self, root: Path, asset: dg.AssetsDefinition, case: Case, instance: dg.DagsterInstance) -> None:
        parts = [nova.static("p", PARTS)] if case.variant == "partitions" else []
        key = nova.Upsert(["k", "p"])
        channels = [nova.Channel(n, schema=DDL, partitions=parts, merge=key) for n in ("src", "other")]
        project = nova.Project([], channels=[*channels, nova.Channel("out", schema=DDL, partitions=parts)])
        self.prefix = ["eu"] if case.variant == "prefix" else []
        root.mkdir()
        self.defs = build_definitions(
            project,
            assets=[] if case.variant == "not_given" else [asset],
            catalog=f"sqlite:///{root}/c.db",
            warehouse=str(root / "wh"),
            key_prefix=self.prefix or None,
        )
        if case.variant == "not_given":  # the IO manager of the channel loads the input all the same
            self.defs = dg.Definitions.merge(self.defs, dg.Definitions(assets=[asset]))
        self.instance = instance
        self.store: Store = self.defs.resources["__".join([*self.prefix, "nova"])].store()  # type: ignore[index,union-attr]
        self.store.register(self.store.project)

    def change_input(self, old: State, new: State) -> None:
        live = [{"k": k, "p": p, "v": v, "_deleted": False} for (k, p), v in new.items() if old.get((k, p)) != v]
        gone = [{"k": k, "p": p, "v": 0, "_deleted": True} for k, p in old if (k, p) not in new]
        self.store.insert("src", [*live, *gone])

    def run(self, name: str, partition: str) -> str:
        """Run the asset. Returns the error; an empty text if there is none."""
        result = self.defs.resolve_implicit_global_asset_job_def().execute_in_process(
            instance=self.instance,
            asset_selection=[dg.AssetKey([*self.prefix, name])],
            partition_key=partition or None,
            raise_on_error=False,
        )
        return "" if result.success else failure(result) or "the run failed"


def play(case: Case, root: Path, instance: dg.DagsterInstance) -> str | None:
    """Run a case. Returns what is wrong; None if it is right."""
    recorder = Recorder(case)
    try:
        world = World(root, build_asset(case, recorder), case, instance)
    except (DefinitionError, dg.DagsterError, dg._check.CheckError) as refused:
        return f"it is refused: {refused}" if case.must_load else None
    mode = "changes" if case.variant == "view" and case.mode != "nwe" else case.mode  # a view has .old beside .new
    if mode in ("old", "nwe") and case.variant != "not_given":
        return "a wrong mode is accepted"
    partitions = PARTS if case.variant == "partitions" else ("",)
    written: list[dict[str, Any]] = []
    for old, new in zip([{}, *HISTORY], HISTORY, strict=False):
        world.change_input(old, new)
        for partition in partitions:
            if error := world.run("out" if case.has_channel else "seen", partition):
                return error if case.must_load or "NOVA-DEFINITION" not in error else None
    if mode in ("old", "nwe"):
        return "a wrong mode is accepted"
    expected = {p: expected_reads(mode, p) for p in partitions}
    in_order = [expected[p][n] for n in range(len(HISTORY)) for p in partitions]
    if recorder.reads != in_order:
        return f"read {recorder.reads}, not {in_order}"
    if case.has_channel:
        for views in in_order:
            read = views["new"] if mode == "changes" else views[""]
            written += [{"k": k, "p": p, "v": -1 if v == "deleted" else v} for k, p, v in read]
        stored = world.store.read("out").to_spark()
        order = ("k", "p", "v")
        if sorted(tuple(r[c] for c in order) for r in stored) != sorted(tuple(r[c] for c in order) for r in written):
            return f"the channel holds {stored}, not {written}"
    return None


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    def opener(project: Any = None, spark: Any = None, settings: Any = None) -> Store:
        return Store(settings, project, open_catalog(settings.catalog), StubEngine(settings.warehouse, DDL))

    monkeypatch.setattr(resources, "open_store", opener)
    with dg.DagsterInstance.ephemeral(str(tmp_path / "home")) as made:
        yield made


def all_cases() -> list[Case]:
    cases = [Case(*c) for c in itertools.product(FORMS, PLACES, MODES, VARIANTS)]
    some = ("plain", "retries", "not_given")
    cases = [c for c in cases if c.form not in ("op", "graph") or c.variant in some]
    return [c for c in cases if not c.has_channel or c.variant != "not_given"]


SOME = [
    Case("multi_specs", "dependency", "new"),
    Case("multi_outs", "dependency", "new", "partitions"),
    Case("asset", "dependency", "changes", "retries"),
    Case("asset", "input", "new", "prefix"),
    Case("multi_reader", "dependency", "new", "config"),
    Case("reader", "dependency", "new", "checks"),
    Case("graph", "input", "new"),
    *(Case("multi_reader", p, "new", "not_given") for p in ("dependency", "asset_itself")),
    Case("reader", "dependency", "old", "not_given"),
    Case("graph", "dependency", "new", "not_given"),
    *(Case(f, p, "new") for f in FORMS for p in PLACES if (f, p) not in ACCEPTED),
    *(Case(f, p, m) for f, p in sorted(ACCEPTED) for m in ("old", "nwe")),
]
"""Cases of continuous integration: most of them end when definitions load."""


@pytest.mark.core
def test_a_mode_is_read_or_refused(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    wrong = {str(c): w for n, c in enumerate(SOME) if (w := play(c, tmp_path / str(n), instance)) is not None}
    assert not wrong, "\n".join(f"{c}: {w}" for c, w in wrong.items())


@pytest.mark.parametrize("form", [pytest.param(f, marks=EXHAUSTIVE) for f in FORMS])
def test_every_form_and_place_and_mode(tmp_path: Path, instance: dg.DagsterInstance, form: str) -> None:
    cases = [c for c in all_cases() if c.form == form]
    assert any(c.must_load for c in cases)
    wrong = {str(c): w for n, c in enumerate(cases) if (w := play(c, tmp_path / str(n), instance)) is not None}
    assert not wrong, "\n".join(f"{c}: {w}" for c, w in wrong.items())


def test_a_planted_fault_is_found(
    tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dependencies whose metadata nobody reads: the input would be read in mode all."""
    monkeypatch.setattr("nova_assets.dagster_bridge.read_modes._dependencies", lambda asset: iter(()))
    found = play(Case("multi_specs", "dependency", "new"), tmp_path / "w", instance)
    assert found is not None and found.startswith("read ")
    assert play(replace(SOME[0], mode="all"), tmp_path / "v", instance) is None
