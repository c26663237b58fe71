"""R13 over random histories: a partitioned channel against a naive model that keeps every version of every partition.

Two consumers read it: one whole, one partition by partition, each with its own cursors.
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
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import nova_assets as nova
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.settings import load_settings
from nova_assets.store.store import Store
from nova_assets_tests.effort import examples
from nova_assets_tests.stub_engine import StubEngine
from nova_assets_tests.stub_merge import Row

pytestmark = pytest.mark.slow

DDL = "p string, k bigint, v bigint"
PARTITIONS = ("a", "b", "c")
MODELS: dict[str, nova.Append | nova.Upsert | nova.Keyed] = {
    "append": nova.Append(),
    "upsert": nova.Upsert(key=["p", "k"]),
    "keyed": nova.Keyed(key=["p", "k"], combine={"v": "sum"}),
}

rows_of_keys = st.dictionaries(
    st.tuples(st.sampled_from(PARTITIONS), st.integers(0, 3)), st.integers(0, 9), max_size=5
).map(lambda d: [{"p": p, "k": k, "v": v} for (p, k), v in d.items()])
State = Counter[str]


def text(row: Row) -> str:
    return json.dumps({"p": row["p"], "k": row["k"], "v": row["v"]})


def bag(rows: Any) -> State:
    return Counter(text(r) for r in rows)


def apply(model: str, state: State, rows: Any) -> State:
    if model == "append":
        return state + bag(rows)
    by_key = {(r["p"], r["k"]): r["v"] for r in map(json.loads, state)}
    for r in sorted(rows, key=lambda r: not r.get("_deleted", False)):
        key = (r["p"], r["k"])
        if r.get("_deleted"):
            by_key.pop(key, None)
        else:
            by_key[key] = by_key.get(key, 0) + r["v"] if model == "keyed" else r["v"]
    return bag({"p": p, "k": k, "v": v} for (p, k), v in by_key.items())


def part(state: State, p: str) -> State:
    return Counter({t: n for t, n in state.items() if json.loads(t)["p"] == p})


def told(model: str, state: State, events: list[tuple[str, Any, str | None]]) -> State:
    """What a consumer that had ``state`` is to have after some events: of drops it is not told (R19).

    A bag cannot tell of rows that went: what was dropped stays with its consumers, whatever base comes afterwards. And
    a base empties the partitions that it leaves out; one that was dropped is empty, and is not touched.
    """
    kept: State = Counter()
    dropped: set[str] = set()
    for kind, rows, p in events:
        if kind == "delta":
            state = apply(model, state, rows)
        elif kind == "base":
            left = [part(state, q) for q in dropped - {r["p"] for r in rows}] if p is None else [state - part(state, p)]
            state = sum(left, bag(rows))
        elif model == "append":
            kept, state = kept + part(state, p or ""), state - part(state, p or "")
        dropped = dropped | {p or ""} if kind == "drop" else dropped - {p, *(r["p"] for r in rows)}
    return kept + state


class PartitionHistories(RuleBasedStateMachine):
    """Inserts over several partitions, bases of all or of one, partitions that are dropped, and both consumers."""

    model = "append"

    @initialize()
    def open(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.states: list[State] = [Counter()]
        self.events: list[tuple[str, Any, str | None]] = []
        self.cursors: dict[str, int] = {}
        self.copies: dict[str, State] = {p: Counter() for p in ("", *PARTITIONS)}
        self.saw: Any = None
        self.collected = False
        root = Path(self.folder.name)
        by = nova.dynamic("p")
        self.table, self.whole, self.each = (
            nova.Channel(n, merge=MODELS[self.model], schema=DDL, partitions=by) for n in ("table", "whole", "each")
        )

        def mirror(table: nova.View) -> Any:
            self.saw = (table.old, table.new, table.all)
            return table.new

        made = [
            nova.task(consumes=nova.changes(self.table), produces=nova.delta(c))(mirror)
            for c in (self.whole, self.each)
        ]
        self.project = nova.Project(
            [
                nova.bind(nova.Workflowette("all", made[:1]), name="all", partitions=[]),
                nova.bind(nova.Workflowette("one", made[1:]), name="one"),
            ]
        )
        config = load_settings(start_folder=root, catalog="sqlite://", warehouse=str(root / "wh"), gc_grace=1e-6)
        self.catalog = open_catalog("sqlite://")
        self.store = Store(config, self.project, self.catalog, StubEngine(root / "wh", DDL))
        self.store.register(self.project)

    def teardown(self) -> None:
        if hasattr(self, "catalog"):
            self.catalog.close()
            self.folder.cleanup()

    @property
    def now(self) -> State:
        return self.states[-1]

    @rule(data=st.data())
    def insert_delta(self, data: st.DataObject) -> None:
        rows = data.draw(rows_of_keys)
        if self.model != "append":
            rows = [{**r, "_deleted": data.draw(st.booleans())} for r in rows]
        commit = self.store.insert("table", rows)
        if rows:
            self.take("delta", rows, None, apply(self.model, self.now, rows))
            assert {b.partition for b in commit.blocks} == {f"p={r['p']}" for r in rows}
            assert {b.hi for b in commit.blocks} == {len(self.states) - 1}, "one number for all partitions"

    def may_lose_rows(self, lost: State) -> bool:
        return self.model != "append" or not any(self.cursors.values()) or not lost

    @rule(rows=rows_of_keys)
    def insert_base(self, rows: list[Row]) -> None:
        """It empties the partitions that it leaves out."""
        if self.may_lose_rows(self.now - bag(rows)):
            self.store.insert("table", rows, kind="base")
            self.take("base", rows, None, bag(rows))
        else:
            with pytest.raises(nova.UnrepresentableChange):
                self.store.insert("table", rows, kind="base")

    @rule(rows=rows_of_keys, p=st.sampled_from(PARTITIONS))
    def insert_base_of_one_partition(self, rows: list[Row], p: str) -> None:
        """It replaces only its own."""
        rows = [r for r in rows if r["p"] == p]
        if self.may_lose_rows(part(self.now, p) - bag(rows)):
            self.store.insert("table", rows, kind="base", partition=p)
            self.take("base", rows, p, self.now - part(self.now, p) + bag(rows))

    @rule(p=st.sampled_from(PARTITIONS))
    def drop(self, p: str) -> None:
        """R19: it takes a number, if there may be anything to drop."""
        commit = self.store.drop("table", p)
        assert commit is not None or not part(self.now, p)
        if commit is not None:
            self.take("drop", None, p, self.now - part(self.now, p))
            assert commit.seq == len(self.states) - 1

    def take(self, kind: str, rows: Any, p: str | None, state: State) -> None:
        self.states.append(state)
        self.events.append((kind, rows, p))

    def told(self, i: int, j: int, p: str | None = None) -> State:
        state = told(self.model, self.states[i], self.events[i:j])
        return state if p is None else part(state, p)

    @rule()
    def run_whole(self) -> None:
        self.store.run("all")
        self.check_run("", None)
        assert bag(self.store.read("whole").to_spark()) == self.copies[""]

    @rule(p=st.sampled_from(PARTITIONS))
    def run_one(self, p: str) -> None:
        self.store.run("one", partition=f"p={p}")
        self.check_run(p, p)
        assert bag(self.store.read("each", partition=p).to_spark()) == self.copies[p]

    def check_run(self, who: str, p: str | None) -> None:
        old, new, everything = self.saw
        cursor, head = self.cursors.get(who, 0), len(self.states) - 1
        before = self.states[cursor] if p is None else part(self.states[cursor], p)
        assert bag(old) == before and bag(everything) == (self.now if p is None else part(self.now, p))
        expected = self.told(cursor, head, p) if who in self.cursors else bag(everything)  # 0 is a cursor, too
        assert apply(self.model, before, new) == expected
        self.copies[who] = apply(self.model, self.copies[who], new)
        if not any(kind == "drop" for kind, _, _ in self.events[:head]):
            assert self.copies[who] == expected
        self.cursors[who] = head

    @rule(only=st.sampled_from([None, *PARTITIONS]), chained=st.booleans())
    def compact(self, only: str | None, chained: bool) -> None:
        for channel in ("table", "whole", "each"):
            self.store.compact(channel, chained=chained, partitions=None if only is None else [f"p={only}"])

    @rule()
    def collect(self) -> None:
        for channel in ("table", "whole", "each"):
            self.store.collect_garbage(channel)
        self.collected = True

    def answer(self, needed: bool, **what: Any) -> Any:
        """What is read; None where it was collected, and might be."""
        try:
            return self.store.read("table", **what).to_spark()
        except nova.BlockCollected as gone:
            assert self.collected and not needed, gone
            return None

    @invariant()
    def every_version_of_every_partition_reads_as_it_was(self) -> None:
        if not hasattr(self, "store"):
            return
        for at, state in enumerate(self.states):
            rows = self.answer(at in (len(self.states) - 1, self.cursors.get("")), at=at)
            assert rows is None or bag(rows) == state, at
        for p in PARTITIONS:
            assert bag(self.store.read("table", partition={"p": p}).to_spark()) == part(self.now, p)
        listed = {s.partition for s in self.store.partitions("table") if s.partition}
        assert {f"p={json.loads(t)['p']}" for t in self.now} <= listed

    @rule(data=st.data())
    def changes_between_any_two_versions(self, data: st.DataObject) -> None:
        i = data.draw(st.integers(0, len(self.states) - 1))
        j = data.draw(st.integers(i, len(self.states) - 1))
        lost = (self.states[i] - self.told(i, k) for k in range(i, j + 1))
        if self.model == "append" and any(lost):
            return  # a bag that lost rows in between, and got them back, tells both
        p = data.draw(st.sampled_from([None, *PARTITIONS]))
        needed = j == len(self.states) - 1 and i == self.cursors.get("" if p is None else p)
        rows = self.answer(needed, since=i, at=j, partition=p)
        if rows is None:
            return
        before, after = self.states[i], self.states[j] if i == 0 else self.told(i, j)
        if p is not None:
            before, after = part(before, p), part(after, p)
        assert apply(self.model, before, rows) == after


def machine(name: str) -> type[RuleBasedStateMachine]:
    made: Any = type(f"{name.title()}PartitionHistories", (PartitionHistories,), {"model": name})
    made.TestCase.settings = settings(
        max_examples=examples(6, 15), stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck)
    )
    return made  # type: ignore[no-any-return]


TestAppendPartitionHistories = machine("append").TestCase
TestUpsertPartitionHistories = machine("upsert").TestCase
TestKeyedPartitionHistories = machine("keyed").TestCase
