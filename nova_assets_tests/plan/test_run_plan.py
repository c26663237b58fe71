"""From pins to a RunPlan: what is read, how rows are handed over, and what the commit requires."""

from __future__ import annotations

import json
from typing import Any

import nova_assets as nova
from nova_assets.model.execution import Pin
from nova_assets.model.reads import describe_read
from nova_assets.plan.run import plan_run
from nova_assets.plan.run_plan import RunPlan
from nova_assets_tests.plan.histories import history

a, b, c = (nova.Channel(n, schema="k bigint, v bigint") for n in "abc")
state = nova.Channel("state", merge=nova.Upsert(key="k"), schema="k bigint, v bigint")


def task(name: str, **edges: Any) -> nova.Task:
    return nova.task(name=name, **edges)(lambda **frames: None)


def plan(tasks: list[nova.Task], blocks: dict[str, str], cursors: dict[str, int]) -> RunPlan:
    binding = nova.Project([nova.bind(nova.Workflowette("w", tasks))]).bindings[0]
    names = {ch.name: ch for ch in binding.channels.values()}
    histories = {n: history(blocks.get(n, ""), merge=ch.merge) for n, ch in names.items()}
    pins = {n: Pin(n, h.head, cursors.get(n, 0)) for n, h in histories.items()}
    return plan_run(binding, pins, histories)


def test_the_plan_says_which_files_each_input_opens() -> None:
    p = plan(
        [task("t", consumes=[nova.new(a), nova.all(b)], produces=nova.delta(c))], {"a": "d1 d2", "b": "b1 d2"}, {"a": 1}
    )
    reads = {i.name: describe_read(i.reads[i.mode]) for i in p.step("t").inputs}
    assert reads == {"a": "Δ(1→2)", "b": "B1 ⊕ Δ(1→2)"}
    assert json.loads(json.dumps(p.as_json()))["steps"][0]["reads"][0]["by"]["new"]["files"] == ["blocks/d2/part-0"]


def test_r6_channels_read_and_written_or_written_as_base_must_not_move() -> None:
    p = plan(
        [task("t", consumes=[nova.new(a), nova.all(state)], produces=[nova.delta(state), nova.delta(c)])],
        {"state": "d1"},
        {},
    )
    assert [(h.channel, h.seq) for h in p.heads] == [("state", 1)]
    p = plan([task("t", consumes=nova.all(a), produces=nova.base(c))], {"c": "b1 b2"}, {})
    assert [(h.channel, h.seq) for h in p.heads] == [("c", 2)]


def test_r5_cursors_go_to_the_pinned_head_or_to_the_commits_own_number() -> None:
    tasks = [
        task("one", consumes=nova.new(a), produces=nova.delta(b)),
        task("two", consumes=nova.new(b), produces=nova.delta(c)),
    ]
    p = plan(tasks, {"a": "d1 d2", "b": "d1"}, {"a": 1, "b": 1})
    assert {m.channel: (m.expected, m.to, m.follows_own_write) for m in p.cursors} == {
        "a": (1, 2, False),
        "b": (1, 1, True),
    }
    assert describe_read(p.step("two").inputs[0].reads["new"]) == "Δ(staged)"


def test_a_task_does_not_see_its_own_output() -> None:
    p = plan([task("t", consumes=nova.all(state), produces=nova.delta(state))], {"state": "d1"}, {})
    assert describe_read(p.step("t").inputs[0].reads["all"]) == "Δ(0→1)"


def test_views_have_three_reads_under_one_pin() -> None:
    p = plan([task("t", consumes=nova.changes(a), produces=nova.delta(c))], {"a": "d1 d2 d3"}, {"a": 2})
    reads = p.step("t").inputs[0].reads
    assert {m: describe_read(r) for m, r in reads.items()} == {
        "all": "Δ(0→1) ⊕ Δ(1→2) ⊕ Δ(2→3)",
        "new": "Δ(2→3)",
        "old": "Δ(0→1) ⊕ Δ(1→2)",
    }


def test_private_rows_are_not_written_when_that_cannot_be_seen() -> None:
    reader = task("two", consumes=nova.new("x"), produces=nova.delta(c))
    p = plan([task("one", consumes=nova.new(a), produces=nova.delta("x")), reader], {}, {})
    assert p.step("one").outputs[0].handover == "pass"
    p = plan([task("one", consumes=nova.new(a), produces=[nova.delta("x"), nova.delta(b)]), reader], {}, {})
    assert [o.handover for o in p.step("one").outputs] == ["stage", "stage"]


def test_readers_of_a_skipped_writer_see_what_is_pinned() -> None:
    tasks = [
        task("one", consumes=nova.new(a), produces=nova.base(b)),
        task("two", consumes=nova.all(b), produces=nova.delta(c)),
    ]
    binding = nova.Project([nova.bind(nova.Workflowette("w", tasks))]).bindings[0]
    histories = {"a": history("d1"), "b": history("b1"), "c": history("")}
    pins = {n: Pin(n, h.head, 1) for n, h in histories.items()}
    assert describe_read(plan_run(binding, pins, histories).step("two").inputs[0].reads["all"]) == "B(staged)"
    assert (
        describe_read(
            plan_run(binding, pins, histories, ports_without_new_data=frozenset({"b"}))
            .step("two")
            .inputs[0]
            .reads["all"]
        )
        == "B1"
    )
