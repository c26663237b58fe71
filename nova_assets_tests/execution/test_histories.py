"""Random histories against a naive model: whatever happens in between, what is read is what recomputing gives.

The naive model keeps every version of every channel whole, as a plain dict or bag, and knows nothing of blocks.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import nova_assets as nova
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.settings import load_settings
from nova_assets.store.store import Store
from nova_assets_tests.effort import examples
from nova_assets_tests.stub_engine import StubEngine
from nova_assets_tests.stub_merge import Row

pytestmark = pytest.mark.slow

DDL = "k bigint, v bigint"

keyed_rows = st.dictionaries(st.integers(0, 5), st.integers(0, 9), max_size=4).map(
    lambda d: [{"k": k, "v": v} for k, v in d.items()]
)
bag_rows = st.lists(st.builds(lambda k, v: {"k": k, "v": v}, st.integers(0, 3), st.integers(0, 2)), max_size=4)


def bag(rows: list[Row]) -> Counter[str]:
    return Counter(json.dumps({"k": r["k"], "v": r["v"]}, sort_keys=True) for r in rows)


def custom_merge(base: list[Row], delta: list[Row]) -> list[Row]:
    return [r for r in base if r["k"] not in {d["k"] for d in delta}] + [d for d in delta if d["v"] >= 0]


def custom_chain(first: list[Row], then: list[Row]) -> list[Row]:
    return [r for r in first if r["k"] not in {d["k"] for d in then}] + then


def custom_diff(old: list[Row], new: list[Row]) -> list[Row]:
    before, after = {r["k"]: r["v"] for r in old}, {r["k"]: r["v"] for r in new}
    gone = [{"k": k, "v": -1} for k in before if k not in after]
    return gone + [{"k": k, "v": v} for k, v in after.items() if before.get(k) != v]


def absent_merge(base: list[Row], delta: list[Row]) -> list[Row]:
    return base + [d for d in delta if d["k"] not in {r["k"] for r in base} and d["v"] >= 0]


def absent_chain(first: list[Row], then: list[Row]) -> list[Row]:
    return first + [d for d in then if d["k"] not in {r["k"] for r in first if r["v"] >= 0}]


MODELS: dict[str, Any] = {
    "append": nova.Append(),
    "upsert": nova.Upsert(key="k"),
    "ordered": nova.Upsert(key="k", order_by="v"),
    "keyed": nova.Keyed(key="k", combine={"v": "sum"}),
    "custom": nova.Custom(merge=custom_merge, chain=custom_chain, diff=custom_diff),
    "absent": nova.Custom(merge=absent_merge, chain=absent_chain, diff=custom_diff, version="2"),
}

OF_ONE_BLOCK = {
    "append": ["append"],
    "custom": ["custom", "absent"],
    **{model: ["upsert", "ordered", "keyed"] for model in ("upsert", "ordered", "keyed")},
}
"""Model of a channel -> models that a single block may have."""


def apply(model: str, state: Any, rows: list[Row]) -> Any:
    """One delta on a naive state: a Counter for a bag, a dict for keys."""
    if model == "append":
        return state + bag(rows)
    state = dict(state)
    for r in sorted(rows, key=lambda r: not r.get("_deleted", False)):
        k, v = r["k"], r["v"]
        if model == "absent":
            if v >= 0:
                state.setdefault(k, v)
        elif r.get("_deleted") or (model == "custom" and v < 0):
            state.pop(k, None)
        elif model == "keyed" and k in state:
            state[k] += v
        elif model == "ordered" and k in state:
            state[k] = max(state[k], v)
        else:
            state[k] = v
    return state


def naive(model: str, rows: list[Row]) -> Any:
    return bag(rows) if model == "append" else {r["k"]: r["v"] for r in rows}


class Histories(RuleBasedStateMachine):
    """Inserts, runs, failures, superseded and resumed executions, reopened stores, on one channel of each model."""

    model = "append"
    reads_old = True

    @initialize()
    def open(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.states: list[Any] = [Counter() if self.model == "append" else {}]
        self.table = nova.Channel("table", merge=MODELS[self.model], schema=DDL)
        self.copy = nova.Channel("copy", merge=MODELS[self.model], schema=DDL)
        self.saw: list[tuple[list[Row], list[Row], list[Row]]] = []
        self.fail = False
        self.cursor = 0
        self.consumed = False
        self.collected = False
        self.catalog = open_catalog("sqlite://")
        self.reopen()

    def teardown(self) -> None:
        if hasattr(self, "catalog"):
            self.catalog.close()
        if hasattr(self, "folder"):
            self.folder.cleanup()

    @rule()
    def reopen(self) -> None:
        """Another process: nothing is remembered but what the catalog says."""
        root = Path(self.folder.name)
        config = load_settings(start_folder=root, catalog="sqlite://", warehouse=str(root / "wh"), gc_grace=1e-6)
        self.store = Store(config, self.project(), self.catalog, StubEngine(root / "wh"))
        self.store.register(self.store.project)

    def project(self) -> nova.Project:
        def mirror(table: Any) -> list[Row]:
            """The incremental copy: what is new on the table is the copy's delta."""
            new: list[Row] = table.new if self.reads_old else table
            self.saw.append((table.old, new, table.all) if self.reads_old else ([], new, []))
            if self.fail:
                raise RuntimeError("as asked")
            return new

        reads = nova.changes(self.table) if self.reads_old else nova.new(self.table)
        task = nova.task(consumes=reads, produces=nova.delta(self.copy))(mirror)
        return nova.Project([nova.bind(nova.Workflowette("mirror", [task]))])

    def delta(self, data: st.DataObject) -> list[Row]:
        if self.model == "append":
            return data.draw(bag_rows)
        rows: list[Row] = data.draw(keyed_rows)
        if self.model == "custom":
            return [{**r, "v": -1} if data.draw(st.booleans()) else r for r in rows]
        made = []
        for r in rows:
            shape = data.draw(st.sampled_from(["live", "live", "gone", "both"]))
            made += [{**r, "_deleted": True}] if shape in ("gone", "both") else []
            made += [{**r, "_deleted": False}] if shape in ("live", "both") else []
        return made

    @rule(data=st.data())
    def insert_delta(self, data: st.DataObject) -> None:
        rows = self.delta(data)
        model = data.draw(st.sampled_from([self.model, *OF_ONE_BLOCK[self.model]]))
        try:
            commit = self.store.insert("table", rows, merge=None if model == self.model else MODELS[model])
        except nova.UnrepresentableChange:
            lags = 0 < self.cursor < len(self.states) - 1
            assert model != self.model and self.collected and lags and not self.reads_old
            return
        if rows:
            self.states.append(apply(model, self.states[-1], rows))
        assert commit.seq == len(self.states) - 1

    @rule(data=st.data())
    def insert_base(self, data: st.DataObject) -> None:
        rows = data.draw(bag_rows if self.model == "append" else keyed_rows)
        if self.model == "append":
            lost = self.states[-1] - bag(rows)
            if self.consumed and lost:
                with pytest.raises(nova.UnrepresentableChange) as met:
                    self.store.insert("table", rows, kind="base")
                assert met.value.dropped == sum(lost.values())
                return
        self.store.insert("table", rows, kind="base")
        self.states.append(naive(self.model, rows))

    @rule()
    def run(self) -> None:
        self.fail = False
        self.store.run("mirror")
        self.check_saw()
        self.cursor = len(self.states) - 1
        self.consumed = self.cursor > 0 or self.consumed

    @rule()
    def fail_a_run(self) -> None:
        self.fail = True
        with pytest.raises(nova.TaskFailed):
            self.store.run("mirror")
        self.check_saw()
        # it keeps its pins, so it may yet be resumed and consume what it has pinned
        self.consumed = len(self.states) > 1 or self.consumed

    @rule(data=st.data())
    def fail_then_insert_then_resume(self, data: st.DataObject) -> None:
        """The resumed execution reads what it had pinned; what came meanwhile is read by the next."""
        pinned = len(self.states) - 1
        self.fail = True
        with pytest.raises(nova.TaskFailed) as met:
            self.store.run("mirror")
        self.insert_delta(data)
        self.fail = False
        self.store.run("mirror", resume=met.value.execution_id)
        self.check_saw(pinned)
        self.cursor = pinned
        self.consumed = self.cursor > 0 or self.consumed

    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        """R19: a base at head + 1."""
        at = data.draw(st.integers(0, len(self.states) - 1))
        lost = self.model == "append" and self.consumed and self.states[-1] - self.states[at]
        try:
            assert self.store.restore("table", at).seq == len(self.states)
            self.states.append(self.states[at])
            assert not lost
        except nova.BlockCollected:
            assert self.collected
        except nova.UnrepresentableChange:
            assert lost

    @rule()
    def compact(self) -> None:
        heads = [s.head for s in self.store.channels()]
        self.store.compact("table")
        self.store.compact("copy")
        assert [s.head for s in self.store.channels()] == heads, "R14: no number is taken"

    @rule()
    def chain(self) -> None:
        self.store.compact("table", chained=True)
        self.store.compact("copy", chained=True)

    @rule()
    def collect_what_nobody_needs(self) -> None:
        self.store.collect_garbage("table")
        self.store.collect_garbage("copy")
        self.collected = True
        listed = {f.path for c in ("table", "copy") for v in self.store.held(c) for f in v.block.manifest.files}
        for path in listed:
            assert (Path(self.folder.name) / "wh" / path).is_file()

    @rule(chained=st.booleans())
    def upkeep(self, chained: bool) -> None:
        """As it happens by itself, one right after the other."""
        self.chain() if chained else self.compact()
        self.collect_what_nobody_needs()

    @rule(data=st.data(), chained=st.booleans())
    def run_while_others_insert_and_upkeep_goes_on(self, data: st.DataObject, chained: bool) -> None:
        """What it has pinned stays, and so does what it will ask for once it has committed."""
        self.fail, pinned = False, len(self.states) - 1
        execution = self.store.runtime.begin("mirror")
        self.consumed = pinned > 0 or self.consumed  # a live one is about to set a cursor
        self.insert_delta(data)
        self.upkeep(chained)
        self.store.runtime.run_tasks_and_commit(execution)
        self.check_saw(pinned)
        self.cursor = pinned

    @rule()
    def collect_what_is_too_old(self) -> None:
        self.store.collect_garbage("table", retain="1h")

    def check_saw(self, head: int | None = None) -> None:
        old, new, everything = self.saw[-1]
        head = len(self.states) - 1 if head is None else head
        if self.reads_old:
            assert naive(self.model, old) == self.states[self.cursor]
            assert naive(self.model, everything) == self.states[head]
        assert apply(self.model, self.states[self.cursor], new) == self.states[head]
        if self.model in ("upsert", "ordered", "keyed"):
            assert all(isinstance(r["_deleted"], bool) for r in new)
            assert not any("_deleted" in r and r["_deleted"] for r in [*old, *everything])
            kinds = Counter((r["k"], r["_deleted"]) for r in new)
            assert all(n == 1 for n in kinds.values()), "at most one deletion and one live row per key (R11)"

    @invariant()
    def every_version_reads_as_it_was(self) -> None:
        if not hasattr(self, "store"):
            return
        head = len(self.states) - 1
        for at, state in enumerate(self.states):
            needed = not self.collected or at == head or (self.reads_old and at == self.cursor)
            rows = self.answer(needed, at=at)
            assert rows is None or naive(self.model, rows) == state, at

    def answer(self, needed: bool, **what: Any) -> list[Row] | None:
        """What is read; None where it was collected, and might be."""
        try:
            return self.store.read("table", **what).to_spark()  # type: ignore[return-value]
        except nova.BlockCollected as gone:
            assert not needed, gone
            assert "since" in what or what["at"] < gone.oldest
            return None

    @invariant()
    def the_copy_is_what_was_consumed(self) -> None:
        """R12: the incremental copy equals the recomputed one, at the cursor."""
        if hasattr(self, "store"):
            assert naive(self.model, self.store.read("copy").to_spark()) == self.states[self.cursor]  # type: ignore[arg-type]

    @precondition(lambda self: len(self.states) > 1 and self.model != "append")
    @rule(data=st.data())
    def changes_between_any_two_versions(self, data: st.DataObject) -> None:
        i = data.draw(st.integers(0, len(self.states) - 1))
        j = data.draw(st.integers(i, len(self.states) - 1))
        rows = self.answer(not self.collected or (i == self.cursor and j == len(self.states) - 1), since=i, at=j)
        assert rows is None or apply(self.model, self.states[i], rows) == self.states[j]


def machine(name: str, reads_old: bool = True) -> type[RuleBasedStateMachine]:
    made: Any = type(f"{name.title()}Histories", (Histories,), {"model": name, "reads_old": reads_old})
    made.TestCase.settings = settings(
        max_examples=examples(6, 12), stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck)
    )
    return made  # type: ignore[no-any-return]


TestAppendHistories = machine("append").TestCase
TestUpsertHistories = machine("upsert").TestCase
TestOrderedHistories = machine("ordered").TestCase
TestKeyedHistories = machine("keyed").TestCase
TestCustomHistories = machine("custom").TestCase
TestAppendOfNewAlone = machine("append", reads_old=False).TestCase
TestUpsertOfNewAlone = pytest.mark.long(machine("upsert", reads_old=False).TestCase)
TestKeyedOfNewAlone = pytest.mark.long(machine("keyed", reads_old=False).TestCase)
