"""The four ways in which a task may take new data in (Nova, figure 1), in one small workflow: from scratch; new rows
alone; new rows beside a table that is looked up; new rows beside what was seen before."""

from __future__ import annotations

from typing import Any

import pytest

import nova_assets as nova
from nova_assets.store.store import Store
from nova_assets_tests.execution.conftest import Opener
from nova_assets_tests.execution.rule_channels import keys, read, rows
from nova_assets_tests.stub_merge import Row

DDL = "k bigint, v bigint"

articles = nova.Channel("articles", schema=DDL)
largest = nova.Channel("largest", schema=DDL)
tagged = nova.Channel("tagged", schema=DDL)
seen = nova.Channel("seen", merge=nova.Upsert(key="k"), schema=DDL)
unique = nova.Channel("unique", schema=DDL)


class Figure:
    """The workflow as two bindings, and the keys that each of its tasks was given, run by run."""

    def __init__(self) -> None:
        self.given: dict[str, list[Any]] = {"detect": [], "tag": [], "shingle": [], "drop": []}

        @nova.task(consumes=nova.all(articles), produces=nova.base(largest))
        def detect(articles: list[Row]) -> list[Row]:
            self.given["detect"].append(keys(articles))
            return [max(articles, key=lambda r: r["k"])]

        @nova.task(consumes=[nova.new(articles), nova.all(largest)], produces=nova.delta(tagged))
        def tag(articles: list[Row], largest: list[Row]) -> list[Row]:
            self.given["tag"].append((keys(articles), keys(largest)))
            return [{**r, "v": sum(x["k"] for x in largest)} for r in articles]

        @nova.task(consumes=nova.new(tagged), produces=nova.delta("shingled"))
        def shingle(tagged: list[Row]) -> list[Row]:
            self.given["shingle"].append(keys(tagged))
            return [{**r, "k": r["k"] % 10} for r in tagged]

        @nova.task(consumes=[nova.new("shingled"), nova.all(seen)], produces=[nova.delta(seen), nova.delta(unique)])
        def drop(shingled: list[Row], seen: list[Row]) -> dict[str, list[Row]]:
            self.given["drop"].append((keys(shingled), keys(seen)))
            known = {r["k"] for r in seen}
            fresh = list({r["k"]: r for r in shingled if r["k"] not in known}.values())
            return {"seen": fresh, "unique": fresh}

        weekly = nova.bind(nova.Workflowette("detect", [detect]), when=nova.every("7d"))
        at_once = nova.bind(nova.Workflowette("dedup", [tag, shingle, drop]), when=nova.on_data(articles))
        self.project = nova.Project([weekly, at_once])


def day(store: Store, *articles: int) -> list[str]:
    """New articles, and the names of the bindings that ran because of them."""
    store.insert("articles", rows(*articles))
    return sorted(run.binding for run in store.run_due())


@pytest.mark.slow
def test_a_task_works_from_scratch_or_on_new_rows_with_or_without_what_it_looks_up(opened: Opener) -> None:
    figure = Figure()
    store = opened(figure.project)
    store.register(figure.project)
    day(store, 1, 12)
    day(store, 2, 11)
    store.run("detect")
    day(store, 23)
    assert figure.given["detect"] == [[1, 12], [1, 2, 11, 12]], "from scratch: all rows"
    assert figure.given["shingle"] == [[1, 12], [2, 11], [23]], "stateless: new rows alone"
    assert figure.given["tag"] == [([1, 12], [12]), ([2, 11], [12]), ([23], [12])], "and a table beside them"
    assert figure.given["drop"] == [([1, 2], []), ([1, 2], [1, 2]), ([3], [1, 2])], "and its own state"
    assert keys(read(store, "unique")) == [1, 2, 3] and keys(read(store, "largest")) == [12]


@pytest.mark.slow
def test_a_base_replaces_and_a_delta_adds(opened: Opener) -> None:
    figure = Figure()
    store = opened(figure.project)
    store.register(figure.project)
    day(store, 1)
    day(store, 15)
    store.run("detect")
    assert [b.range for i in store.timeline("largest") for b in i.blocks] == ["B1", "B2"]
    assert [b.range for i in store.timeline("tagged") for b in i.blocks] == ["Δ(0→1)", "Δ(1→2)"]
    assert keys(read(store, "largest")) == [15] and keys(read(store, "largest", at=1)) == [1]
    assert keys(read(store, "tagged")) == [1, 15] and keys(read(store, "tagged", at=1)) == [1]


@pytest.mark.slow
def test_each_binding_runs_at_its_own_rate(opened: Opener, clock: Any) -> None:
    figure = Figure()
    store = opened(figure.project)
    store.register(figure.project)
    assert day(store, 1) == ["dedup", "detect"], "a period begins with a run"
    clock.advance(86_400)
    assert day(store, 2) == day(store, 3) == ["dedup"]
    clock.advance(6 * 86_400)
    assert [run.binding for run in store.run_due()] == ["detect"], "a week is over, and no article came"
